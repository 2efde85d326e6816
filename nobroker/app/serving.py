"""Working an application's jobs off, in this process: `App.run`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from nobroker.app.alone import Gate
from nobroker.app.context import JobContext
from nobroker.app.definition import Definition
from nobroker.app.envelope import name_in
from nobroker.app.queue_lists import lanes_of
from nobroker.app.scheduler import Scheduler
from nobroker.app.watching import Usher
from nobroker.job import Job
from nobroker.worker import Worker, WorkerStats

if TYPE_CHECKING:
    from nobroker.app.application import App

_log = logging.getLogger("nobroker.app")

Handler = Callable[[Job], Any]


class Service:
    """One worker over an application's queues, with what stands beside it.

    Args:
        app: whose jobs.
        queues: only these: names, patterns such as ``beta*`` and ``*``; None for all.
        order: of the queues, see `Lanes`: "ordered", "priority" or "fair".
        threads: jobs at a time.
        batch: jobs that a thread takes at once; more than 1 is for tiny jobs.
        scheduler: also enqueue the application's recurring tasks when their time comes.
        once: work off what is due, and what becomes due by that: callbacks of batches, chains; then end.
        max_jobs: end after so many.
        handle_signals: stop at SIGINT and SIGTERM; see `Worker`.
        poll_interval: see `Worker`.
        wrap: makes the handler of the worker out of the application's own.
        on_ready: called when all stands ready, just before the first job is taken.
        on_rest: called when the last job has ended; the service is seen until it returns.
        supervisor: the id, in the registry, of the process that looks after this one; None: none does.
        heartbeat_interval: seconds between two signs of life in the registry.
        metrics_dir: where recordings go that SIGUSR2 begins; None: beside the queue's files.

    Attributes:
        recycling: why this process should be replaced by a new one; None: it need not.
        quiet: whether it only takes no more jobs, and is not about to end.
    """

    recycling: str | None = None
    quiet: bool = False

    def __init__(
        self,
        app: App,
        *,
        queues: Iterable[str] | None = None,
        order: str = "ordered",
        threads: int = 1,
        batch: int = 1,
        scheduler: bool = True,
        once: bool = False,
        max_jobs: int | None = None,
        handle_signals: bool = True,
        poll_interval: float = 0.25,
        wrap: Callable[[Handler], Handler] | None = None,
        on_ready: Callable[[], None] | None = None,
        on_rest: Callable[[], None] | None = None,
        supervisor: str | None = None,
        heartbeat_interval: float = 5.0,
        metrics_dir: str | None = None,
    ) -> None:
        self.app = app
        self.usher = Usher(app.queue)
        self.scheduler = Scheduler(app) if scheduler else None
        self._once = once
        self._max_jobs = max_jobs
        self._on_ready = on_ready
        self._on_rest = on_rest
        self._supervisor = supervisor
        self._heartbeat_interval = heartbeat_interval
        self._metrics_dir = metrics_dir
        self._gate = Gate(self._is_stopping)
        self.meter = app._meter()
        self._measured = self.meter.measured(partial(app.runner, stopping=self._is_stopping))
        self._total = WorkerStats()
        self._added: WorkerStats | None = None  # counts that are in the total
        self.worker = Worker(
            app.queue,
            self._perform if wrap is None else wrap(self._perform),
            concurrency=threads,
            batch=batch,
            idle_timeout=0.0 if once else None,
            max_jobs=max_jobs,
            lanes=lanes_of(queues if app._forced is None else [app._forced], order),
            handle_signals=handle_signals,
            poll_interval=poll_interval,
        )

    def run(self) -> WorkerStats:
        """Work until a signal, `stop`, or what was asked for ends it.

        Raises:
            as `Worker.run`.
        """
        app = self.app
        app._tell("on_start")
        app._tell("on_worker_start")
        app._services.append(self)
        try:
            app._ushers.append(self.usher)
            with self._seen(), self.usher.beside(), self._scheduling():
                if self._on_ready is not None:
                    self._on_ready()
                try:
                    return self._work()
                finally:
                    if self._on_rest is not None:
                        self._on_rest()
        finally:
            app._ushers.remove(self.usher)
            app._services.remove(self)
            app._timeouts.rest()
            app._tell("on_worker_stop")
            app._tell("on_stop")
            app._tell("on_shutdown")

    @property
    def state(self) -> str:
        """What it does: "running", "quiet" or "stopping"."""
        if self.quiet:
            return "quiet"
        return "stopping" if self._is_stopping() else "running"

    def counts(self) -> tuple[int, int]:
        """How many runs of jobs have ended so far, and how many of them failed."""
        stats = self.worker.stats
        both = [self._total] if stats is self._added else [self._total, stats]
        failed = sum(one.failed for one in both)
        return failed + sum(one.succeeded for one in both), failed

    def toggle_job_metrics(self) -> None:
        """Begin to record job metrics in a file of its own, or end that."""
        queue = self.app.queue
        self.meter.toggle(self._metrics_dir or str(queue.dir), queue.name)

    def follow_job_metrics(self, wanted: Callable[[], bool]) -> None:
        """Record job metrics in a file of its own, or do not, as somebody else wants it by now."""
        queue = self.app.queue
        self.meter.follow(wanted, self._metrics_dir or str(queue.dir), queue.name)

    def _seen(self) -> AbstractContextManager[None]:
        """Be seen by others: see `nobroker.running.presence`."""
        from nobroker.running.presence import Presence

        return Presence(self, supervisor=self._supervisor, interval=self._heartbeat_interval).beside()

    def _scheduling(self) -> AbstractContextManager[None]:
        if self.scheduler is None:
            return nullcontext()
        if self._once:
            self.scheduler.look()
            return nullcontext()
        return self.scheduler.beside()

    def _perform(self, job: Job) -> Any:
        """One run, when it may begin: a job that is exclusive runs alone in this process.

        Where no job is, none is counted; so one that is defined while others run may meet those.
        """
        if not self.app._exclusive:
            return self._measured(job)
        name = name_in(job.payload)
        definition = None if name is None else self.app.jobs.get(name)
        alone = definition is not None and definition.options.exclusive is True
        return self._gate.passed(alone, lambda: self._measured(job))

    def _is_stopping(self) -> bool:
        return self.worker.stopping

    def _work(self) -> WorkerStats:
        total = self._total = WorkerStats()
        while True:
            moved = self.usher.moved
            stats = self.worker.run()
            self._added = stats
            for field in fields(WorkerStats):
                setattr(total, field.name, getattr(total, field.name) + getattr(stats, field.name))
            if not self._once or self.worker.ended_by != "idle":
                return total
            self.usher.look()
            if self.usher.moved == moved:
                return total
            if self._max_jobs is not None:
                self.worker.max_jobs = self._max_jobs - total.leased

    def recycle(self, reason: str) -> None:
        """Take no more jobs, let the others end, and have `run` return, with `recycling` set."""
        _log.warning("event=worker.recycling reason=%s", reason)
        self.recycling = self.recycling or reason
        self.worker.stop()

    def give_up(self, definition: Definition, context: JobContext, held: Job, error: Exception) -> None:
        """Record what becomes of a job whose code does not end, if it is this worker's, without waiting for
        its thread; then this process should be replaced.
        """
        if not self.worker.is_running(held):
            return
        self.recycle(f"{error}, and could not be stopped")
        runner = self.app.runner
        try:
            result = runner.give_up(definition, context, error)
        except BaseException as verdict:
            self.worker.abandon(held, error=verdict)
        else:
            self.worker.abandon(held, result=runner.pack_result(context, result))

    def stop(self) -> None:
        """End in good order; from any thread."""
        self.worker.stop()

    def let_go(self) -> None:
        """End at once; what has not ended is given back. From any thread."""
        self.worker.let_go()
