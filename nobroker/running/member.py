"""What runs in a worker process, from its first line to its exit code: a supervisor's child, or alone."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from nobroker.app.scheduler import Scheduler
from nobroker.app.serving import Service
from nobroker.errors import NobrokerError
from nobroker.job import Job
from nobroker.running import board as boards
from nobroker.running import inside, settling, signals, titles
from nobroker.running.board import Board
from nobroker.running.figures import resident_bytes
from nobroker.running.keeper import Keeper
from nobroker.running.plans import DONE, FAILED, RECYCLED, REFUSED, MemoryWatch, no_room
from nobroker.running.registry import Registration
from nobroker.running.tasks import MEASURE, SCHEDULE, SETTLE, WORK, Task

if TYPE_CHECKING:
    from nobroker.app import App
    from nobroker.running.config import WorkerConfig
    from nobroker.worker import WorkerStats

_log = logging.getLogger("nobroker.running")


class Member:
    """A process that does as it is told. `enter` first, a child with signals blocked; then `run`, or `alone`.

    Args:
        task: what it is there for.
        board: where it says how it is.
        life: the pipe that ends with the supervisor; None: there is none.
    """

    def __init__(self, task: Task, board: Board, life: int | None) -> None:
        self._task = task
        self._board = board
        self._stopping = False
        self._quiet = False
        self._forced = False
        self._refused = False
        self._ended = threading.Event()
        self._service: Service | None = None
        self._registration: Registration | None = None
        self._life = life
        left_alone = {signals.CHILD, *(signals.RESTART if life is None else ())}
        self._caught = signals.Signals(n for n in signals.ALL if n not in left_alone)
        self._keeper = Keeper(self, self._caught, life=life, shutdown_timeout=task.shutdown_timeout)

    def enter(self) -> None:
        """From here on this is a member: signals mean what they mean to one, and it starts no others."""
        if self._life is not None:
            inside.enter(self._task.supervisor)
        self._caught.catch()
        self._keeper.start()

    def run(self, app: App) -> int:
        """Do what it is there for, and return the exit code of this process."""
        titles.set_title(f"nobroker: {self._task.name}")  # a fork has its supervisor's
        roles = {WORK: self._work, SCHEDULE: self._schedule, MEASURE: self._measure, SETTLE: self._settle}
        try:
            code = roles[self._task.role](app)
        except SystemExit as error:
            _log.error("event=process.failed pid=%d: a job raised SystemExit(%r)", os.getpid(), error.code)
            code = FAILED
        except BaseException:  # whatever a job, a hook or the queue raised: the supervisor decides what next
            _log.exception("event=process.failed pid=%d role=%s", os.getpid(), self._task.role)
            code = FAILED
        finally:
            self._end(app)
        return FAILED if self._forced else code

    def alone(self, app: App) -> tuple[int, WorkerStats]:
        """Work in this process, which has no supervisor; its exit code, and what was done.

        Raises:
            as `Service.run`.
        """
        try:
            code = self._work(app)
        finally:
            self._keeper.close()
            self._caught.restore()
        return FAILED if self._forced else code, self._board.stats

    def _end(self, app: App) -> None:
        try:
            app.close()
        except NobrokerError:
            _log.exception("event=process.close_failed pid=%d", os.getpid())
        self._keeper.close()

    # -- told by the keeper, in its thread

    def stop(self) -> None:
        self._stopping = True
        if (service := self._service) is not None:
            service.quiet = False
            service.stop()
        self._ended.set()

    def let_go(self) -> None:
        self._forced = True
        self._board.say_forced()
        if (service := self._service) is not None:
            service.let_go()

    def quiet(self) -> None:
        if self._task.role == SCHEDULE and not self._task.quiet_then_exit:
            return  # it takes no jobs; and no tick is to be missed
        self._quiet = True
        self._board.say(boards.QUIET)
        if (service := self._service) is not None:
            service.quiet = not (self._stopping or self._task.quiet_then_exit)
            service.stop()
        if self._task.quiet_then_exit:
            self._ended.set()

    def metrics(self) -> None:
        if (service := self._service) is None:
            return  # it looks at its board when it is ready

        def do() -> None:
            if self._life is None:
                service.toggle_job_metrics()
            else:
                service.follow_job_metrics(lambda: self._board.recording)

        # a thread, since a disk may hang: the keeper has to look
        threading.Thread(target=do, name="nobroker-toggle", daemon=True).start()

    # -- roles

    def _work(self, app: App) -> int:
        worker = self._worker_config
        self._service = service = self._made_service(app, worker)
        if self._stopping or self._quiet:  # said before there was a service to hear it
            service.stop()
        try:
            stats = service.run()
        finally:
            self._board.say_stats(service.worker.stats)
        self._board.say_stats(stats)
        if self._stopping or self._quiet:
            return DONE
        if self._refused:
            return REFUSED
        if service.recycling is not None or (worker.max_jobs and service.worker.ended_by == ""):
            return RECYCLED
        return DONE if self._board.rest == boards.IDLE or self._life is None else FAILED

    @property
    def _worker_config(self) -> WorkerConfig:
        worker = self._task.worker
        if worker is None:
            raise TypeError(f"{self._task.name} was told to work, and not how")
        return worker

    def _made_service(self, app: App, worker: WorkerConfig) -> Service:
        def describe(job: Job) -> tuple[str, float | None]:
            return settling.describe(app, job)

        return Service(
            app,
            queues=worker.queues,
            order=worker.order,
            threads=self._task.threads,
            batch=1 if worker.isolation == "process" else worker.batch,
            scheduler=self._task.scheduler,
            once=self._task.once,
            max_jobs=worker.max_jobs,
            handle_signals=False,
            poll_interval=worker.polling_interval,
            wrap=None if self._life is None else lambda handler: self._board.watched(handler, describe),
            on_ready=self._ready,
            on_rest=self._rest,
            supervisor=self._task.registered,
            heartbeat_interval=self._task.heartbeat_interval,
            metrics_dir=self._task.metrics_dir,
        )

    def _rest(self) -> None:
        idle = (
            self._task.once and (service := self._service) is not None and service.worker.ended_by == "idle"
        )
        self._board.say_rest(boards.IDLE if idle else boards.RESTED)
        if self._quiet and not self._stopping:
            self._ended.wait()

    def _ready(self) -> None:
        worker, service = self._worker_config, self._service
        self._say_baseline()
        if (why := no_room(worker.memory_recycle_at, self._board.baseline)) and service is not None:
            _log.error("event=worker.refused pid=%d: %s", os.getpid(), why)
            self._refused = True
            service.stop()  # before it has taken a job
            return
        if worker.memory_recycle_at is not None and service is not None:
            watch = MemoryWatch(worker.memory_recycle_at, worker.memory_confirmations)

            def look() -> None:
                why = watch.look(resident_bytes())
                if why is not None and service.recycling is None:
                    service.recycle(why)

            self._keeper.every(worker.memory_interval, look)
        if self._board.recording:
            self.metrics()
        self._board.say(boards.READY)

    def _say_baseline(self) -> None:
        self._board.say_baseline(resident_bytes() or 0)

    def _measure(self, app: App) -> int:
        self._made_service(app, self._worker_config)
        self._say_baseline()
        return DONE

    def _schedule(self, app: App) -> int:
        scheduler = Scheduler(app)
        app._tell("on_start")
        try:
            with scheduler.beside():
                self._register(app)
                self._board.say(boards.READY)
                self._ended.wait()
        finally:
            if self._registration is not None:
                self._registration.close()
            app._tell("on_stop")
            app._tell("on_shutdown")
        return DONE

    def _register(self, app: App) -> None:
        task = self._task
        self._registration = one = Registration(
            app.queue, "scheduler", supervisor=task.registered, interval=task.heartbeat_interval
        )
        one.update(state="running")
        one.beat()
        self._keeper.every(task.heartbeat_interval, one.beat)

    def _settle(self, app: App) -> int:
        for lost in self._task.lost:
            settling.settle(app, lost)
        return DONE
