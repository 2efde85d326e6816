"""`App`: what people import; puts the parts together."""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from nobroker.app import batches, discovery, inline, people
from nobroker.app.base import BaseJob, define
from nobroker.app.context import Arguments, JobContext
from nobroker.app.definition import Definition, JobDecorator, JobFunction, PreparedJob, the_same
from nobroker.app.enqueueing import Enqueuer
from nobroker.app.errors import DuplicateJobError
from nobroker.app.events import Events
from nobroker.app.handle import JobHandle
from nobroker.app.insight import Insight
from nobroker.app.judging import Judge
from nobroker.app.options import job_options, known
from nobroker.app.queue_limits import QueueLimits
from nobroker.app.queue_lists import forced_queue
from nobroker.app.recurring import Recurring
from nobroker.app.rules import seconds_of
from nobroker.app.runner import Middleware, Runner
from nobroker.app.serializers import Serializers
from nobroker.app.timeouts import ThreadTimeouts, Watch
from nobroker.app.watching import Usher
from nobroker.app.working import Working
from nobroker.clock import SystemClock
from nobroker.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from nobroker.app.serving import Service
    from nobroker.app.testing import AppTesting

P = ParamSpec("P")
R = TypeVar("R")
J = TypeVar("J", bound=type[BaseJob])
M = TypeVar("M", bound=Middleware)

_QUEUE_OPTIONS = tuple(inspect.signature(Queue).parameters)[2:]
_log = logging.getLogger("nobroker.app")


class App(Events, Recurring, QueueLimits, Insight, Working):
    """Jobs of one application, and the queue that they travel through.

    The queue is opened when it is first needed, so that importing a module with an `App` touches no disk.

    Args:
        path: the directory; as for `Queue`.
        name: the queue's name in that directory.
        unknown_job_grace: seconds for which a job whose class no worker knows waits for one that does.
        options: of the `Queue`: ``fsync``, ``visibility_timeout``, ``max_attempts``, ``backoff``, ...

    Raises:
        TypeError: an option that `Queue` does not have.
        ConfigError: the environment forces everything into a queue that can't be one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str = "default",
        *,
        unknown_job_grace: float = 3600.0,
        **options: Any,
    ) -> None:
        super().__init__()
        known("App", options, _QUEUE_OPTIONS)
        self.path = path
        self.name = name
        self.jobs: dict[str, Definition] = {}
        self._options = options
        self._clock = options.get("clock") or SystemClock()
        self._opening = threading.Lock()
        self._opened: Queue | None = None
        self._testing: AppTesting | None = None
        self._exclusive = False  # whether some job is to run alone in its process
        self._serializers = Serializers()
        self._middleware: list[Middleware] = []
        self._timeouts = ThreadTimeouts(self._give_up)
        self._forced = forced_queue()
        self._services: list[Service] = []
        self._enqueuer = Enqueuer(self, lambda: self.queue, self._serializers, self._now, self._enqueued)
        self._ushers: list[Usher] = []
        judge = Judge(
            lambda: self.queue,
            now=self._now,
            grace=seconds_of("unknown_job_grace", unknown_job_grace),
            on_error=self._job_error,
        )
        self.runner = Runner(
            self.jobs,
            self._serializers,
            lambda: self.queue,
            self._middleware,
            self._timeouts,
            judge,
            ended=self._ended,
        )
        discovery.made.add(self)

    def __repr__(self) -> str:
        return f"<App {os.fspath(self.path)!r}, {len(self.jobs)} jobs>"

    @property
    def queue(self) -> Queue:
        """The queue below; opened when first asked for, and again after `close`. In `testing`, another."""
        if self._testing is not None:
            return self._testing.queue
        found = self._opened
        if found is None:
            with self._opening:
                found = self._opened
                if found is None:
                    found = self._opened = self._open()
        return found

    def close(self) -> None:
        """Let go of the queue's files. Closing twice is harmless; in `testing`, nothing is closed."""
        if self._testing is not None:
            return
        with self._opening:
            found, self._opened = self._opened, None
        if found is not None:
            found.close()

    # -- defining

    @overload
    def job(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R, R]: ...
    @overload
    def job(self, function: None = None, /, **options: Any) -> JobDecorator: ...
    def job(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a function a job: ``@app.job`` or ``@app.job(queue="emails", timeout=30)``.

        Args:
            options: those of `JobOptions`.

        Raises:
            TypeError: an option that there is not, or of a wrong type; no function.
            DuplicateJobError: another job of the application has this name.
        """
        if function is not None:
            return self._define_function(function, options)
        return JobDecorator(self._define_function, options)

    def register(self, cls: J) -> J:
        """Make a class below `BaseJob` a job of this application.

        Raises:
            TypeError: as `job`; or an attribute looks like a misspelt option.
            DuplicateJobError: another job of the application has this name.
        """
        definition = define(self, cls)
        self._add(definition)
        cls.definition = definition
        return cls

    def _define_function(
        self, function: Callable[..., Any], options: dict[str, Any]
    ) -> JobFunction[Any, Any, Any]:
        if not inspect.isfunction(function):
            raise TypeError(f"@app.job is for functions, not {function!r}; for classes: @app.register")
        definition = Definition(
            self,
            function,
            function,
            job_options(function.__qualname__, options),
            context=JobContext,
        )
        made: JobFunction[Any, Any, Any] = JobFunction(definition, function)
        self._add(definition)
        return made

    def _add(self, definition: Definition) -> None:
        other = self.jobs.get(definition.name)
        if other is not None and not the_same(other, definition):
            raise DuplicateJobError(
                f"two jobs are called {definition.name!r}: one in {other.place}, one in {definition.place}; "
                "give one of them another name with name= (job_name in a class)"
            )
        self.jobs[definition.name] = definition
        self._exclusive = self._exclusive or definition.options.exclusive is True

    def discover_jobs(self, *packages: str, recursive: bool = True, on_error: str = "raise") -> list[str]:
        """Import packages, so that the jobs in them are registered. See `discovery.discover`."""
        return discovery.discover(packages, recursive=recursive, on_error=on_error)

    def middleware(self, function: M) -> M:
        """Wrap every run: a generator function of the job with one ``yield`` (a decorator).

        Raises:
            TypeError: it can't be called, or is async: plain ones wrap async jobs, too.
        """
        if not callable(function):
            raise TypeError(f"middleware must be a function, not {type(function).__name__}")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("middleware must be a plain generator function; it wraps async jobs, too")
        self._middleware.append(function)
        return function

    def serializer(
        self,
        kind: type,
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Let values of a type be arguments and results. See `people.serializer_for`.

        Args:
            kind: exactly this type. Dataclasses, enums, Pydantic and Django models need nothing more.
            encode: value -> something that the queue stores, or another registered type.
            decode: and back.
            name: in payloads; the type's module and name when left out.

        Raises:
            TypeError: it is not known how such values travel.
            ValueError: the type or the name is taken.
        """
        self._serializers.add(kind, people.serializer_for(kind, encode, decode, name))

    # -- working

    def testing(self, mode: str = "hold") -> AppTesting:
        """For tests: a context manager, within which the application has a queue of its own in a directory
        that is thrown away, under a clock that only the test moves. See `AppTesting`.

        Args:
            mode: ``"hold"``: jobs wait for `AppTesting.drain`. ``"inline"``: each runs where it is enqueued.

        Raises:
            ValueError: there is no such mode.
        """
        from nobroker.app.testing import AppTesting

        return AppTesting(self, mode)

    # -- enqueueing

    def perform_all_later(
        self, jobs: Iterable[PreparedJob], *, hooks: bool = False
    ) -> Sequence[JobHandle[Any]]:
        """Enqueue prepared calls with one write: all or none.

        Args:
            jobs: made by ``build``.
            hooks: enqueue them one by one instead, with their enqueue hooks.

        Raises:
            TypeError: something else is among them.
        """
        prepared = list(jobs)
        for one in prepared:
            if type(one) is not PreparedJob:
                raise TypeError(f"perform_all_later takes what build() gives, not {one!r:.100}")
        if hooks:
            return [self._enqueue(one) for one in prepared]
        return self._enqueuer.all(prepared)

    def handle(self, job_id: str) -> JobHandle[Any]:
        """The handle of a job that was enqueued, maybe by another process."""
        if type(job_id) is not str:
            raise TypeError(f"job_id must be a str, not {type(job_id).__name__}")
        return self._enqueuer.handle(job_id)

    def batch(
        self,
        description: str = "",
        *,
        on_success: PreparedJob | None = None,
        on_failure: PreparedJob | None = None,
        on_finish: PreparedJob | None = None,
        metadata: Any = None,
    ) -> batches.Block:
        """``with app.batch("import") as batch:`` the jobs enqueued inside belong together. They are enqueued
        with one write at the block's end; an exception that leaves the block enqueues nothing.

        Args:
            description: for people.
            on_success: a job, made by ``build``, that is enqueued once when all members are done.
            on_failure: when all have ended and some are dead.
            on_finish: when all have ended.
            metadata: any value that could be an argument, kept with the batch.

        Raises:
            TypeError, ValueError: a callback that ``build`` did not make, or of another `App`.
            SerializationError: a value can't be stored.
        """
        callbacks = {"on_success": on_success, "on_failure": on_failure, "on_finish": on_finish}
        return batches.begin(self, description, callbacks, metadata)

    def find_batch(self, batch_id: str) -> batches.Batch:
        """The batch with this id, from any process.

        Raises:
            JobNotFoundError: there is none (any more).
        """
        if type(batch_id) is not str:
            raise TypeError(f"batch_id must be a str, not {type(batch_id).__name__}")
        batch = self._batch(batch_id, None)
        batch.counts()
        return batch

    def _batch(self, batch_id: str, ended: Any) -> batches.Batch:
        return batches.Batch(self, batch_id, ended)

    def _ended(self, context: JobContext) -> None:
        for usher in self._ushers:
            usher.ended(context)

    def _look_soon(self, record_id: str) -> None:
        for usher in self._ushers:
            usher.look_soon(record_id)

    def _enqueue(self, prepared: PreparedJob) -> JobHandle[Any]:
        return self._enqueuer.one(prepared)

    def _enqueued(self) -> None:
        if self._testing is not None:
            self._testing._enqueued()

    def _perform_now(self, prepared: PreparedJob) -> Any:
        definition, call, said = prepared
        queue = definition.queue_of(said.queue, call.args, call.kwargs)
        priority = definition.options.priority if said.priority is None else said.priority
        context = definition.begin(Arguments(call.args, call.kwargs), queue, priority, self._now())
        context.attempts = context.executions = 1
        context.metadata = said.metadata
        return inline.perform(self.runner, definition, context)

    def _now(self) -> float:
        return self._clock.wall_us() / 1e6

    def _give_up(self, watch: Watch) -> None:
        """Code of a job did not end when it was told to: see `timeouts`."""
        context = watch.context
        held = context._held
        _log.error(
            "event=job.stuck class=%s id=%s timeout=%g: told to stop, it goes on",
            context.job_class,
            context.id,
            watch.seconds,
        )
        services = list(self._services)
        if held is not None and services and watch.decide_fate():
            context._abandoned = True
            for service in services:
                service.give_up(self.jobs[context.job_class], context, held, watch.error())

    def _job_error(self, context: JobContext, error: BaseException) -> None:
        self._tell("on_job_error", context, error)
