"""The only place that locks: the log's lock, the group-commit lock, the openers' lock; and the fork hook.

Invariants
- A lock belongs to an open file, so the kernel frees it when its holder dies. Lock files are never unlinked.
- The descriptor that is locked is never mapped: a map keeps its file open, and a forked child would pin the
  lock.
- Nothing here waits without a limit, and the fork hook takes no lock at all.
"""

import os
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from nobroker_mmap.errors import LockTimeoutError

try:
    import fcntl

    EXCLUSIVE, SHARED, NON_BLOCKING, UNLOCK = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB, fcntl.LOCK_UN
except ImportError:  # Windows
    EXCLUSIVE, SHARED, NON_BLOCKING, UNLOCK = 1, 2, 4, 8

_SPINS = 20
_FIRST_SLEEP_S = 20e-6
_SHORT_SLEEP_S = 150e-6
_LONGEST_SLEEP_S = 1e-3
_LONG_HELD_S = 0.02
"""Whoever has the lock for so long is at something longer than a verb."""


def _first_call(fd: int, flags: int) -> None:
    """Loads portalocker, whose import is slow, when the first lock is taken; from then on its call stands
    here.
    """
    global _lock
    _lock = _cheapest()
    _lock(fd, flags)


def _cheapest() -> Callable[[int, int], Any]:
    """The system call as portalocker holds it: a fifth of the cost of its checked functions."""
    try:
        from portalocker.portalocker import FlockLocker

        locker: Callable[[int, int], Any] = FlockLocker().locker
        return locker
    except (ImportError, AttributeError):
        return _checked


def _checked(fd: int, flags: int) -> None:
    """Where there is no system call to hold: portalocker's own functions, with the errors of the call."""
    import portalocker

    if flags & UNLOCK:
        portalocker.unlock(fd)
        return
    wanted = portalocker.LockFlags.SHARED if flags & SHARED else portalocker.LockFlags.EXCLUSIVE
    if flags & NON_BLOCKING:
        wanted |= portalocker.LockFlags.NON_BLOCKING
    try:
        portalocker.lock(fd, wanted)
    except portalocker.LockException as error:
        raise BlockingIOError(str(error)) from error


_lock: Callable[[int, int], Any] = _first_call


def try_lock(fd: int, flags: int = EXCLUSIVE | NON_BLOCKING) -> bool:
    """Take a lock now or not at all; False when others hold it."""
    try:
        _lock(fd, flags)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Give a lock back."""
    _lock(fd, UNLOCK)


class Deadline:
    """An instant that a wait must not go beyond."""

    __slots__ = ("_at",)

    def __init__(self, timeout_s: float) -> None:
        self._at = time.monotonic() + timeout_s

    def left(self) -> float:
        """Seconds until then, never negative."""
        return max(0.0, self._at - time.monotonic())


_fstat = os.fstat


def in_place(fd: int, size: int) -> bool:
    """Does an open lock file still have a name and at least `size` bytes, so that a map of it can be
    touched?
    """
    found = _fstat(fd)
    return found.st_nlink > 0 and found.st_size >= size


def acquire(fd: int, timeout_s: float, path: str, holder: Callable[[], int]) -> None:
    """Take the exclusive lock within a time.

    Raises:
        LockTimeoutError: names the process that `holder` gives.
    """
    if try_lock(fd):
        return
    for _ in range(_SPINS):
        if try_lock(fd):
            return
    deadline = Deadline(timeout_s)
    pause = _FIRST_SLEEP_S
    while not try_lock(fd):
        left = deadline.left()
        if not left:
            pid = holder()
            who = f"process {pid}" if pid else "another process"
            raise LockTimeoutError(
                f"{path}: {who} held the lock for {timeout_s:g} s; look whether it is stopped or stuck,"
                " or raise the"
                " lock timeout",
                pid=pid,
            )
        time.sleep(min(pause, left))
        longest = _LONGEST_SLEEP_S if timeout_s - left > _LONG_HELD_S else _SHORT_SLEEP_S
        pause = min(pause * 1.5, longest)


def is_running(pid: int) -> bool:
    """Does a process live, as far as can be known? True where it cannot."""
    if os.name != "posix":  # there this call would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


class Forkable(Protocol):
    """What must be told in a child process that it is one."""

    def after_fork(self) -> None:
        """Close what was inherited; take no lock."""


_live: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def watch_forks(handle: Forkable) -> None:
    """Call `handle.after_fork()` in every child that is forked while the handle is alive."""
    _live.add(handle)


def _in_child() -> None:
    for handle in list(_live):
        handle.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
