"""The only place that calls user code. Whatever it raises comes back as data."""

from __future__ import annotations

import inspect
import os
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from nobroker.job import Job
from nobroker.values import storable_text
from nobroker.worker import facts
from nobroker.worker.outcome import Outcome
from nobroker.worker.run import Handler

if TYPE_CHECKING:
    from nobroker.worker.event_loop import LoopThread

MAX_ERROR_BYTES = 65536
_MAX_MESSAGE = 8192
_MAX_FRAMES = 50


class Caller:
    """Calls the handler; if that gives an awaitable, awaits it on the one event loop of the run.

    Args:
        handler: the user's.
        on_death: told when the event loop itself is ended by an error, which a task of the handler's can do.
    """

    def __init__(self, handler: Handler, on_death: Callable[[BaseException], None]) -> None:
        self._handler = handler
        self._on_death = on_death
        self._home = os.getpid()
        self._lock = threading.Lock()  # guards the start of the loop
        self._loop: LoopThread | None = None

    def call(self, job: Job) -> Outcome:
        # No local may hold the outcome: an error's frames refer to this one, which would close a circle.
        try:
            value = self._handler(job)
            self._leave_if_forked(job, 0)
            if value is not None and inspect.isawaitable(value):
                return self._loop_thread().run(self._awaited(job, value))
            return Outcome(value)
        except BaseException as error:  # data, whatever it is: the slot records it and decides
            self._leave_if_forked(job, 1)
            return Outcome(error=_without_us(error))

    def close(self, *, wait: bool) -> None:
        """End the event loop, if there is one; what still runs on it is cancelled."""
        with self._lock:
            loop = self._loop
        if loop is not None:
            loop.close(wait=wait)

    async def _awaited(self, job: Job, value: Awaitable[Any]) -> Outcome:
        # An exit or interrupt that left the task would end the loop under the other handlers.
        try:
            result = await value
            self._leave_if_forked(job, 0)
            return Outcome(result)
        except BaseException as error:
            self._leave_if_forked(job, 1)
            return Outcome(error=_without_us(error))

    def _loop_thread(self) -> LoopThread:
        from nobroker.worker.event_loop import (
            LoopThread,  # here: asyncio is heavy, and most handlers need none
        )

        with self._lock:
            if self._loop is None:
                self._loop = LoopThread(self._on_death)
            return self._loop

    def _leave_if_forked(self, job: Job, code: int) -> None:
        """A child that a handler forked and that comes back from it must not record the job, too."""
        if os.getpid() != self._home:
            facts.forked_child_returned(job)
            os._exit(code)


def error_text(error: BaseException) -> str:
    """``Type: message``, then the end of the traceback: storable, at most 64 KiB, whatever it does."""
    message = _message(error)
    head = storable_text(f"{type(error).__name__}: {message[:_MAX_MESSAGE]}", MAX_ERROR_BYTES)
    room = MAX_ERROR_BYTES - len(head.encode()) - 1
    tail = storable_text(_trace(error, brief=len(message) > _MAX_MESSAGE), room) if room > 0 else ""
    return f"{head}\n{tail}".rstrip("\n")


def _without_us(error: BaseException) -> BaseException:
    """Drop our frame from the traceback: of no interest, and it refers to the error in a circle."""
    trace = error.__traceback__
    return error if trace is None else error.with_traceback(trace.tb_next)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:  # a broken __str__ must not keep its job from failing properly
        return f"<its text raised {type(failure).__name__}>"


def _trace(error: BaseException, *, brief: bool) -> str:
    try:
        if brief:
            return "".join(traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES))
        return "".join(traceback.format_exception(error, limit=-_MAX_FRAMES))
    except Exception as failure:  # formatting calls into the exception's own class
        return f"(its traceback could not be shown: {type(failure).__name__})"
