"""A process that dies between two changes of the disk, or a disk that refuses one, played in this one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nobroker_mmap import files

CALLS = ("write_at", "sync_data", "sync_directory", "unlink", "publish", "write_cache")


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


@contextmanager
def killed_at(call: int) -> Iterator[None]:
    """Die at the so-many-th change of the disk: before it, or, when the number is odd, after it.

    From then on every change fails, as nothing is cleaned up by a process that is dead.
    """
    with _counting(call, Killed, after=bool(call % 2), once=False):
        yield


@contextmanager
def failing_at(call: int) -> Iterator[None]:
    """The so-many-th change of the disk is refused."""
    with _counting(call, lambda: OSError(errno.EIO, "refused by the test"), after=False, once=True):
        yield


@contextmanager
def _counting(call: int, error: Callable[[], BaseException], *, after: bool, once: bool) -> Iterator[None]:
    left = [call]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*words: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and after:
                real(*words, **named)
            if left[0] == 0 or (left[0] < 0 and not once):
                raise error()
            return real(*words, **named)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(files, name, counted(getattr(files, name)))
        yield
