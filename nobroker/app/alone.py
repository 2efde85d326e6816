"""Jobs that run alone in their worker process: the gate that each run passes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Final

from nobroker.worker import RetryLater

_LOOK_S: Final = 0.05
"""Who waits looks so often whether the worker is stopping: a signal handler may take no lock to say so."""


class Gate:
    """Lets runs begin in the order in which they come: many at a time, or one alone.

    Invariant: as long as one that is to be alone waits, none that came later begins. So those before it come
    to an end, and nobody waits for ever.

    Args:
        stopping: whether the worker is stopping: then those that wait are given back.
    """

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._changed = threading.Condition(threading.Lock())  # guards the next three
        self._running = 0
        self._alone = False
        self._line: deque[object] = deque()

    def passed(self, alone: bool, run: Callable[[], Any]) -> Any:
        """Wait for one's turn, then run. Of an async run, the coroutine; it has left when that has ended.

        Raises:
            RetryLater: the worker stops, and this one had not begun: no attempt is counted.
            BaseException: what the run raises.
        """
        self._enter(alone)
        inside = True
        try:
            found = run()
            if type(found) is CoroutineType:
                inside = False
                return self._awaited(found, alone)
            return found
        finally:
            if inside:
                self._leave()

    async def _awaited(self, run: Coroutine[Any, Any, Any], alone: bool) -> Any:
        try:
            return await run
        finally:
            self._leave()

    def _enter(self, alone: bool) -> None:
        with self._changed:
            if self._line or not self._is_free(alone):
                self._wait(alone)
            self._running += 1
            self._alone = alone

    def _wait(self, alone: bool) -> None:
        me = object()
        self._line.append(me)
        try:
            while not self._stopping():
                if self._line[0] is me and self._is_free(alone):
                    return
                self._changed.wait(_LOOK_S)
            raise RetryLater(0)
        finally:
            self._line.remove(me)
            self._changed.notify_all()

    def _is_free(self, alone: bool) -> bool:
        return not self._alone and not (alone and self._running)

    def _leave(self) -> None:
        with self._changed:
            self._running -= 1
            self._alone = False
            if self._line:
                self._changed.notify_all()
