"""One run of a job: from the lease to the verdict.

The walk: payload -> call -> definition -> context -> hooks and middleware -> code -> result, or error ->
rules -> verdict. What is returned is the job's result. What is raised and is no `Verdict` is a failure that
the queue's own backoff deals with.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from typing import Any, Final, Protocol

from nobroker.app import chains, envelope
from nobroker.app.context import RELEASES, RETRIES, Arguments, JobContext, _current, _never
from nobroker.app.definition import Definition
from nobroker.app.errors import JobInterrupted, JobTimeoutError, UnknownJobError
from nobroker.app.handle import discarded
from nobroker.app.hooks import PERFORM, manager_of
from nobroker.app.rules import match
from nobroker.app.serializers import Serializers
from nobroker.errors import SerializationError
from nobroker.job import Job
from nobroker.queue import Queue
from nobroker.worker import Dead, Failed, RetryLater, Verdict

UNKNOWN_DELAY_S: Final = 15.0
"""A job that this process does not know is looked at again after so long, by whoever takes it then."""
_REASON_CHARS: Final = 2000

_log = logging.getLogger("nobroker.app")

Middleware = Callable[[JobContext], Any]


class Timeouts(Protocol):
    """Stops jobs in threads that run too long."""

    def guard(self, context: JobContext, seconds: float) -> AbstractContextManager[None]: ...


class Runner:
    """Runs jobs of one application; called with each leased `Job`, as a `Worker` does, and with what tells
    whether that worker is stopping.

    Args:
        definitions: the application's jobs by name.
        now: the wall clock, in seconds.
        grace: seconds for which a job of an unknown name may wait for somebody who knows it.
        on_error: told of each job that failed.
        ended: told of each job that has run here, before that is written down.
    """

    def __init__(
        self,
        definitions: dict[str, Definition],
        serializers: Serializers,
        queue: Callable[[], Queue],
        middleware: Sequence[Middleware],
        timeouts: Timeouts,
        *,
        now: Callable[[], float],
        grace: float,
        on_error: Callable[[JobContext, BaseException], None],
        ended: Callable[[JobContext], None],
    ) -> None:
        self._definitions = definitions
        self._serializers = serializers
        self._queue = queue
        self._middleware = middleware
        self._timeouts = timeouts
        self._now = now
        self._grace = grace
        self._on_error = on_error
        self._ended = ended

    def __call__(self, job: Job, stopping: Callable[[], bool] = _never) -> Any:
        name = envelope.name_in(job.payload)
        definition = None if name is None else self._definitions.get(name)
        if definition is None:
            raise self._unknown(job, name)
        call = envelope.opened(self._serializers, job.payload)
        context = definition.begin(Arguments(call.args, call.kwargs), job.lane, job, self._queue())
        context._batch_id, context._ended, context._then = call.batch, call.ended, call.then
        context._stopping = stopping
        if call.held is not None:
            reason = chains.why_lost(self._queue(), job, call.held)
            if reason is not None:
                dead = Dead(reason, state={**context._state, chains.TOLD: True})
                raise self._verdict_of_code(definition, context, dead)
        return self.run(definition, context)

    def run(self, definition: Definition, context: JobContext) -> Any:
        """Run it: the result, packed; or a coroutine that gives it, where the job is async.

        Raises:
            Verdict: what becomes of the job, decided by its code or its rules.
            Exception: anything else is a failure as the queue knows it.
        """
        if definition.is_async:
            return self._run_async(definition, context)
        token = _current.set(context)
        try:
            try:
                found = self._performed(definition, context)
                if inspect.isawaitable(found):
                    raise _not_awaited(definition, found)
            except BaseException as error:
                found = self._after_error(definition, context, error)
            return None if found is None else self._pack_result(context, found)
        finally:
            self._ended(context)
            _current.reset(token)

    # -- plain functions

    def _performed(self, definition: Definition, context: JobContext) -> Any:
        hooks, timeout = definition.hooks, definition.options.timeout
        if timeout is None and not self._middleware and not hooks.any(PERFORM):
            return definition.call(context)
        found = None  # where a context manager swallows an error
        with ExitStack() as stack:
            for manager in self._managers(definition, context):
                if not isinstance(manager, AbstractContextManager):
                    raise TypeError(f"an async context manager around {definition.name}, which is not async")
                stack.enter_context(manager)
            hooks.call("before_perform", context)
            if timeout is None:
                found = definition.call(context)
            else:
                with self._timeouts.guard(context, timeout):
                    found = definition.call(context)
            hooks.tell("after_perform", context)
        return found

    # -- async functions

    async def _run_async(self, definition: Definition, context: JobContext) -> Any:
        token = _current.set(context)
        try:
            try:
                found = await self._performed_async(definition, context)
            except BaseException as error:
                found = self._after_error(definition, context, error)
            return None if found is None else self._pack_result(context, found)
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
            found = await _within(definition.call(context), definition.options.timeout, definition)
            context._finish()
            await hooks.tell_async("after_perform", context)
        return found

    def _managers(self, definition: Definition, context: JobContext) -> Iterator[Any]:
        for hook in self._middleware:
            yield manager_of(hook, context, f"the middleware {getattr(hook, '__qualname__', hook)}")
        yield from definition.hooks.around("around_perform", context)

    # -- what becomes of it

    def _after_error(self, definition: Definition, context: JobContext, error: BaseException) -> Any:
        """The result, if a rule says that the job is done after all.

        Raises:
            Verdict, BaseException: it is not.
        """
        error = _without_interruptions(error)
        context._settle(interrupted=isinstance(error, JobInterrupted))
        if isinstance(error, JobInterrupted):
            _log.info("event=job.interrupted class=%s id=%s why=%s", definition.name, context.id, error)
            raise self._verdict_of_code(definition, context, RetryLater(0)) from error
        if isinstance(error, Verdict):
            raise self._verdict_of_code(definition, context, error)
        if not isinstance(error, Exception):
            raise error  # an exit or an interrupt is the worker's business
        options = definition.options
        index = match(options.retry, error)
        if index is not None:
            return self._retry(definition, context, error, index)
        index = match(options.discard, error)
        if index is not None:
            rule = options.discard[index]
            if rule.handler is not None:
                with _failing(self, definition, context):
                    rule.handler(context, error)
            _log.info("event=job.discarded class=%s id=%s", definition.name, context.id)
            definition.hooks.tell("after_discard", context, error)
            return _Packed(discarded(_reason(error)))
        index = match(options.rescue, error)
        if index is not None:
            with _failing(self, definition, context):
                return options.rescue[index].handler(context, error)
        raise self._failure(definition, context, error)

    def _verdict_of_code(self, definition: Definition, context: JobContext, verdict: Verdict) -> Verdict:
        """What `RetryLater` and `Dead` inside the code mean for what is kept of the job."""
        if isinstance(verdict, RetryLater):
            verdict.state = {**context._state, RELEASES: context._state.get(RELEASES, 0) + 1}
        elif isinstance(verdict, Dead):
            if context._stale:
                verdict.state = context._state
            self._on_error(context, verdict)
            definition.hooks.tell("after_dead", context, verdict)
        return verdict

    def _retry(self, definition: Definition, context: JobContext, error: Exception, index: int) -> Any:
        rule = definition.options.retry[index]
        counts = {**context._state.get(RETRIES, {})}
        counts[index] = counts.get(index, 0) + 1
        if counts[index] < rule.attempts:
            self._on_error(context, error)
            with _failing(self, definition, context):
                delay = rule.delay(counts[index])
            raise Failed(error, delay=delay, dead=False, state={**context._state, RETRIES: counts}) from error
        if rule.handler is not None:
            with _failing(self, definition, context, dead=True):
                return rule.handler(context, error)
        raise self._dead(definition, context, error)

    def _failure(self, definition: Definition, context: JobContext, error: BaseException) -> BaseException:
        """What to raise for an error that no rule deals with."""
        limit = definition.options.max_attempts or self._queue().max_attempts
        retried = sum(context._state.get(RETRIES, {}).values())
        if context.attempts - retried >= limit:
            return self._dead(definition, context, error)
        self._on_error(context, error)
        if context._stale:
            return Failed(error, dead=False, state=context._state)
        return Failed(error, dead=False) if definition.options.retry else error

    def _dead(self, definition: Definition, context: JobContext, error: BaseException) -> BaseException:
        self._on_error(context, error)
        definition.hooks.tell("after_dead", context, error)
        return Failed(error, dead=True, state=context._state if context._stale else None)

    def _unknown(self, job: Job, name: str | None) -> Verdict:
        what = f"job {name!r}" if name is not None else "a payload that no application made"
        waited = self._now() - job.enqueued_at
        if waited >= self._grace:
            return Dead(
                f"{UnknownJobError.__name__}: {what} is not registered here; it waited {waited:.0f} s for a "
                "worker that knows it. Import its module in the worker, or requeue the job when one does"
            )
        _log.warning(
            "event=job.unknown class=%s id=%s queue=%s retry_in=%g", name, job.id, job.lane, UNKNOWN_DELAY_S
        )
        return RetryLater(UNKNOWN_DELAY_S)

    def unpack_result(self, packed: Any) -> Any:
        """What the job returned."""
        return self._serializers.unpack(packed)

    def _pack_result(self, context: JobContext, value: Any) -> Any:
        if isinstance(value, _Packed):
            return value.value
        try:
            return self._serializers.pack(value, f"the result of {context.job_class}")
        except SerializationError as error:
            # The work is done, and would be done again if this counted as a failure.
            _log.warning(
                "event=job.result_dropped class=%s id=%s error=%s", context.job_class, context.id, error
            )
            return None


class _Packed:
    """A result that is as it is stored."""

    def __init__(self, value: Any) -> None:
        self.value = value


@contextmanager
def _failing(
    runner: Runner, definition: Definition, context: JobContext, *, dead: bool = False
) -> Iterator[None]:
    """A handler that raises: that is the job's failure."""
    try:
        yield
    except Verdict:
        raise
    except Exception as error:
        end = runner._dead if dead else runner._failure
        failure = end(definition, context, error)
        raise failure from (None if failure is error else error)


async def _within(work: Awaitable[Any], seconds: float | None, definition: Definition) -> Any:
    """Await it, for so long."""
    if seconds is None:
        return await work
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if limit.expired():
            raise JobTimeoutError(f"{definition.name} ran longer than {seconds:g} s") from error
        raise


def _not_awaited(definition: Definition, found: Any) -> TypeError:
    if inspect.iscoroutine(found):
        found.close()
    return TypeError(
        f"{definition.name} is a plain function and returned {type(found).__name__}, which nothing would "
        "await; make it async def"
    )


def _without_interruptions(error: BaseException) -> BaseException:
    """Out of a group of errors, as a task group raises: the interruption, when there is nothing else in it;
    what else is in it, when there is.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    interrupted, rest = error.split(JobInterrupted)
    if interrupted is None:
        return error
    return rest if rest is not None else JobInterrupted("a task of it was interrupted")


def _reason(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as failure:
        text = f"<its text raised {type(failure).__name__}>"
    return f"{type(error).__name__}: {text[:_REASON_CHARS]}"
