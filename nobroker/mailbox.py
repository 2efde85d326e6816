"""A mailbox: what threads and signal handlers put in, one thread takes out, waiting for it.

The standard library's queues do not do: `queue.Queue` takes a lock to put, which the code that a signal
handler interrupted may hold; and `queue.SimpleQueue.get` of Python before 3.13 waits for ever when its
timeout passes between two of its steps, which a very short timeout, or a busy machine, makes happen.

Invariant: whoever puts rings after it has put, and whoever finds nothing waits for the bell and looks again.
So nothing is left lying while its reader sleeps.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from queue import Empty
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """First in, first out, no limit. `put` is safe in signal handlers, even of the thread that waits."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._bell = threading.Lock()  # free while it rings
        self._bell.acquire()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._ring()

    def take(self) -> T:
        """The first item, if there is one.

        Raises:
            queue.Empty: there is none.
        """
        try:
            return self._items.popleft()
        except IndexError:
            raise Empty from None

    def get(self, timeout: float | None = None) -> T:
        """The first item, waited for.

        Args:
            timeout: seconds; None: as long as it takes.

        Raises:
            queue.Empty: none came in that time.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._items:
            if until is None:
                self._bell.acquire()
            elif (left := until - time.monotonic()) <= 0:
                raise Empty
            else:
                self._bell.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        item = self.take()
        if self._items:
            self._ring()  # the bell rang once for several
        return item

    def _ring(self) -> None:
        with suppress(RuntimeError):  # it rings already
            self._bell.release()
