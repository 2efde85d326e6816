"""What becomes of a job that raised, or that nobody here knows: a result after all, or a verdict."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from nobroker.app.context import RELEASES, RETRIES, UNKNOWN_SINCE, JobContext
from nobroker.app.definition import Definition
from nobroker.app.errors import JobInterrupted, JobTimeoutError, UnknownJobError
from nobroker.app.rules import match
from nobroker.job import Job
from nobroker.queue import Queue
from nobroker.worker import Dead, Failed, RetryLater, Verdict

UNKNOWN_DELAY_S: Final = 15.0
"""A job that this process does not know is looked at again after so long, by whoever takes it then."""
_REASON_CHARS: Final = 2000
_BY_CODE: Final = "Failed"
"""Among the counters of retries: runs whose code itself said that there is to be another."""

_log = logging.getLogger("nobroker.app")


class Discarded:
    """What a job that was discarded has for a result."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Judge:
    """Applies the rules of jobs to their errors.

    Args:
        queue: for its ``max_attempts``.
        now: the wall clock, in seconds.
        grace: seconds for which a job of an unknown name may wait for somebody who knows it.
        on_error: told of each job that failed.
    """

    def __init__(
        self,
        queue: Callable[[], Queue],
        *,
        now: Callable[[], float],
        grace: float,
        on_error: Callable[[JobContext, BaseException], None],
    ) -> None:
        self._queue = queue
        self._now = now
        self._grace = grace
        self._on_error = on_error

    def check_attempts(self, definition: Definition, context: JobContext) -> None:
        """Runs that ended with their worker count towards ``max_attempts``, however many retries there were.

        Raises:
            Failed: there were too many of them.
        """
        if context._held is None:
            return
        counted, limit = context.attempts - context._retried(), self._limit(definition)
        if counted > limit:
            raise Failed(
                f"{definition.name} was begun {counted} times beside its retries, and {limit} are allowed: "
                "its worker ended under it, or was killed by it",
                dead=True,
            )

    def after_error(self, definition: Definition, context: JobContext, error: BaseException) -> Any:
        """The result, if a rule says that the job is done after all.

        Raises:
            Verdict, BaseException: it is not.
        """
        if context._abandoned:
            raise RetryLater(0) from error  # says nothing: its verdict is written, and its lease is gone
        if isinstance(error, JobTimeoutError) and error.job not in (None, context):
            raise error  # the time of the job that this one is a part of is up
        error = _without_interruptions(error)
        if isinstance(error, JobInterrupted):
            _log.info("event=job.interrupted class=%s id=%s why=%s", definition.name, context.id, error)
            context._settle(interrupted=True)
            raise self._verdict_of_code(definition, context, RetryLater(0)) from error
        if isinstance(error, asyncio.CancelledError) and not _cancelled_from_outside():
            failure = RuntimeError(f"{definition.name}: something that it waited for was cancelled")
            failure.__cause__, error = error, failure
        if isinstance(error, Exception):
            return self.judged(definition, context, error)
        raise error  # an exit or an interrupt is the worker's business

    def judged(self, definition: Definition, context: JobContext, error: Exception) -> Any:
        """As `after_error`, by the rules alone."""
        context._settle(interrupted=False)
        if isinstance(error, Verdict):
            raise self._verdict_of_code(definition, context, error)
        options = definition.options
        if (index := match(options.retry, error)) is not None:
            return self._retry(definition, context, error, index)
        if (index := match(options.discard, error)) is not None:
            handler = options.discard[index].handler
            if handler is not None:
                with self._failing(definition, context):
                    handler(context, error)
            _log.info("event=job.discarded class=%s id=%s", definition.name, context.id)
            definition.hooks.tell("after_discard", context, error)
            return Discarded(_reason(error))
        if (index := match(options.rescue, error)) is not None:
            with self._failing(definition, context):
                return options.rescue[index].handler(context, error)
        raise self._failure(definition, context, error)

    def _verdict_of_code(
        self, definition: Definition, context: JobContext, verdict: Verdict
    ) -> BaseException:
        """What `RetryLater`, `Dead` and `Failed` inside the code mean for what is kept of the job."""
        if verdict.state is not None:
            problem = f"{type(verdict).__name__}(state=...) is for handlers of a Worker; in {definition.name}"
            return self._failure(definition, context, TypeError(f"{problem} nothing could read that state"))
        if isinstance(verdict, RetryLater):
            verdict.state = {**context._state, RELEASES: context._state.get(RELEASES, 0) + 1}
            return verdict
        if isinstance(verdict, Dead):
            self._dead(definition, context, _told(verdict, verdict.reason))
            verdict.state = _to_write(context)
            return verdict
        if isinstance(verdict, Failed):
            error = _told(verdict, verdict.error)
            if verdict.dead:
                self._dead(definition, context, error)
                verdict.state = _to_write(context)
                return verdict
            if verdict.dead is None:
                return self._failure(definition, context, error, verdict.error, verdict.delay)
            self._on_error(context, error)
            verdict.state = _counted(context, _BY_CODE)
            return verdict
        return self._failure(definition, context, verdict)

    def _retry(self, definition: Definition, context: JobContext, error: Exception, index: int) -> Any:
        rule = definition.options.retry[index]
        state = _counted(context, rule.key)
        count = state[RETRIES][rule.key]
        if count < rule.attempts:
            with self._failing(definition, context):
                delay = rule.delay(count)
            self._on_error(context, error)
            raise Failed(error, delay=delay, dead=False, state=state) from error
        if rule.handler is not None:
            with self._failing(definition, context, dead=True):
                return rule.handler(context, error)
        raise self._dead(definition, context, error)

    def _failure(
        self,
        definition: Definition,
        context: JobContext,
        error: BaseException,
        told: BaseException | str | None = None,
        delay: float | None = None,
    ) -> BaseException:
        """What to raise for an error that no rule deals with.

        Args:
            told: what is kept as the job's error, where that is not the error itself.
            delay: seconds; None: as the queue's backoff says.
        """
        runs = context.attempts - context._retried()
        if context._held is not None and runs >= self._limit(definition):
            return self._dead(definition, context, error, told)
        self._on_error(context, error)
        return Failed(told or error, delay=delay, dead=False, state=context._state or None)

    def _dead(
        self,
        definition: Definition,
        context: JobContext,
        error: BaseException,
        told: BaseException | str | None = None,
    ) -> BaseException:
        self._on_error(context, error)
        if context._held is not None:  # in perform_now there is nothing to be dead
            definition.hooks.tell("after_dead", context, error)
        return Failed(told or error, dead=True, state=_to_write(context))

    @contextmanager
    def _failing(self, definition: Definition, context: JobContext, *, dead: bool = False) -> Iterator[None]:
        """A handler that raises: that is the job's failure."""
        try:
            yield
        except Verdict as verdict:
            raise self._verdict_of_code(definition, context, verdict) from verdict.__cause__
        except Exception as error:
            end = self._dead if dead else self._failure
            raise end(definition, context, error) from error

    def _limit(self, definition: Definition) -> int:
        return definition.options.max_attempts or self._queue().max_attempts

    def unknown(self, job: Job, why: str) -> Verdict:
        """What becomes of a job that this process cannot run, and another maybe can."""
        state = {} if job.job_state is None else job.job_state
        ours = type(state) is dict
        now = self._now()
        since = state.get(UNKNOWN_SINCE, now) if ours else job.enqueued_at
        if now - since >= self._grace:
            if ours:  # when it is requeued, it waits anew
                state = {key: value for key, value in state.items() if key != UNKNOWN_SINCE}
            return Dead(
                f"{UnknownJobError.__name__}: {why}; it waited {now - since:.0f} s for a worker that can run "
                "it. Import its module in the worker, and requeue the job",
                state=state,
            )
        delay = min(UNKNOWN_DELAY_S, max(self._grace - (now - since), 0.1))
        _log.warning("event=job.unknown id=%s queue=%s retry_in=%g why=%s", job.id, job.lane, delay, why)
        return RetryLater(delay, state={**state, UNKNOWN_SINCE: since} if ours else None)


def _cancelled_from_outside() -> bool:
    """Whether the task that runs here is being cancelled, and not just something that it waited for."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def _counted(context: JobContext, key: str) -> dict[str, Any]:
    """The job's state with one more retry of a kind."""
    counts = context._state.get(RETRIES, {})
    return {**context._state, RETRIES: {**counts, key: counts.get(key, 0) + 1}}


def _to_write(context: JobContext) -> dict[str, Any] | None:
    """The job's state, where what is kept with it is older than that."""
    return context._state if context._stale else None


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


def _told(verdict: Verdict, said: str | BaseException) -> BaseException:
    """What hooks get for an error: what the code said, where that is one."""
    return said if isinstance(said, BaseException) else verdict


def _reason(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as failure:
        text = f"<its text raised {type(failure).__name__}>"
    return f"{type(error).__name__}: {text[:_REASON_CHARS]}"
