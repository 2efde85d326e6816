"""A queue whose user dies at one of its writes."""

from __future__ import annotations

from typing import Any

from nobroker import Queue

WRITES = ("enqueue_all", "cancel", "reschedule")


class Death(BaseException):
    """The process is killed here."""


class DyingQueue:
    """Passes everything on, and dies at a write.

    Args:
        writes: so many are done; then the end.
        after: die when the write is done, not before it.
    """

    def __init__(self, queue: Queue, writes: int, *, after: bool) -> None:
        self._queue = queue
        self._left = writes
        self._after = after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._queue, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if name not in WRITES:
                return method(*args, **kwargs)
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Death
            found = method(*args, **kwargs)
            if self._left < 0:
                raise Death
            return found

        return call
