"""Processes that run an application's jobs, and what looks after them.

Invariants
- One process, one thread, one loop. It runs no job and no rule or hook of people's, and has no queue open.
  So nothing that jobs do can make it hang or die, and it can fork at any time.
- Signals are numbers in a pipe (`signals`); what they ask for is done in the loop.
- Every child is a child of this process, and of it alone: workers, the scheduler, for a moment one that
  measures or settles. A worker starts none (`inside`).
- A place (`plans.Place`) has one process; while it is being restarted, two. Who ends there is replaced,
  unless all is to end. `plans.Restarts` says when.
- A child is told to stop once. It bounds itself: jobs that have not ended after ``shutdown_timeout`` are
  let go, by the child (`keeper`). Only what does not come to its end after that is killed.
- What a dead child had in hand is read from its board. What becomes of those jobs is said by another child
  (`settling`); the lease's token tells whether they are still its own.
- Workers record what jobs take, or none does: boards say which, and SIGUSR2 only that there is news.
- 0 is returned only if all was asked to end, and each child that was there then ended by itself, with
  nothing let go.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import select
import time
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from nobroker.app.errors import RunFailedError
from nobroker.running import inside, metrics, signals
from nobroker.running.appearance import Appearance
from nobroker.running.board import IDLE
from nobroker.running.children import Child, Children, Post, told
from nobroker.running.config import RunConfig
from nobroker.running.forking import Source, Starter, threads_of_others
from nobroker.running.keeper import SECOND_S
from nobroker.running.losses import Losses
from nobroker.running.plans import DONE, FAILED, FAST_S, REFUSED, End, How, Restarts, places
from nobroker.running.rolling import Rolling
from nobroker.running.tasks import MEASURE, SCHEDULE, SETTLE, WORK, Task
from nobroker.worker import WorkerStats

if TYPE_CHECKING:
    from nobroker.app import App

MEASURE_S: Final = 60.0
"""A worker is measured for so long at most. One that takes longer to begin is not measured."""
_LOOK_S: Final = 0.02
_WATCH_S: Final = 0.1

_log = logging.getLogger("nobroker.running")


class Supervisor:
    """Runs an application in processes, until a signal ends it.

    Args:
        app: whose jobs.
        config: what is to run.
        source: where fresh interpreters find the application; needed for ``start_method="spawn"`` only.
        metrics_dir: where workers record what jobs take, see `Service`.
        on_usr2: called at SIGUSR2, which is also handed on to the workers.

    Attributes:
        stats: what all processes did that have ended.
        reason: why it has given up; None: it has not.
    """

    def __init__(
        self,
        app: App,
        config: RunConfig,
        *,
        source: Source | None = None,
        metrics_dir: str | None = None,
        on_usr2: Callable[[], None] | None = None,
    ) -> None:
        if config.start_method == "spawn" and source is None:
            raise ValueError('start_method "spawn" needs the packages that the jobs are in')
        if config.start_method == "spawn" and source is not None and "__main__" in source.packages:
            raise ValueError(
                "a fresh interpreter can't import the jobs of the program itself (__main__); move them into a"
                " module, or name the packages"
            )
        self.stats = WorkerStats()
        self.reason: str | None = None
        self._app = app
        self._config = config
        self._source = source if config.start_method == "spawn" else None
        self._metrics_dir = metrics_dir
        self._on_usr2 = on_usr2
        recurring = bool(app._tasks or app._recurring_files)
        self._posts = [Post(place) for place in places(config, scheduler=recurring)]
        self._restarts = Restarts()
        self._code = DONE
        self._stopping_since: float | None = None
        self._recording_until = 0.0  # workers are to record what jobs take; monotonic seconds
        self._quiet = False
        self._begun = False  # whether all were ready once

    def run(self) -> int:
        """Work until a signal, or until nothing is left to do or to try.

        Returns:
            0: ended as asked. 1: some jobs were let go, a process was lost at the end, or none could be kept
            running. 2: nothing was begun, the memory limit can't be kept.

        Raises:
            NestedRunError: this is a worker process itself.
            RunFailedError: not in the main thread, or not on this system.
        """
        inside.refuse()
        if not signals.in_main_thread():
            raise RunFailedError("a supervisor catches signals, so it runs in the main thread only", REFUSED)
        if not hasattr(os, "fork"):
            raise RunFailedError("there is no supervisor for this system; run one process", REFUSED)
        if self._source is None and (others := threads_of_others()):
            _log.warning(
                "event=supervisor.threads names=%s: threads and forks do not mix, a lock that one holds is"
                ' locked for ever in the children; end them after the import, or set start_method "spawn"',
                ",".join(others),
            )
        self._appearance = Appearance(self._app, self._config.heartbeat_interval)
        self._caught = signals.Signals(signals.ALL)
        self._poll = select.poll()
        self._poll.register(self._caught.fd, select.POLLIN)
        starter = Starter(self._app, self._source)
        self._children = Children(starter, self._config.shutdown_timeout)
        self._losses = Losses(self._children, lambda lost: self._task(SETTLE, "settle", lost=lost))
        self._rolling = Rolling(self._start_fresh, self._children.stop)
        self._caught.catch()
        gc.freeze()  # what is there now is shared with the children; the collector would write on it
        try:
            return self._supervise()
        finally:
            gc.unfreeze()
            self._children.groups.close()
            starter.close()  # if an error ended it: the children see that, and end
            self._caught.restore()
            self._appearance.close()

    # -- the loop

    def _supervise(self) -> int:
        _log.info("event=supervisor.started pid=%d processes=%d", os.getpid(), len(self._posts))
        if not self._baselines_fit():
            return REFUSED
        while not self._over():
            self._turn()
        _log.info("event=supervisor.stopped pid=%d code=%d", os.getpid(), self._code)
        return self._code

    def _turn(self) -> None:
        """Hear, look, act; then sleep until there is something to do."""
        self._obey()
        for child, end in self._children.reap():
            self._ended(child, end)
        now = time.monotonic()
        self._children.kill_overdue(now)
        self._losses.kill_timed_out(now)
        self._start_due()
        self._losses.settle(now)
        self._rolling.step()
        if not self._rolling.busy:
            self._appearance.reloaded()
        self._appearance.look(time.monotonic(), self._state, len(self._children.living))
        if not self._over():
            wait = self._wait_s(time.monotonic())
            self._poll.poll(None if wait == math.inf else wait * 1000)

    def _over(self) -> bool:
        if self._children.living or self._losses:
            return False
        return self._halted or all(post.over for post in self._posts)

    @property
    def _halted(self) -> bool:
        """Whether no process is started any more, and all are to end."""
        return self._stopping_since is not None or (self._quiet and self._config.quiet_then_exit)

    @property
    def _state(self) -> str:
        if self._halted:
            return "stopping"
        if self._quiet:
            return "quiet"
        if all(post.over or (post.child is not None and post.child.ready) for post in self._posts):
            self._begun = True
        return "running" if self._begun else "starting"

    def _wait_s(self, now: float) -> float:
        due = [self._appearance.due(), *(child.kill_at for child in self._children.living)]
        due += [
            now + _LOOK_S for child in self._children.living if child.place is not None and not child.ready
        ]
        if any(child.isolated for child in self._children.living):
            due.append(now + _WATCH_S)
        if not (self._halted or self._quiet):
            due += [post.start_at for post in self._posts if post.child is None and not post.over]
        return max(min(due, default=math.inf) - now, 0.0)

    # -- signals

    def _obey(self) -> None:
        for number in self._caught.taken():
            if number in signals.STOP:
                self._asked_to_stop()
            elif number in signals.AT_ONCE:
                self._stop_at_once()
            elif number in signals.QUIET:
                self._be_quiet(number)
            elif number in signals.RESTART:
                self._restart_all()
            elif number in signals.METRICS:
                self._toggle_recordings(number)
                if self._on_usr2 is not None:
                    self._on_usr2()

    def _asked_to_stop(self) -> None:
        since, now = self._stopping_since, time.monotonic()
        if since is None:
            self._stop()
        elif now - since >= SECOND_S:
            self._stop_at_once()

    def _stop(self) -> None:
        self._stopping_since = time.monotonic()
        _log.info("event=supervisor.stopping processes=%d", len(self._children.living))
        self._rolling.cancel()
        for child in self._children.living:
            if child.task.role != SETTLE:
                self._children.stop(child)

    def _stop_at_once(self) -> None:
        if self._stopping_since is None:
            self._stop()
        self._code = FAILED
        _log.warning("event=supervisor.stopping_at_once processes=%d", len(self._children.living))
        for child in self._children.living:
            if child.task.role != SETTLE:
                self._children.stop_at_once(child)

    def _be_quiet(self, number: int) -> None:
        self._quiet = True
        self._rolling.cancel()
        _log.info("event=supervisor.quiet processes=%d", len(self._children.living))
        self._hand_on(number, WORK, SCHEDULE)

    def _restart_all(self) -> None:
        if self._halted or self._quiet:
            _log.warning("event=restart.refused: nothing is to be started any more")
            return
        _log.info("event=restart.begun processes=%d", len(self._posts))
        self._rolling.begin(post for post in self._posts if not post.over)
        self._appearance.reloading()

    def _toggle_recordings(self, number: int) -> None:
        now = time.monotonic()
        self._recording_until = 0.0 if now < self._recording_until else now + metrics.TOGGLED_S
        for child in self._children.living:
            child.board.have_recorded(now < self._recording_until)
        self._hand_on(number, WORK)

    def _hand_on(self, number: int, *roles: str) -> None:
        for child in self._children.living:
            if child.task.role in roles:
                self._children.tell(child, number)

    # -- starting

    def _start_due(self) -> None:
        for post in self._posts:
            if self._halted or self._quiet:
                return
            if post.child is None and not post.over and post.start_at <= time.monotonic():
                post.child = self._start_fresh(post)
                self._obey()  # a signal that came meanwhile: no further one is started

    def _start_fresh(self, post: Post) -> Child | None:
        place = post.place
        role = SCHEDULE if place.worker is None else WORK
        task = self._task(role, place.name, worker=place.worker, scheduler=place.scheduler)
        try:
            child = self._children.start(task, place)
        except OSError as error:
            _log.error("event=process.not_started name=%s error=%s", place.name, error)
            self._plan_next(post, End(FAILED), None, at_work=False)
            return None
        if role == WORK and time.monotonic() < self._recording_until:
            child.board.have_recorded(True)
            for number in signals.METRICS:  # it may have looked already
                self._children.tell(child, number)
        return child

    def _task(self, role: str, name: str, **more: object) -> Task:
        config = self._config
        return Task(
            role=role,
            name=name,
            once=config.once,
            quiet_then_exit=config.quiet_then_exit,
            shutdown_timeout=config.shutdown_timeout,
            heartbeat_interval=config.heartbeat_interval,
            supervisor=os.getpid(),
            registered=self._appearance.id,
            metrics_dir=self._metrics_dir,
            **more,  # type: ignore[arg-type]
        )

    def _baselines_fit(self) -> bool:
        """Whether each limit of memory leaves room for work. Asked before any job is run."""
        fit = True
        for worker in self._config.workers:
            if worker.memory_recycle_at is None or self._halted:
                continue
            child = self._children.start(self._task(MEASURE, "measure", worker=worker))
            child.kill_at = child.started + MEASURE_S
            while self._children.living:
                self._turn_of(child)
            if child.killed:
                _log.warning("event=supervisor.not_measured: it took too long; the limit is kept as it is")
            if child.refusal is not None:
                fit = False
                self.reason = child.refusal
                _log.error("event=supervisor.refused: %s", self.reason)
        return fit

    def _turn_of(self, child: Child) -> None:
        self._obey()
        for gone, end in self._children.reap():
            told(gone, end, [])
        if self._children.living:
            now = time.monotonic()
            self._children.kill_overdue(now)
            self._appearance.look(now, self._state, len(self._children.living))
            self._poll.poll(_WATCH_S * 1000)

    # -- ends

    def _ended(self, child: Child, end: End) -> None:
        hand = list(child.board.in_hand())
        told(child, end, hand)
        for one in fields(WorkerStats):
            setattr(
                self.stats, one.name, getattr(self.stats, one.name) + getattr(child.board.stats, one.name)
            )
        at_work = self._losses.take_up(child, end, hand)
        if self._halted and child.task.role != SETTLE and (end.how is How.DIED or child.board.forced):
            self._code = self._code or FAILED
        heir = self._rolling.ended(child)
        for post in self._posts:
            if post.child is child:
                post.child = heir
                post.over = heir is None and end.how is How.DONE and child.board.rest == IDLE
                if heir is None and not self._halted and not post.over:
                    self._plan_next(post, end, child, at_work=at_work)
        child.board.close()

    def _plan_next(self, post: Post, end: End, child: Child | None, *, at_work: bool) -> None:
        now = time.monotonic()
        lived = 0.0 if child is None else now - child.started
        refusal = None if child is None else child.refusal
        if refusal is not None and not self._begun:
            self._give_up(refusal, REFUSED)
            return
        if at_work or any(
            one.task.role == WORK and one.useful(now - one.started, FAST_S) for one in self._children.living
        ):
            self._restarts.hope()
        pause = self._restarts.pause(
            post.place.name,
            end.how,
            lived=lived,
            ready=child is not None and child.ready,
            useful=child is not None and child.useful(lived, FAST_S),
            blameless=at_work and post.place.isolated,
        )
        post.start_at = now + pause
        if pause:
            _log.warning("event=process.restart_in name=%s seconds=%g", post.place.name, pause)
        if self._restarts.hopeless and self.reason is None:
            last = f"the last one, {post.place.name}, ended with {end}"
            self._give_up(f"no worker can be kept running: {refusal or last}", FAILED)

    def _give_up(self, reason: str, code: int) -> None:
        self.reason, self._code = reason, code
        _log.error("event=supervisor.given_up: %s", reason)
        self._stop()
