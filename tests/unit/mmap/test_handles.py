"""Handles at bad moments: lock files that go and come, systems that refuse."""

from __future__ import annotations

import errno
import gc
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import files, locking, opening
from nobroker_mmap.errors import CorruptLogError, LockTimeoutError, QueueClosedError, Restart, StorageError
from tests.unit.mmap.harness import (
    assert_clean,
    catch_up,
    content,
    flip,
    follow,
    locked,
    open_files,
    open_log,
    overwrite,
    part,
    put,
    text_of,
)


def descriptors() -> int:
    """How many are open, those left out that nobody but a caught error holds."""
    gc.collect()
    return open_files()


def refuse(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, "too many open files")


def once(
    patch: pytest.MonkeyPatch, where: Any, name: str, act: Callable[..., Any], after: bool = True
) -> None:
    """Have `act` called with the arguments at the next call of a function, behind or before it."""
    real = getattr(where, name)

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        patch.setattr(where, name, real)
        if not after:
            act(*arguments)
        found = real(*arguments, **options)
        if after:
            act(*arguments)
        return found

    patch.setattr(where, name, meanwhile)


# -- the lock file ----------------------------------------------------------------------------------


def test_a_lock_file_that_goes_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    once(monkeypatch, files, "open_or_create", os.unlink)
    log = open_log(tmp_path)
    put(log, 1)
    log.close()
    assert descriptors() == before
    assert_clean(tmp_path)


def replace(path: str, *_: object) -> None:
    os.unlink(path)
    os.close(files.create(path))


def test_a_lock_file_that_is_replaced_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    once(monkeypatch, files, "open_or_create", replace)
    log = open_log(tmp_path)
    assert log.control.inode == (tmp_path / "q.lock").stat().st_ino
    put(log, 1)
    log.close()
    assert descriptors() == before
    assert_clean(tmp_path)


def test_a_lock_file_that_goes_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q.lock"
    once(monkeypatch, locking, "acquire", lambda *_: os.unlink(path))
    log = open_log(tmp_path)
    put(log, 1)
    assert path.exists()
    other = open_log(tmp_path)
    assert follow(other) == [(1, "v1")], "both have the same lock"
    other.close()
    log.close()
    assert_clean(tmp_path)


def test_a_lock_file_that_cannot_be_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    os.unlink(tmp_path / "q.lock")
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_or_create", refuse)
        for _ in range(2):
            with pytest.raises(StorageError, match="too many files open"):
                log.lock()
    assert log.behind()
    assert log.lag() == 0
    assert log.load_snapshot() is None
    assert follow(log) == [(1, "v1")], "reading goes on"
    with pytest.raises(Restart):
        log.lock()
    catch_up(log)
    put(log, 2)
    log.close()
    assert content(tmp_path) == [(1, "v1"), (2, "v2")]
    assert_clean(tmp_path)


def test_a_handle_that_cannot_be_opened_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(tmp_path).close()
    before = descriptors()
    for where, name in ((files, "open_or_create"), (opening, "open_writable"), (opening, "open_read_only")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, refuse)
            with pytest.raises(StorageError, match="too many files open"):
                open_log(tmp_path, read_only=name == "open_read_only")
        assert descriptors() == before
    with monkeypatch.context() as patch:
        open_write, opened = files.open_write, []

        def not_twice(path: str) -> int:
            opened.append(path)
            return refuse() if opened.count(path) > 1 else open_write(path)

        patch.setattr(files, "open_write", not_twice)
        with pytest.raises(StorageError, match=r"q.000001.seg: cannot be opened: .*too many"):
            open_log(tmp_path)
    assert descriptors() == before
    assert_clean(tmp_path)


def test_a_repair_that_fails_is_done_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    with locked(log):
        log._unfinished = True  # as if the holder had died
    with monkeypatch.context() as patch:
        patch.setattr(files, "last_nonzero", refuse)
        with pytest.raises(StorageError, match="cannot be repaired"):
            log.lock()
    put(log, 2)
    log.close()
    assert content(tmp_path) == [(1, "v1"), (2, "v2")]
    assert_clean(tmp_path)


def test_a_repair_cuts_what_nobody_was_told_of(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    end = log.position + 128
    with locked(log):
        log._unfinished = True
    overwrite(tmp_path / "q.000001.seg", end, b"half a record")
    assert not log.unproven
    assert log.lock() is True, "there is news: numbers may be missing"
    log.unlock()
    assert log.unproven
    assert log.recovery.bytes_discarded == 13
    assert (tmp_path / f"q.000001.{end}.torn").read_bytes() == b"half a record"
    put(log, 2)
    log.close()
    assert content(tmp_path) == [(1, "v1"), (2, "v2")]
    assert_clean(tmp_path)


def test_a_repair_cuts_nothing_that_was_promised(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    peer = open_log(tmp_path)
    at = log.position + 128
    with locked(log):
        log.append([part(2)])
        log._unfinished = True
    flip(tmp_path / "q.000001.seg", at + 70)
    before = (tmp_path / "q.000001.seg").read_bytes()
    for handle in (peer, peer):
        with pytest.raises(CorruptLogError) as caught:
            handle.lock()
        assert caught.value.offset == at
    assert (tmp_path / "q.000001.seg").read_bytes() == before
    flip(tmp_path / "q.000001.seg", at + 70)
    put(peer, 3)
    assert [text_of(peer, key) for key in (1, 2, 3)] == ["v1", "2", "v3"]
    peer.close()
    log.close()
    assert_clean(tmp_path)


def test_a_repair_takes_in_the_segments_that_were_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, late = open_log(tmp_path), open_log(tmp_path)
    with locked(log):
        log.append([part(1, "v")])
        log.seal()
        log.append([part(2, "v")])
        log.seal()
        log._unfinished = True
    with caplog.at_level(logging.INFO, "nobroker_mmap"):
        with locked(late):
            assert late.active_number == 3
    assert f"process {os.getpid()} did not end what it did" in caplog.text
    put(late, 3)
    assert [text_of(late, key) for key in (1, 2, 3)] == ["v1", "v2", "v3"]
    late.close()
    log.close()
    assert_clean(tmp_path)


# -- threads ----------------------------------------------------------------------------------------


def test_threads_of_one_handle_wait_for_each_other(tmp_path: Path) -> None:
    log = open_log(tmp_path, lock_timeout=0.05)
    with locked(log):
        with pytest.raises(LockTimeoutError, match="another thread") as caught:
            log.lock()
        assert caught.value.pid == os.getpid()
    log.lock_timeout = 30
    log.lock()
    thread = threading.Thread(target=put, args=(log, 7))
    thread.start()
    log.unlock()
    thread.join()
    follow(log)
    assert text_of(log, 7) == "v7"
    log.close()
    assert_clean(tmp_path)


def test_a_close_gives_up_on_a_thread_that_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, lock_timeout=0.05)
    acquire = log.mutex.acquire

    class Mutex:
        """Nobody waits a whole second for it here."""

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            return acquire(blocking, min(timeout, 0.01))

        def release(self) -> None:
            lock.release()

    lock, log.mutex = log.mutex, Mutex()  # type: ignore[assignment]
    lock.acquire()
    with pytest.raises(LockTimeoutError, match="still working"):
        log.close()
    lock.release()
    put(log, 1)
    log.close()
    assert_clean(tmp_path)


# -- closed, read-only ------------------------------------------------------------------------------


def test_what_is_closed_says_so(tmp_path: Path) -> None:
    log, reader = open_log(tmp_path), open_log(tmp_path, read_only=True)
    end = put(log, 1)
    for handle in (log, reader):
        handle.close()
        handle.close()
        handle.after_fork()
        for call in (handle.lock, handle.load_snapshot, lambda h=handle: list(h.records())):
            with pytest.raises(QueueClosedError):
                call()
        assert not handle.behind()
        assert handle.durable == 0
        assert not handle.has_waiters()
        handle.notify()
        with pytest.raises(QueueClosedError):
            handle.wait_durable(end)
        with pytest.raises(StorageError, match="no control page"):
            _ = handle.control


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    reader = open_log(tmp_path, read_only=True)
    with pytest.raises(StorageError, match="opened read-only"):
        reader.lock()
    assert reader.unproven
    assert not log.unproven
    log.control.words[ctl.UNPROVEN] = 1
    assert log.unproven
    assert log.lock() is True
    log.proven()
    log.unlock()
    assert not log.unproven
    before = bytes(log.control.words)
    reader.announce()
    assert bytes(log.control.words) == before
    reader.after_fork()
    assert follow(reader) == [(1, "v1")], "a reader is the same in a child"
    reader.close()
    log.close()
    assert_clean(tmp_path)


def test_no_reader_of_what_is_not_there(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(StorageError, match="there is no queue 'q' here"):
            open_log(directory, read_only=True)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be opened"):
        open_log(tmp_path / "file" / "deeper", read_only=True)
    for read_only in (True, False):
        with pytest.raises(StorageError, match=r"cannot be (read|opened)"):
            open_log(tmp_path / "file", read_only=read_only)
