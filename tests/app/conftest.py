"""What tests of the job layer share: an application whose clock they move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import App
from nobroker.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(tmp_path: Path, clock: ManualClock) -> Iterator[App]:
    """An application in an empty directory; its queue is whole at the end."""
    made = App(tmp_path / "jobs", fsync=False, clock=clock)
    yield made
    if (tmp_path / "jobs").exists():
        assert made.queue.check() == []
    made.close()
