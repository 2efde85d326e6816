"""Stopping jobs that run too long.

In a thread, an exception is raised inside the job's code (CPython only). Code that does not end from that is
given up some seconds later: the application records the job as timed out, and lets this process be replaced.
Async jobs are cancelled by their event loop; those that do not end from that are given up in the same way.

The hand-shake: Python raises an exception that another thread asks for at some later moment. So that it is
never raised where the job's code is over,
- only the watchdog asks, once for each watch, and only if it gets the watch's ticket. A job that ends takes
  the ticket itself, and then nobody asks.
- A job that ends and finds the ticket gone waits, inside the guard, until the watchdog has withdrawn what was
  not raised yet.
- The job's thread takes no lock in the guard: an exception may come at any place, and would leave it locked.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from enum import Enum, auto
from queue import Empty
from typing import Any, Final

from nobroker.app.context import JobContext
from nobroker.app.errors import JobTimeoutError
from nobroker.mailbox import Mailbox

GRACE_S = 5.0
"""Code that was told to stop, and has not stopped after so long, is given up."""
_LOOK_S: Final = 1.0
_IDLE_LOOKS: Final = 10
_log = logging.getLogger("nobroker.app")
_CAN_STOP: Final = sys.implementation.name == "cpython"


class Watch:
    """One run under a time limit.

    Attributes:
        due: when the watchdog has something to do about it; monotonic seconds.
        thread: where the code runs; None for async code, which its loop stops.
        outer: the watch that was on in this thread before: a job may run another one in its place.
        told: whether the code has been told to stop.
        over: whether the code has ended.
    """

    def __init__(
        self, context: JobContext, seconds: float, thread: int | None, on_stuck: Callable[[Watch], None]
    ) -> None:
        self.context = context
        self.seconds = seconds
        self.thread = thread
        self.on_stuck = on_stuck
        self.outer: Watch | None = None
        self.told = thread is None
        self.over = False
        self.answer: Mailbox[None] = Mailbox()
        self.due = time.monotonic() + seconds + (GRACE_S if self.told else 0.0)
        self._ticket = [None]
        self._fate = [None]

    def take_ticket(self) -> bool:
        """Whether it is the caller, and no other thread, that may decide about an exception."""
        return _taken(self._ticket)

    def decide_fate(self) -> bool:
        """Whether it is the caller, and no other thread, that says what became of the job."""
        return _taken(self._fate)

    def is_over(self) -> bool:
        return self.over or (self.outer is not None and self.outer.is_over())

    def is_stopping(self) -> bool:
        """Whether this code, or what it is a part of, was told to stop by an exception."""
        return (self.told and self.thread is not None) or (
            self.outer is not None and self.outer.is_stopping()
        )

    def error(self) -> JobTimeoutError:
        return self.kind()()

    def kind(self) -> type[JobTimeoutError]:
        """A class, since that is all that can be raised in another thread. It knows whose time was up."""
        message = f"{self.context.job_class} ran longer than {self.seconds:g} s"

        def init(error: JobTimeoutError, *args: Any) -> None:
            super(JobTimeoutError, error).__init__(*(args or (message,)))

        names = {"__init__": init, "__module__": JobTimeoutError.__module__, "job": self.context}
        return type(JobTimeoutError.__name__, (JobTimeoutError,), names)


class _Note(Enum):
    """What rings the watchdog's bell, beside a `Watch` that wants to be sure."""

    LOOK = auto()
    REST = auto()


class Watchdog:
    """One thread, started when it is needed, that ends when nothing is watched for a while.

    Nothing is left of a job that ends in time: what is watched is looked through when the first of it is due,
    and there is one watch for each job that runs now.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()  # guards `_thread`
        self.forget()

    def forget(self) -> None:
        """In a forked child: there are none of those threads here."""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._watches: dict[int, Watch] = {}  # changed by single operations only, which need no lock
        self._bell: Mailbox[Watch | _Note] = Mailbox()
        self._asleep_until = math.inf
        self._raised: dict[int, Watch] = {}  # by thread; the watchdog's own
        self._here = threading.local()

    def add(self, watch: Watch) -> None:
        if watch.thread is not None:
            watch.outer = getattr(self._here, "innermost", None)
            self._here.innermost = watch
        self._watches[id(watch)] = watch
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._start()
        if watch.due < self._asleep_until:
            self._bell.put(_Note.LOOK)

    def quieten(self, watch: Watch) -> None:
        """Return when no exception can come of this watch any more; called where its code ran."""
        if not watch.take_ticket() and id(watch) in self._watches:  # else: a child, forked by the job
            self._bell.put(watch)
            watch.answer.get()

    def drop(self, watch: Watch) -> None:
        watch.over = True
        self._watches.pop(id(watch), None)
        if watch.thread is not None:
            self._here.innermost = watch.outer

    def rest(self) -> None:
        """End the thread now if nothing is watched."""
        self._bell.put(_Note.REST)

    # -- the watchdog's own thread

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._main, name="nobroker-watchdog", daemon=True)
                Context().run(self._thread.start)  # it belongs to no job, though a job may need it first

    def _main(self) -> None:
        idle = 0
        while True:
            self._asleep_until = math.inf  # whoever comes while we look rings the bell
            due = self._look()
            idle = idle + 1 if due == math.inf else 0
            until = min(due, time.monotonic() + _LOOK_S)
            self._asleep_until = until  # nobody has to ring for what is due later
            try:
                asked: Watch | _Note = self._bell.get(timeout=max(until - time.monotonic(), 0.0))
            except Empty:
                asked = _Note.REST if idle >= _IDLE_LOOKS else _Note.LOOK
            if isinstance(asked, Watch):
                self._withdraw(asked)
            elif asked is _Note.REST and self._leave():
                return

    def _leave(self) -> bool:
        with self._starting:
            self._thread = None  # first, so that whoever comes now waits for the lock, or is seen here
            if self._watches:
                self._thread = threading.current_thread()
            return self._thread is None

    def _look(self) -> float:
        """Do what is due; when the next thing is."""
        now, first = time.monotonic(), math.inf
        for watch in list(self._watches.values()):
            if watch.is_over():
                self._watches.pop(id(watch), None)
                continue
            if watch.due <= now:
                try:
                    self._act(watch, now)
                except Exception:  # no more threads: this one must go on, since jobs wait for its answers
                    _log.exception("event=watchdog.failed class=%s", watch.context.job_class)
                    watch.due = now + _LOOK_S
            first = min(first, watch.due)
        return first

    def _act(self, watch: Watch, now: float) -> None:
        if watch.told:
            watch.due = math.inf
            # People's own handlers come to this, and may take long.
            tell = threading.Thread(target=watch.on_stuck, args=(watch,), name="nobroker-stuck", daemon=True)
            Context().run(tell.start)
            return
        if _CAN_STOP and not watch.is_stopping():
            self._stop(watch)
        watch.told = True
        watch.due = now + GRACE_S

    def _stop(self, watch: Watch) -> None:
        if watch.thread is not None and watch.take_ticket():
            self._raised[watch.thread] = watch
            _raise_in(watch.thread, watch.kind())

    def _withdraw(self, watch: Watch) -> None:
        if watch.thread is not None and self._raised.get(watch.thread) is watch:
            del self._raised[watch.thread]
            _take_back(watch.thread)
        watch.answer.put(None)


_watchdog: Final = Watchdog()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watchdog.forget)


class ThreadTimeouts:
    """Time limits for the jobs of one application.

    Args:
        on_stuck: told, in a thread of its own, of code that does not end.
    """

    def __init__(self, on_stuck: Callable[[Watch], None]) -> None:
        self._on_stuck = on_stuck

    def call(self, function: Callable[[JobContext], Any], context: JobContext, seconds: float) -> Any:
        """Call a function in this thread, for so long.

        Raises:
            JobTimeoutError: it took too long; also when it caught that, and has been given up since.
        """
        watch = Watch(context, seconds, threading.get_ident(), self._on_stuck)
        try:
            _watchdog.add(watch)
            try:
                return function(context)
            finally:
                _watchdog.quieten(watch)
        finally:
            _close(watch)

    @contextmanager
    def expected(self, context: JobContext, seconds: float) -> Iterator[None]:
        """Within: async code that its loop stops after so long.

        Raises:
            JobTimeoutError: it did not end then, and has been given up since.
        """
        watch = Watch(context, seconds, None, self._on_stuck)
        _watchdog.add(watch)
        try:
            yield
        finally:
            _close(watch)

    def rest(self) -> None:
        """Nothing more is run for now: let the watchdog go."""
        _watchdog.rest()


def _close(watch: Watch) -> None:
    _watchdog.drop(watch)
    if not watch.decide_fate():
        watch.context._abandoned = True
        raise watch.error()


def _taken(token: list[None]) -> bool:
    try:
        token.pop()  # one step: of two threads, one gets it
    except IndexError:
        return False
    return True


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Have an exception raised in a thread, soon."""
    _set_async_exception(thread, kind)


def _take_back(thread: int) -> None:
    """Withdraw an exception that has not been raised in a thread yet."""
    _set_async_exception(thread, None)
    if sys.version_info < (3, 13):
        # These go on looking for what was withdrawn, in all threads, until an exception is raised in this way
        # somewhere: slower, and for ever at the first step of a function that is traced.
        try:
            _set_async_exception(threading.get_ident(), _TakenBack)
            while True:
                pass
        except _TakenBack:
            pass


class _TakenBack(BaseException):
    """Raised and caught in one place."""


def _set_async_exception(thread: int, kind: type[BaseException] | None) -> None:
    import ctypes  # here: it is heavy, and few jobs run too long

    ask = ctypes.pythonapi.PyThreadState_SetAsyncExc
    ask(ctypes.c_ulong(thread), ctypes.py_object() if kind is None else ctypes.py_object(kind))
