"""Ending a loop of ours when it is asked to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty
from types import FrameType

from nobroker.mailbox import Mailbox


class Stop:
    """What `threading.Event` is to threads, for signal handlers: they run in the midst of code that waits.

    An event takes a lock to be set, and the code that a handler interrupted may hold it: the program would
    hang. Putting something into a `Mailbox` is safe at any moment.
    """

    def __init__(self) -> None:
        self._asked = False
        self._bell: Mailbox[None] = Mailbox()

    def set(self) -> None:
        self._asked = True
        self._bell.put(None)

    def is_set(self) -> bool:
        return self._asked

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; whether it is set."""
        if not self._asked:
            with suppress(Empty):
                self._bell.get(timeout=seconds)
        return self._asked


@contextmanager
def stop_on_signals(*others: str) -> Iterator[Stop]:
    """Yield what SIGINT and SIGTERM set; the handlers there were are put back afterwards.

    Args:
        others: names of signals that set it, too, where the system has them.
    """
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may set handlers
        return
    more = [getattr(signal, name) for name in others if hasattr(signal, name)]
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, *more)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
