"""Prepared calls onto the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import repeat
from operator import attrgetter, is_
from typing import Any, Final, NamedTuple

from nobroker.app import envelope
from nobroker.app.collecting import NOT_YET, Collector, Member, collector_of
from nobroker.app.context import Arguments, JobContext
from nobroker.app.definition import Definition, PreparedJob
from nobroker.app.errors import AbortEnqueue
from nobroker.app.handle import Handles, JobHandle, handle_of
from nobroker.app.hooks import ENQUEUE
from nobroker.app.options import UNSAID
from nobroker.app.serializers import Serializers
from nobroker.job import Job, NewJob
from nobroker.queue import Queue

_DEFINITION: Final = attrgetter("definition")
_OPTIONS: Final = attrgetter("options")


class Terms(NamedTuple):
    """What the queue is told of a job, beside its payload.

    Attributes:
        limits: what is said of its limits, as arguments of `Queue.enqueue`; None: nothing.
    """

    lane: str
    priority: int
    delay: float
    run_at: Any
    max_attempts: int
    expires_in: float | None
    metadata: Any
    limits: Mapping[str, Any] | None = None

    def arguments(self) -> dict[str, Any]:
        """As arguments of `Queue.enqueue` and its like."""
        said = self._asdict()
        del said["limits"]
        return said if self.limits is None else {**said, **self.limits}


class Enqueuer:
    """Enqueues calls of one application; inside a block of a batch, collects them.

    Attributes:
        enqueued: to be called after everything that has enqueued jobs, in that thread: in tests they may run
            there.
    """

    def __init__(
        self,
        owner: object,
        queue: Callable[[], Queue],
        serializers: Serializers,
        now: Callable[[], float],
        enqueued: Callable[[], None],
    ) -> None:
        self.enqueued = enqueued
        self._owner = owner
        self._queue = queue
        self._serializers = serializers
        self._usual: dict[Definition, Terms] = {}
        self._now = now

    def collector(self) -> Collector | None:
        """Where calls go for now; None: to the queue."""
        return collector_of(self._owner)

    def handle(self, job_id: str | None, **more: Any) -> JobHandle[Any]:
        return JobHandle(self._queue, self._serializers, job_id, **more)

    def one(self, prepared: PreparedJob) -> JobHandle[Any]:
        """Enqueue a call, with its hooks."""
        handle = self._one(prepared)
        self.enqueued()
        return handle

    def _one(self, prepared: PreparedJob) -> JobHandle[Any]:
        hooks = prepared.definition.hooks
        if not hooks.any(ENQUEUE):
            return self._enqueued(prepared)
        terms = self._terms(prepared)
        context = self._context(prepared, terms.lane, terms.priority)
        handle = None
        try:
            hooks.call("before_enqueue", context)
            with ExitStack() as stack:
                for manager in hooks.around("around_enqueue", context):
                    if isinstance(manager, AbstractContextManager):
                        stack.enter_context(manager)
                handle = self._enqueued(prepared)
        except AbortEnqueue:
            if handle is None:
                return self.handle(None, created=False)
            raise
        if handle is None:
            return self.handle(None, created=False, why_none="a hook around_enqueue swallowed an error")
        done = handle

        def tell() -> None:
            if not done._kept_out:
                context.id = done.id
                hooks.tell("after_enqueue", context)

        collector = self.collector()
        if collector is None:
            tell()
        else:
            collector.when_enqueued(tell)
        return handle

    def all(self, prepared: Sequence[PreparedJob]) -> Sequence[JobHandle[Any]]:
        """Enqueue calls with one write, all or none, without their hooks."""
        collector = self.collector()
        if collector is not None:
            return self._collect(collector, prepared)
        handles = Handles(self._queue, self._serializers, self.jobs(prepared))
        self.enqueued()
        return handles

    def jobs(self, prepared: Sequence[PreparedJob]) -> Sequence[Job]:
        """As `all`; the queue's jobs."""
        payloads = envelope.seal_all(self._serializers, [one.call for one in prepared])
        if not payloads:
            return []
        first = self._terms(prepared[0])
        if self._alike(prepared):
            return self._queue().enqueue_many(payloads, **first.arguments())
        terms = list(map(self._terms, prepared))
        ids = [one.options.job_id for one in prepared]
        if not any(ids) and terms.count(first) == len(terms):
            return self._queue().enqueue_many(payloads, **first.arguments())
        if any(ids):
            for one in prepared:
                _refuse_debounce(one)
        return self._queue().enqueue_all(
            [
                NewJob(payload, job_id=job_id, **term.arguments())
                for payload, term, job_id in zip(payloads, terms, ids, strict=True)
            ]
        )

    def _alike(self, prepared: Sequence[PreparedJob]) -> bool:
        """Whether it is sure, after a quick look, that the queue is told the same of all of them."""
        definition = prepared[0].definition
        return (
            definition in self._usual
            and all(map(is_, map(_DEFINITION, prepared), repeat(definition)))
            and all(map(is_, map(_OPTIONS, prepared), repeat(UNSAID)))
        )

    def check(self, prepared: PreparedJob) -> None:
        """Raises:
        SerializationError: an argument can't be stored.
        """
        envelope.seal(self._serializers, prepared.call)

    def new_job(self, prepared: PreparedJob, marks: Mapping[str, Any]) -> NewJob:
        """A call as the queue takes it. For the marks see `envelope.seal`."""
        _refuse_debounce(prepared)
        payload = envelope.seal(self._serializers, prepared.call, marks)
        lane, priority, delay, run_at, max_attempts, expires_in, metadata, limits = self._terms(prepared)
        return NewJob(
            payload,
            lane=lane,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            job_id=prepared.options.job_id,
            expires_in=expires_in,
            metadata=metadata,
            **(limits or {}),
        )

    def _collect(self, collector: Collector, prepared: Sequence[PreparedJob]) -> list[JobHandle[Any]]:
        marks = {"batch": collector.batch_id}
        members = [Member(self.new_job(one, marks), self.handle(None, why_none=NOT_YET)) for one in prepared]
        collector.add(members)
        return [member.handle for member in members]

    def _enqueued(self, prepared: PreparedJob) -> JobHandle[Any]:
        collector = self.collector()
        if collector is not None:
            return self._collect(collector, [prepared])[0]
        payload = envelope.seal(self._serializers, prepared.call)
        terms, said = self._terms(prepared), prepared.options
        if terms.limits is not None or said.debounce is not None:
            more = {"debounce": said.debounce, "debounce_max": said.debounce_max, **terms.arguments()}
            job = self._queue().enqueue(payload, job_id=said.job_id, **more)
            return handle_of(self._queue, self._serializers, job)
        lane, priority, delay, run_at, max_attempts, expires_in, metadata, _ = terms
        job = self._queue().enqueue(
            payload,
            lane=lane,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            job_id=said.job_id,
            expires_in=expires_in,
            metadata=metadata,
        )
        return self.handle(job.id, created=job.created)

    def _context(self, prepared: PreparedJob, lane: str, priority: int) -> JobContext:
        """The job, as code of its own sees it before it is on the queue."""
        definition, call, said = prepared
        context = definition.begin(Arguments(call.args, call.kwargs), lane, priority, self._now())
        context.metadata = said.metadata
        return context

    def _terms(self, prepared: PreparedJob) -> Terms:
        definition, call, said = prepared
        if said is UNSAID and (known := self._usual.get(definition)) is not None:
            return known
        options, limiting = definition.options, definition.limiting
        lane = definition.queue_of(said.queue, call.args, call.kwargs)
        priority = options.priority if said.priority is None else said.priority
        limits = None
        if limiting is not None:
            limits = limiting.of(call.args, call.kwargs, lambda: self._context(prepared, lane, priority))
        terms = Terms(
            lane,
            priority,
            said.wait or 0.0,
            said.wait_until,
            self._leases(definition),
            options.expires_in if said.expires_in is None else said.expires_in,
            self._serializers.pack(said.metadata, "metadata"),
            limits or None,
        )
        varies = callable(options.queue) or (limiting is not None and limiting.varies)
        if said is UNSAID and not varies:
            self._usual[definition] = terms
        return terms

    def _leases(self, definition: Definition) -> int:
        """Leases that the queue grants: runs that `Retry` deals with come on top of ``max_attempts``, so that
        a worker that is killed in a late one does not make the job dead.
        """
        options = definition.options
        limit = options.max_attempts or self._queue().max_attempts
        return limit + sum(rule.attempts for rule in options.retry) if options.retry else limit


def _refuse_debounce(prepared: PreparedJob) -> None:
    """Raises:
    ValueError: it is to be debounced, which goes with one call at a time only.
    """
    if prepared.options.debounce is not None:
        raise ValueError(
            f"{prepared.definition.name} is set to debounce, which goes with perform_later alone: not in "
            "batches, chains and perform_all_later, where all is enqueued with one write; "
            "perform_all_later(hooks=True) enqueues one by one"
        )
