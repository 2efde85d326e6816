"""One run of a job: from the lease to the verdict.

The walk: payload -> call -> definition -> context -> hooks and middleware -> code -> result, or error ->
judging.py -> verdict. What is returned is the job's result.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any, Final, Protocol

from nobroker.app import chains, envelope
from nobroker.app.context import Arguments, JobContext, _current, _never
from nobroker.app.definition import Definition
from nobroker.app.errors import JobTimeoutError, UnknownSerializerError
from nobroker.app.handle import discarded
from nobroker.app.hooks import PERFORM, manager_of, name_of
from nobroker.app.inheritance import hand_on
from nobroker.app.judging import Discarded, Judge
from nobroker.app.serializers import Serializers
from nobroker.errors import SerializationError
from nobroker.job import Job
from nobroker.queue import Queue
from nobroker.worker import Dead

_log = logging.getLogger("nobroker.app")

Middleware = Callable[[JobContext], Any]


class Timeouts(Protocol):
    """Stops jobs that run too long."""

    def call(self, function: Callable[[JobContext], Any], context: JobContext, seconds: float) -> Any: ...
    def expected(self, context: JobContext, seconds: float) -> AbstractContextManager[None]: ...


class Runner:
    """Runs jobs of one application; called with each leased `Job`, as a `Worker` does, and with what tells
    whether that worker is stopping.

    Args:
        definitions: the application's jobs by name.
        judge: says what becomes of jobs that raise, or are not known.
        ended: told of each job that has run here, before that is written down.
    """

    def __init__(
        self,
        definitions: dict[str, Definition],
        serializers: Serializers,
        queue: Callable[[], Queue],
        middleware: Sequence[Middleware],
        timeouts: Timeouts,
        judge: Judge,
        *,
        ended: Callable[[JobContext], None],
    ) -> None:
        self._definitions = definitions
        self._serializers = serializers
        self._queue = queue
        self._middleware = middleware
        self._timeouts = timeouts
        self._judge = judge
        self._ended = ended

    def __call__(self, job: Job, stopping: Callable[[], bool] = _never) -> Any:
        definition, context = self._known(job)
        context._stopping = stopping
        try:
            held = self._restore(context, job)
        except UnknownSerializerError as error:
            raise self._judge.unknown(job, str(error)) from error
        except Exception as error:  # maybe an object that it was given is gone; its rules may say what then
            return self.pack_result(context, self.give_up(definition, context, error))
        reason = None if held is None else chains.why_lost(self._queue(), job, held)
        if reason is not None:
            context._state = {**context._state, chains.TOLD: True}
            context._stale = True
            return self.pack_result(context, self.give_up(definition, context, Dead(reason)))
        return self.run(definition, context)

    def died(self, job: Job, error: Exception) -> Any:
        """What becomes of a leased job whose process has died under it, as if its code had raised this. The
        result, packed.

        Raises:
            Verdict: as `run`.
        """
        definition, context = self._known(job)
        try:
            self._restore(context, job)
        except Exception as broken:  # its rules are asked without them; hooks see none
            _log.warning("event=job.arguments_lost class=%s id=%s error=%r", definition.name, job.id, broken)
        return self.pack_result(context, self.give_up(definition, context, error))

    def _known(self, job: Job) -> tuple[Definition, JobContext]:
        name = envelope.name_in(job.payload)
        definition = None if name is None else self._definitions.get(name)
        if definition is None:
            what = f"job {name!r}" if name is not None else "a payload that no application made"
            raise self._judge.unknown(job, f"{what} is not registered here")
        context = definition.begin(_NOTHING, job.lane, job.priority, job.enqueued_at)
        context._hold(job, self._queue())
        return definition, context

    def _restore(self, context: JobContext, job: Job) -> str | None:
        """The call as it was made; returns the record that holds it, if one does."""
        call = envelope.opened(self._serializers, job.payload)
        context.metadata = self._serializers.unpack(job.metadata)
        context.arguments = Arguments(call.args, call.kwargs)
        context._batch_id, context._ended, context._then = call.batch, call.ended, call.then
        return call.held

    def run(self, definition: Definition, context: JobContext, *, stored: bool = True) -> Any:
        """Run it: the result, packed where it is `stored`; or a coroutine that gives it, of an async job.

        Raises:
            Verdict: what becomes of the job, decided by its code or its rules.
        """
        hand_on()
        if definition.is_async:
            return self._run_async(definition, context, stored)
        token = _current.set(context)
        try:
            try:
                self._judge.check_attempts(definition, context)
                found = self._performed(definition, context)
            except BaseException as error:
                found = self._judge.after_error(definition, context, error)
            return self.pack_result(context, found) if stored else found
        finally:
            self._ended(context)
            _current.reset(token)

    def give_up(self, definition: Definition, context: JobContext, error: Exception) -> Any:
        """What becomes of a job whose code did not run, or does not end. As `run`; not packed."""
        token = _current.set(context)
        try:
            return self._judge.judged(definition, context, error)
        finally:
            self._ended(context)
            _current.reset(token)

    # -- plain functions

    def _performed(self, definition: Definition, context: JobContext) -> Any:
        hooks, timeout = definition.hooks, definition.options.timeout
        if timeout is None and not self._middleware and not hooks.any(PERFORM):
            return _called(definition, context)
        found = None  # where a context manager swallows an error
        with ExitStack() as stack:
            for manager in self._managers(definition, context):
                if not isinstance(manager, AbstractContextManager):
                    raise TypeError(f"an async context manager around {definition.name}, which is not async")
                stack.enter_context(manager)
            hooks.call("before_perform", context)
            if timeout is None:
                found = _called(definition, context)
            else:
                found = self._timeouts.call(lambda its: _called(definition, its), context, timeout)
            hooks.tell("after_perform", context)
        return found

    # -- async functions

    async def _run_async(self, definition: Definition, context: JobContext, stored: bool) -> Any:
        token = _current.set(context)
        try:
            try:
                self._judge.check_attempts(definition, context)
                found = await self._performed_async(definition, context)
            except BaseException as error:
                found = self._judge.after_error(definition, context, error)
            return self.pack_result(context, found) if stored else found
        finally:
            self._ended(context)
            _current.reset(token)

    async def _performed_async(self, definition: Definition, context: JobContext) -> Any:
        hooks = definition.hooks
        found = None
        async with AsyncExitStack() as stack:
            for manager in self._managers(definition, context):
                if isinstance(manager, AbstractContextManager):
                    stack.enter_context(manager)
                else:
                    await stack.enter_async_context(manager)
            await hooks.call_async("before_perform", context)
            found = await self._within(definition, context)
            context._finish()
            await hooks.tell_async("after_perform", context)
        return found

    async def _within(self, definition: Definition, context: JobContext) -> Any:
        """Await the code, for as long as it may take."""
        seconds = definition.options.timeout
        if seconds is None:
            return await definition.call(context)
        with self._timeouts.expected(context, seconds):
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    return await definition.call(context)
            except TimeoutError as error:
                if limit.expired():
                    raise JobTimeoutError(f"{definition.name} ran longer than {seconds:g} s") from error
                raise  # its own: it waited for something else

    def _managers(self, definition: Definition, context: JobContext) -> Iterator[Any]:
        for hook in self._middleware:
            yield manager_of(hook, context, f"the middleware {name_of(hook)}")
        yield from definition.hooks.around("around_perform", context)

    def pack_result(self, context: JobContext, value: Any) -> Any:
        """A result as it is stored."""
        if value is None:
            return None
        if isinstance(value, Discarded):
            return discarded(value.reason)
        try:
            return self._serializers.pack(value, f"the result of {context.job_class}")
        except SerializationError as error:
            # The work is done, and would be done again if this counted as a failure.
            _log.warning(
                "event=job.result_dropped class=%s id=%s error=%s", context.job_class, context.id, error
            )
            return None


_NOTHING: Final = Arguments((), {})


def _called(definition: Definition, context: JobContext) -> Any:
    found = definition.call(context)
    if found is not None and (inspect.isawaitable(found) or isinstance(found, (Generator, AsyncGenerator))):
        if inspect.iscoroutine(found):
            found.close()  # it would complain itself that nobody awaited it
        raise TypeError(
            f"{definition.name} returned {type(found).__name__}, which nothing would await or run; "
            "make the job async def, or have it return what there is in the end"
        )
    return found
