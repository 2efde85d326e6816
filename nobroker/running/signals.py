"""Signals as numbers in a pipe.

Nothing is done in a handler: it may have interrupted anything. The interpreter writes each signal's number
into a pipe, and one loop of the process reads it there, when it likes.

Whoever is forked from a process with a pipe has what the signals did before, and no pipe: else a signal to
a process that a job forked would count as one to the worker. Around each fork signals are blocked, so that
none comes before that is so.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_AT_ONCE: Final = 4096
_caught: list[Signals] = []
_forking = threading.local()  # the mask of a thread that forks


def named(*names: str) -> list[signal.Signals]:
    """Those of these signals that this system has."""
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


ALL: Final = named("SIGTERM", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGTSTP", "SIGUSR2", "SIGHUP", "SIGCHLD")
STOP: Final = frozenset(named("SIGTERM", "SIGINT"))
AT_ONCE: Final = frozenset(named("SIGQUIT"))
QUIET: Final = frozenset(named("SIGUSR1", "SIGTSTP"))
METRICS: Final = frozenset(named("SIGUSR2"))
RESTART: Final = frozenset(named("SIGHUP"))
CHILD: Final = getattr(signal, "SIGCHLD", None)


class Signals:
    """The signals that this process catches, from `catch` to `restore`. Both in the main thread.

    Attributes:
        fd: can be read when there is something to take.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = list(numbers)
        self._before: dict[int, Any] = {}
        self._wake_before = -1
        self.fd, self._write = os.pipe()
        for fd in (self.fd, self._write):
            os.set_blocking(fd, False)

    def catch(self) -> None:
        self._wake_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, _noted)
        _caught.append(self)

    def restore(self) -> None:
        """Let the signals do again what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()
        signal.set_wakeup_fd(self._wake_before)
        if self in _caught:
            _caught.remove(self)
        os.close(self.fd)
        os.close(self._write)

    def ring(self) -> None:
        """Have the loop look, from any thread."""
        with suppress(BlockingIOError):  # full: it will look
            os.write(self._write, b"\0")

    def taken(self) -> list[int]:
        """The signals that have come, each at its turn."""
        found = b""
        with suppress(BlockingIOError):
            while piece := os.read(self.fd, _AT_ONCE):
                found += piece
        return [number for number in found if number]


@contextmanager
def blocked() -> Iterator[set[int]]:
    """No signal of ours comes within; they come afterwards. Yields the mask from before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    try:
        yield {int(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock(mask: set[int]) -> None:
    """In a child: signals come again, as the mask has it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def can_be_caught() -> bool:
    """Whether `Signals` would work here: in the main thread, on a system that has them, and not where a hook
    runs one application within the run of another, which has to hear them, too.
    """
    return hasattr(signal, "pthread_sigmask") and in_main_thread() and not _caught


def _noted(_number: int, _frame: object) -> None:
    """The interpreter has written it into the pipe already."""


def _before_fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ALL) if _caught else None


def _in_parent() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_child() -> None:
    while _caught:
        one = _caught.pop()
        one._wake_before = -1
        one.restore()
    _in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
