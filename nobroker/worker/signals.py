"""SIGINT and SIGTERM, caught for the time of a run and put back afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def caught(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` at each signal; it must be safe in a signal handler.

    Python lets only the main thread have handlers; in any other this does nothing. A process that a handler
    forked inherits ours: there the signal does what it did before, so that such a child can be ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    home = os.getpid()
    previous: dict[int, Any] = {}

    def on_signal(signum: int, _frame: object) -> None:
        if os.getpid() == home:
            tell()
        else:
            signal.signal(signum, _usable(previous.get(signum)))
            os.kill(os.getpid(), signum)

    for caught_one in (signal.SIGINT, signal.SIGTERM):
        previous[caught_one] = signal.signal(caught_one, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, _usable(handler))


def _usable(handler: Any) -> Any:
    """None stands for a handler that was not set from Python and cannot be set again."""
    return signal.SIG_DFL if handler is None else handler
