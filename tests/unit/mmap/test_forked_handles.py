"""Handles in a forked child."""

from __future__ import annotations

from pathlib import Path

import pytest

from nobroker_mmap import format as fmt
from nobroker_mmap import locking, opening
from nobroker_mmap.errors import Restart, StorageError
from nobroker_mmap.log import Log
from tests.unit.mmap.harness import assert_clean, follow, open_log, put, text_of
from tests.unit.mmap.test_handles import descriptors, refuse


def as_child(log: Log) -> None:
    """As the fork hook does it, in this process."""
    log.after_fork()
    assert log.forked


def test_a_child_opens_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, fsync=True)
    put(log, 1)
    assert text_of(log, 1) == "v1"
    before = descriptors()
    as_child(log)
    assert log.behind()
    assert log.lag() == 0
    log.ensure_reachable()
    log.wait_durable(10**6)
    log.unlock()
    with pytest.raises(Restart):
        list(log.records())
    log.after_fork()  # a child of the child
    for name in ("open_writable", "open_writable"):
        with monkeypatch.context() as patch:
            patch.setattr(opening, name, refuse)
            with pytest.raises(StorageError, match="too many"):
                log.lock()
    with pytest.raises(Restart):
        log.lock()
    assert not log.forked
    log.load_snapshot()
    assert follow(log) == [(1, "v1")]
    put(log, 2, durable=True)
    assert descriptors() <= before
    as_child(log)
    log.load_snapshot()
    assert follow(log) == [(1, "v1"), (2, "v2")]
    assert descriptors() <= before
    as_child(log)
    log.close()
    assert_clean(tmp_path)


def test_the_hook_reaches_every_handle(tmp_path: Path) -> None:
    logs = [open_log(tmp_path, name=name) for name in ("a", "b")]
    closed = open_log(tmp_path, name="c")
    closed.close()
    locking._in_child()
    for log in logs:
        assert log.forked
        with pytest.raises(Restart):
            log.lock()
        log.close()
    assert not closed.forked
    assert (tmp_path / "a.lock").stat().st_size == fmt.CONTROL_SIZE
    for name in "abc":
        assert_clean(tmp_path, name=name)
