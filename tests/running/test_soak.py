"""The soak, for a few seconds. Longer: ``python -m tests.running.soak --seconds 600``."""

from __future__ import annotations

import sys

import pytest

from tests.running.soak import Soak
from tests.running.trial import Trial


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
def test_nothing_is_lost_and_nothing_is_left(trial: Trial) -> None:
    figures = Soak(trial, 6.0, 1).run()
    assert figures["jobs"] >= 70
    assert figures["processes"] > 6
