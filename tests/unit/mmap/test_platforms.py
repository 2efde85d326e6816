"""Systems that lack a call: the slower one that stands in does the same. The lack is put on here."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import select
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import portalocker.portalocker
import pytest

from nobroker_mmap import files, locking
from nobroker_mmap.errors import StorageError
from tests.unit.mmap.harness import (
    assert_clean,
    content,
    keys_of,
    locked,
    open_files,
    open_log,
    part,
    put,
)


def refusing(code: int) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def test_without_positioned_reads_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_pwrite", files._seek_and_write)
    monkeypatch.setattr(files, "_pread", files._seek_and_read)
    log = open_log(tmp_path)
    for key in range(5):
        put(log, key, text="x" * 30_000)
    log.close()
    log = open_log(tmp_path)
    assert [key for key, _ in content(tmp_path)] == list(range(5))
    put(log, 5)
    log.close()
    monkeypatch.undo()
    assert [key for key, _ in content(tmp_path)] == list(range(6))
    assert_clean(tmp_path)


@pytest.mark.parametrize("lack", ["no call", errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_space_is_reserved_by_writing_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str | int
) -> None:
    if isinstance(lack, str):
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", refusing(lack))
    size = 2 * 2**20 + 12_345
    fd = files.create(str(tmp_path / "file"))
    files.preallocate(fd, size)
    os.close(fd)
    found = (tmp_path / "file").stat()
    assert found.st_size == size
    assert found.st_blocks * 512 >= size
    assert not any((tmp_path / "file").read_bytes())


def test_no_space_is_not_taken_for_a_missing_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.ENOSPC))
    fd = files.create(str(tmp_path / "file"))
    with pytest.raises(OSError, match="No space"):
        files.preallocate(fd, 4096)
    os.close(fd)
    assert (tmp_path / "file").stat().st_size == 0


@pytest.mark.parametrize("command", [51, None])
def test_a_sync_of_the_platter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: int | None) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", command, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *call: calls.append(call))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append((fd,)))
    files.sync_file(7)
    assert calls == ([(7, command)] if command else [(7,)])


def test_no_directory_is_synced_where_there_is_no_such_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        files.sync_directory("nowhere")
    with pytest.raises(FileNotFoundError):
        files.sync_directory("nowhere")


def test_a_file_that_is_still_open_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refusing(errno.EACCES))
        with pytest.raises(PermissionError):
            files.unlink(str(path))
        patch.setattr(os, "name", "nt")
        assert files.unlink(str(path)) is False
    assert files.unlink(str(path)) is True
    assert files.unlink(str(path)) is True, "it has gone already"
    assert not path.exists()


def test_without_holes_all_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(70_000) + b"x" + bytes(9))
    fd = files.open_read(str(path))
    lseek = os.lseek

    def no_data(fd: int, offset: int, whence: int) -> int:
        if whence == os.SEEK_DATA:
            raise OSError(errno.EINVAL, "no such whence")
        return lseek(fd, offset, whence)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lseek", no_data)
        assert list(files.data_ranges(fd, 5, 70_010)) == [(5, 70_010)]
        assert files.last_nonzero(fd, 0, 70_010) == 70_001
    with monkeypatch.context() as patch:
        patch.delattr(os, "SEEK_DATA")
        assert list(files.data_ranges(fd, 5, 70_010)) == [(5, 70_010)]
        assert files.last_nonzero(fd, 0, 70_000) == 0
    os.close(fd)


def test_a_copy_is_made_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"bytes" * 500_000)
    monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    files.keep_copy(str(tmp_path / "file"), str(tmp_path / "kept"))
    (tmp_path / "file").write_bytes(b"other")
    assert (tmp_path / "kept").read_bytes() == b"bytes" * 500_000


def test_no_process_is_taken_for_dead_where_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    assert locking.is_running(os.getpid())
    assert not locking.is_running(gone)
    assert locking.is_running(2**70), "no process can have it: nothing is known"
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refusing(errno.EPERM))
        assert locking.is_running(gone), "that of another user"
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        assert locking.is_running(gone)


def test_reads_that_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    fd = files.open_read(str(tmp_path / "file"))
    pread = os.pread
    monkeypatch.setattr(files, "_pread", lambda fd, length, offset: pread(fd, min(length, 7), offset))
    assert files.read_at(fd, 30, 5) == bytes(range(5, 35))
    assert files.read_at(fd, 300, 90) == bytes(range(90, 100))
    assert files.read_at(fd, 5, 100) == b""
    os.close(fd)


def test_large_writes_go_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    pwrite = os.pwrite

    def short(fd: int, data: bytes, offset: int) -> int:
        sizes.append(len(data))
        return pwrite(fd, bytes(data)[:5], offset)

    monkeypatch.setattr(files, "WRITE_SIZE", 10)
    monkeypatch.setattr(files, "_pwrite", short)
    fd = files.create(str(tmp_path / "file"))
    files.write_at(fd, bytes(range(10)), 3)
    files.write_at(fd, bytes(range(10, 21)), 13)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == bytes(3) + bytes(range(21))
    assert sizes == [10, 5, 10, 6, 1]


def test_a_cache_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, temporary = str(tmp_path / "cache"), str(tmp_path / "temporary")
    files.write_cache(path, temporary, [b"old", b"er"])
    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_at", refusing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            files.write_cache(path, temporary, [b"new"])
    assert open_files() == before
    assert os.listdir(tmp_path) == ["cache"]
    assert files.read_file(path, 5) == b"older"
    with pytest.raises(OSError, match="more than 4 bytes"):
        files.read_file(path, 4)
    assert files.read_stream(path, 4) == b"olde"
    assert files.read_stream(path, 100) == b"older"


def test_where_there_is_something(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.seek(5 * 2**20)
        file.write(b"x" * 4096)
        file.truncate(9 * 2**20)
    fd = files.open_read(str(path))
    assert list(files.data_ranges(fd, 0, 2**20)) == []
    assert list(files.data_ranges(fd, 6 * 2**20, 9 * 2**20)) == []
    assert list(files.data_ranges(fd, 0, 9 * 2**20)) == [(5 * 2**20, 5 * 2**20 + 4096)]
    assert list(files.data_ranges(fd, 5 * 2**20 + 8, 5 * 2**20 + 16)) == [(5 * 2**20 + 8, 5 * 2**20 + 16)]
    assert files.last_nonzero(fd, 0, 9 * 2**20) == 5 * 2**20 + 4096
    assert files.last_nonzero(fd, 7, 4096) == 7
    os.close(fd)
    assert not files.is_fifo(str(tmp_path / "none"))
    assert not files.is_fifo(str(path))
    assert files.is_regular(str(tmp_path / "none")) is None
    assert files.is_regular(str(tmp_path)) is False


def test_a_lock_that_is_free_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "lock")
    holder, waiter = files.open_or_create(path), files.open_or_create(path)
    assert locking.try_lock(holder)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 20:
            locking.unlock(holder)

    monkeypatch.setattr(locking.time, "sleep", sleep)
    locking.acquire(waiter, 60, path, lambda: 0)
    assert not locking.try_lock(holder)
    assert len(slept) == 20
    assert slept == sorted(slept)
    assert 0 < slept[0] < slept[-1] <= 1e-3
    os.close(holder)
    os.close(waiter)


def test_a_lock_that_is_free_in_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(locking, "try_lock", lambda fd: next(answers))
    monkeypatch.setattr(locking.time, "sleep", lambda seconds: pytest.fail("it is too early to sleep"))
    locking.acquire(5, 10, "lock", lambda: 0)
    assert list(answers) == []


# -- locks ------------------------------------------------------------------------------------------


@pytest.fixture
def plain_locking(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where there is neither fcntl nor fork."""
    spec = importlib.util.spec_from_file_location("plain_locking", locking.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fcntl", None)
        patch.delattr(os, "register_at_fork")
        spec.loader.exec_module(module)
    monkeypatch.delattr(portalocker.portalocker, "FlockLocker")
    return module


def test_locks_without_the_system_call(tmp_path: Path, plain_locking: Any) -> None:
    path = str(tmp_path / "lock")
    first, second = files.open_or_create(path), files.open_or_create(path)
    shared = plain_locking.SHARED | plain_locking.NON_BLOCKING
    assert plain_locking.try_lock(first)
    assert not plain_locking.try_lock(second)
    assert not plain_locking.try_lock(second, shared)
    assert not locking.try_lock(second), "both ways of locking are one lock"
    plain_locking.unlock(first)
    assert plain_locking.try_lock(second, shared)
    assert plain_locking.try_lock(first, shared)
    assert not plain_locking.try_lock(first)
    plain_locking.unlock(second)
    plain_locking._lock(first, plain_locking.EXCLUSIVE)
    assert not locking.try_lock(second)
    os.close(first)
    os.close(second)


def test_a_log_without_the_system_call(
    tmp_path: Path, plain_locking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EXCLUSIVE", "SHARED", "NON_BLOCKING", "UNLOCK", "try_lock", "unlock", "acquire"):
        monkeypatch.setattr(locking, name, getattr(plain_locking, name))
    logs = [open_log(tmp_path), open_log(tmp_path)]
    for key in range(20):
        put(logs[key % 2], key)
    with locked(logs[0]):
        logs[1].lock_timeout = 0.05
        with pytest.raises(locking.LockTimeoutError, match=f"process {os.getpid()}"):
            logs[1].lock()
    for log in logs:
        log.close()
    monkeypatch.undo()
    assert [key for key, _ in content(tmp_path)] == list(range(20))
    assert_clean(tmp_path)


# -- waiting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lack", ["poll", "mkfifo", "a fifo on this file system"])
def test_waiting_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str) -> None:
    if lack == "poll":
        monkeypatch.delattr(select, "poll")
    elif lack == "mkfifo":
        monkeypatch.delattr(os, "mkfifo")
    else:
        monkeypatch.setattr(os, "mkfifo", refusing(errno.EPERM))
    log = open_log(tmp_path)
    ticket, begun = log.announce(), time.monotonic()
    assert log.wait(0.01, ticket) is False
    assert time.monotonic() - begun >= 0.01, "it slept"
    log.wake_local()
    assert log.wait(0.01, ticket) is True
    log.notify()
    assert not (tmp_path / "q.wake").exists()
    with locked(log):
        log.append([part(1)])
    assert keys_of(log.find(0, 9)) == [1]
    log.close()
    assert log.wait(10) is True, "nobody waits on what is closed"
    assert_clean(tmp_path)


def test_the_disk_has_a_say_in_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that writes nothing and reports no error must not make a loop without an end."""
    log = open_log(tmp_path)
    put(log, 1)
    real = files._pwrite
    with monkeypatch.context() as patch:
        patch.setattr(files, "_pwrite", lambda fd, data, offset: 0)
        with pytest.raises(StorageError, match="wrote nothing") as caught:
            put(log, 2)
    assert caught.value.outcome == "unknown"
    assert files._pwrite is real
    put(log, 3)
    log.close()
    assert [key for key, _ in content(tmp_path)] == [1, 3]
    assert_clean(tmp_path)
