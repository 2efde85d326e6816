"""Fixtures of the engine's tests."""

from __future__ import annotations

import pytest

from nobroker_mmap import files


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk where a test opens a thousand logs."""
    for name in ("sync_data", "sync_file"):
        monkeypatch.setattr(files, name, lambda fd: None)
    monkeypatch.setattr(files, "sync_directory", lambda path: None)
