"""Working an application's jobs off, in this process: `App.run`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
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

    Attributes:
        recycling: why this process should be replaced by a new one; None: it need not.
    """

    recycling: str | None = None

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
        poll_interval: float = 0.1,
    ) -> None:
        self.app = app
        self.usher = Usher(app.queue)
        self.scheduler = Scheduler(app) if scheduler else None
        self._once = once
        self._max_jobs = max_jobs
        self._gate = Gate(self._is_stopping)
        self.worker = Worker(
            app.queue,
            self._perform,
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
            with self.usher.beside(), self._scheduling():
                return self._work()
        finally:
            app._ushers.remove(self.usher)
            app._services.remove(self)
            app._timeouts.rest()
            app._tell("on_worker_stop")
            app._tell("on_stop")
            app._tell("on_shutdown")

    def _scheduling(self) -> AbstractContextManager[None]:
        if self.scheduler is None:
            return nullcontext()
        if self._once:
            self.scheduler.look()
            return nullcontext()
        return self.scheduler.beside()

    def _perform(self, job: Job) -> Any:
        """One run, when it may begin: a job that is exclusive runs alone in this process."""
        name = name_in(job.payload)
        definition = None if name is None else self.app.jobs.get(name)
        alone = definition is not None and definition.options.exclusive is True
        return self._gate.passed(alone, lambda: self.app.runner(job, self._is_stopping))

    def _is_stopping(self) -> bool:
        return self.worker.stopping

    def _work(self) -> WorkerStats:
        total = WorkerStats()
        while True:
            moved = self.usher.moved
            stats = self.worker.run()
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
