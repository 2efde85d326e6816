"""The thread that minds a child process: its signals, its supervisor, its memory, its time to end.

It is a thread of its own, so that it works whatever the main thread is at: opening a queue, running a hook
that hangs. What a signal means here:

- TERM, INT: take no more, end what was begun. After ``shutdown_timeout`` what has not ended is let go. To a
  child, any number of them is one: a group-wide signal and the supervisor's own are two already. To a process
  that runs alone, a second one says not to wait.
- QUIT: let go at once.
- USR1, TSTP: take no more.
- USR2: begin to record what jobs take, or end that.
- The supervisor is gone (the other end of a pipe is closed): as TERM. If the process is still there some
  seconds after it has let go, it is ended the hard way, since nobody else will.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from nobroker.running import signals
from nobroker.running.plans import FAILED

EXIT_GRACE_S: Final = 5.0
"""Who has let go of all has so long to come to its end."""
SECOND_S: Final = 0.1
"""A second signal that comes sooner is the same one again, sent to the process and to its group."""

_log = logging.getLogger("nobroker.running")


class Kept(Protocol):
    """What is minded."""

    def stop(self) -> None: ...
    def let_go(self) -> None: ...
    def quiet(self) -> None: ...
    def metrics(self) -> None: ...


class Keeper:
    """Minds a process from `start` to `close`.

    Args:
        kept: what is told.
        caught: the signals.
        life: a pipe that ends with the supervisor; None: there is none, this process runs alone.
        shutdown_timeout: seconds from the first word to stop until all is let go.
    """

    def __init__(
        self, kept: Kept, caught: signals.Signals, *, life: int | None, shutdown_timeout: float
    ) -> None:
        self._kept = kept
        self._caught = caught
        self._life = life
        self._shutdown_timeout = shutdown_timeout
        self._stopped_at = math.inf
        self._let_go_at: float | None = None
        self._exit_at: float | None = None
        self._orphan = False
        self._closed = False
        self._chores: list[tuple[float, float, Callable[[], None]]] = []  # when, every, what
        self._adding: list[tuple[float, Callable[[], None]]] = []
        self._thread = threading.Thread(target=self._main, name="nobroker-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def every(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something now and then, for as long as this process is minded. From any thread."""
        self._adding.append((seconds, do))
        self._caught.ring()

    def close(self) -> None:
        self._closed = True
        self._caught.ring()
        self._thread.join()

    def _main(self) -> None:
        poll = select.poll()
        poll.register(self._caught.fd, select.POLLIN)
        if self._life is not None:
            poll.register(self._life, select.POLLIN | select.POLLHUP)
        while not self._closed:
            wait = self._next()
            for fd, _ in poll.poll(None if wait is None else max(wait, 0.0) * 1000):
                if fd == self._life:
                    poll.unregister(fd)
                    self._orphan = True
                    _log.warning("event=process.orphaned pid=%d: its supervisor is gone", os.getpid())
                    self._stop()
            for number in self._caught.taken():
                self._obey(number)
            self._look(time.monotonic())

    def _next(self) -> float | None:
        """Seconds until there is something to do."""
        while self._adding:
            seconds, do = self._adding.pop()
            self._chores.append((time.monotonic() + seconds, seconds, do))
        due = [at for at in (self._let_go_at, self._exit_at) if at is not None]
        due += [at for at, _, _ in self._chores]
        first = min(due, default=math.inf)
        return None if first == math.inf else first - time.monotonic()

    def _obey(self, number: int) -> None:
        if number in signals.STOP:
            again = self._life is None and time.monotonic() - self._stopped_at >= SECOND_S
            self._stop()
            if again and self._exit_at is None:
                self._let_go_at = time.monotonic()
        elif number in signals.AT_ONCE:
            self._stop()
            if self._exit_at is None:
                self._let_go_at = time.monotonic()
        elif number in signals.QUIET:
            self._kept.quiet()
        elif number in signals.METRICS:
            self._kept.metrics()

    def _stop(self) -> None:
        if self._let_go_at is None and self._exit_at is None:
            self._stopped_at = time.monotonic()
            self._let_go_at = self._stopped_at + self._shutdown_timeout
            self._kept.stop()

    def _look(self, now: float) -> None:
        if self._let_go_at is not None and now >= self._let_go_at and self._exit_at is None:
            self._exit_at, self._let_go_at = now + EXIT_GRACE_S, None
            self._kept.let_go()
        if self._exit_at is not None and now >= self._exit_at:
            self._exit_at = math.inf
            if self._orphan or self._life is None:
                _log.error("event=process.stuck pid=%d: it does not come to its end", os.getpid())
                os._exit(FAILED)
        for place, (at, every, do) in enumerate(self._chores):
            if now >= at:
                self._chores[place] = (now + every, every, do)
                self._do(do)

    def _do(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception:  # its job is to mind the process, whatever a chore of its own comes to
            _log.exception("event=process.chore_failed")
