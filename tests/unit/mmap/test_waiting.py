"""Waking and group commit, each by itself, at the moments that are hard to meet."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nobroker_mmap import locking
from nobroker_mmap.commit import GroupCommit
from nobroker_mmap.errors import StorageError
from nobroker_mmap.wake import Waiters


def waiting(path: Path) -> Waiters:
    """Somebody who has waited once, so that there is a FIFO with a reader."""
    waiters = Waiters(str(path))
    assert waiters.wait(0.0) is False
    return waiters


def test_a_waiter_that_has_gone_is_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    first, sender = waiting(path), Waiters(str(path))
    sender.send()
    assert first.wait(5) is True
    first.close()
    sender.send()
    sender.send()
    second = waiting(path)
    sender.send()
    assert second.wait(5) is True
    assert second.wait(0.0) is False, "one byte wakes once"
    sender.close()
    sender.send()
    assert second.wait(0.0) is False, "what is closed wakes nobody"
    second.close()
    second.close()


def test_who_has_a_ticket_is_reached_before_it_waits(tmp_path: Path) -> None:
    """Also for the first time, when there is no FIFO yet."""
    path = tmp_path / "wake"
    waiters, sender = Waiters(str(path)), Waiters(str(path))
    ticket = waiters.ticket()
    sender.send()
    assert waiters.wait(5, ticket) is True
    waiters.close()
    assert waiters.wait(5, waiters.ticket()) is True, "closed: who waits shall look"
    assert waiters._fd is None
    sender.close()


def test_a_fifo_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    first, sender = waiting(path), Waiters(str(path))
    sender.send()
    assert first.wait(5) is True
    path.unlink()
    first.close()
    second = Waiters(str(path))
    ticket = second.ticket()
    sender.send()
    assert second.wait(5, ticket) is True
    second.close()
    sender.close()


def test_another_waiter_may_be_quicker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiters = waiting(tmp_path / "wake")
    taken = 0
    read = os.read

    def quicker(fd: int, length: int) -> bytes:
        nonlocal taken
        taken += 1
        if taken == 1:
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        return read(fd, length)

    monkeypatch.setattr(os, "read", quicker)
    waiters.send()
    assert waiters.wait(5) is True
    assert taken == 2
    taken = 0
    waiters.send()
    assert waiters.wait(0.0) is False, "its time was over"
    monkeypatch.undo()
    waiters.close()


@pytest.mark.parametrize("act", [Waiters.wake_local, Waiters.close])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_comes_between_the_look_and_the_wait_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Waiters], None], moment: str
) -> None:
    """Nor is what a close has closed read from: another file may have its number by now."""
    waiters = waiting(tmp_path / "wake")
    descriptor = waiters._descriptor

    def meanwhile() -> int | None:
        if moment == "before":
            act(waiters)
        fd = descriptor()
        if moment == "after":
            act(waiters)
        return fd

    ticket = waiters.ticket()
    monkeypatch.setattr(waiters, "_descriptor", meanwhile)
    assert waiters.wait(60, ticket) is True
    monkeypatch.undo()
    waiters.close()


def test_without_a_ticket_only_what_comes_later_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a close."""
    waiters = waiting(tmp_path / "wake")
    waiters.wake_local()
    assert waiters.wait(0.0) is False
    descriptor = waiters._descriptor

    def closed() -> int | None:
        fd = descriptor()
        waiters.close()
        return fd

    monkeypatch.setattr(waiters, "_descriptor", closed)
    assert waiters.wait(60) is True


def is_open(fd: int | None) -> bool:
    try:
        os.fstat(fd or 0)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_closes_the_pipes_of_waiting_threads(tmp_path: Path) -> None:
    waiters = Waiters(str(tmp_path / "wake"))
    thread = threading.Thread(target=waiters.wait, args=(60,))
    thread.start()
    while not waiters._wakers:
        time.sleep(0.001)
    ((receive, send),) = waiters._wakers
    pid = os.fork()
    if not pid:
        waiters.after_fork()
        os._exit(sum(is_open(fd) for fd in (receive, send, waiters._fd)))
    assert os.waitpid(pid, 0)[1] == 0
    waiters.close()
    thread.join(30)
    assert not thread.is_alive()


def test_a_child_has_waiters_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    parent = waiting(path)
    parent.send()
    fds = [fd for fd in (parent._fd, parent._write_fd) if fd is not None]
    assert len(fds) == 2
    child = parent.after_fork()
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert child.wait(0.0) is False, "a FIFO that nobody has open is empty"
    child.send()
    assert child.wait(5) is True
    child.close()
    quiet = Waiters(str(path), poll_only=True).after_fork()
    assert quiet.wait(0.0) is False
    assert quiet._fd is None
    quiet.close()


# -- group commit -----------------------------------------------------------------------------------


def test_what_is_closed_syncs_nothing(tmp_path: Path) -> None:
    commit = GroupCommit(str(tmp_path / "sync"))
    synced: list[int] = []
    commit.run(lambda: False, lambda: synced.append(1))
    commit.close()
    commit.close()
    commit.abandon()
    with pytest.raises(StorageError, match="closed before the sync") as caught:
        commit.run(lambda: False, lambda: synced.append(2))
    assert caught.value.outcome == "unknown"
    assert synced == [1]


def test_nobody_waits_for_long_for_the_sync_of_another(tmp_path: Path) -> None:
    commit, other = GroupCommit(str(tmp_path / "sync")), GroupCommit(str(tmp_path / "sync"))
    assert locking.try_lock(other._fd)
    synced: list[int] = []
    commit.run(lambda: False, lambda: synced.append(1))
    assert synced == [1]
    looks = iter([False, False, True])
    commit.run(lambda: next(looks), lambda: pytest.fail("the other one did it"))
    assert list(looks) == []
    locking.unlock(other._fd)
    commit.close()
    other.close()


def test_no_sync_when_it_was_done_meanwhile(tmp_path: Path) -> None:
    commit = GroupCommit(str(tmp_path / "sync"))
    answers = iter([False, True])
    commit.run(lambda: next(answers), lambda: pytest.fail("nothing is left to sync"))
    assert list(answers) == []
    commit.run(lambda: True, lambda: pytest.fail("nothing is left to sync"))
    commit.close()


def test_a_descriptor_is_not_closed_under_a_sync(tmp_path: Path) -> None:
    commit = GroupCommit(str(tmp_path / "sync"))
    leaving, idle = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)

    def sync() -> None:
        commit.close_later(leaving)
        os.fstat(leaving)

    commit.run(lambda: False, sync)
    commit.close_later(idle)
    for fd in (leaving, idle):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    commit.close()


def test_a_child_closes_what_it_inherited(tmp_path: Path) -> None:
    commit = GroupCommit(str(tmp_path / "sync"))
    leaving = os.open(tmp_path, os.O_RDONLY)
    with commit._mutex:  # held by a thread that the child does not have
        commit.close_later(leaving)
        fds = [commit._fd, leaving]
        done = threading.Thread(target=commit.abandon)
        done.start()
        done.join(5)
        assert not done.is_alive(), "it waits for no lock"
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
