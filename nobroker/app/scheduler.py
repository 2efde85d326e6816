"""The scheduler: enqueues what recurring tasks have due. As many as like may run; see `ticks`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from nobroker.app import ticks
from nobroker.app.recurring import known_tasks
from nobroker.app.schedules import as_utc
from nobroker.app.tasks import Task
from nobroker.errors import NobrokerError
from nobroker.job import NewJob
from nobroker.queue import Queue

if TYPE_CHECKING:
    from nobroker.app.application import App

EVERY_S: Final = 10.0
"""Seconds after which it looks at the clock at the latest: somebody may have set it."""
_AT_ONCE: Final = 100
"""Ticks of one task that are enqueued with one write."""
_AHEAD_S: Final = 2 * 86400

_log = logging.getLogger("nobroker.app")


class Scheduler:
    """Enqueues the ticks of an application's recurring tasks.

    Args:
        app: whose tasks.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._queue: Queue = app.queue
        self._tasks: dict[str, Task] | None = None
        self._in_code = 0
        self._begun: set[str] = set()
        self._resting: dict[str, tuple[ticks.Place, float]] = {}  # where each is, and when it is due
        self._lost: dict[str, int] = {}  # the number that somebody else had written first
        self._free: dict[str, int] = {}  # lower numbers can't be had
        self._stop = threading.Event()

    def look(self) -> float | None:
        """Enqueue all that is due.

        Returns:
            When something is due next, in seconds since the epoch; None: never, there are no tasks.

        Raises:
            NobrokerError: the queue can't be used. What goes wrong with one task is logged.
        """
        tasks = self._known()
        if not tasks:
            return None
        while True:
            now = self._app._now()
            board = ticks.Board(self._queue)
            due = min(self._see(task, board, now) for task in tasks.values())
            ticks.put_away(self._queue, board.stale)
            if due > now or self._stop.is_set():
                return due

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Work in a thread of its own, as long as this lasts."""
        self._stop.clear()
        thread = threading.Thread(target=self._work, name="nobroker-scheduler", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _known(self) -> dict[str, Task]:
        """The tasks; files are read once, at the beginning."""
        if self._tasks is None:
            self._tasks, errors = known_tasks(self._app)
            for error in errors:
                _log.error("event=recurring.refused %s", error)
        self._tasks |= self._app._tasks
        self._in_code = len(self._app._tasks)
        return self._tasks

    def _see(self, task: Task, board: ticks.Board, now: float) -> float:
        """Enqueue what is due of a task; when there is something to do next."""
        try:
            return self._enqueue(task, board, now)
        except NobrokerError as error:
            _log.error("event=recurring.failed task=%s error=%s: %s", task.name, type(error).__name__, error)
        except Exception:  # of the job's own code: the queue of a job may be a function
            _log.exception("event=recurring.failed task=%s", task.name)
        return now + EVERY_S

    def _enqueue(self, task: Task, board: ticks.Board, now: float) -> float:
        place, moment = board.places.get(task.name), int(now)
        schedule = str(task.schedule)
        fresh = task.name not in self._begun
        if place is None:
            place = ticks.Place(task.name, 0, moment, schedule, None)
            return self._moved(task, place, [], now)
        if fresh and place.schedule != schedule:  # by the old one nothing was missed, by the new one neither
            return self._moved(task, place.next(max(moment, place.tick), schedule), [], now)
        if fresh and place.tick > now + _AHEAD_S:
            _log.warning(
                "event=recurring.ahead task=%s until=%s: the clock once stood there; nothing is due before",
                task.name,
                as_utc(place.tick).isoformat(),
            )
        self._begun.add(task.name)
        if task.name in board.pauses:
            return task.schedule.next(max(moment, place.tick))
        resting_at, due_at = self._resting.get(task.name, (None, 0.0))
        if resting_at == place and due_at > now:
            return due_at
        chosen, tick = due(task, place.tick, now)
        if tick == place.tick:
            due_at = task.schedule.next(tick)
            self._resting[task.name] = place, due_at
            return due_at
        runs = [(ticks.Run(one, _job_id(task, one), now), self._job(task, one)) for one in chosen]
        return self._moved(task, place.next(tick, schedule), runs, now)

    def _moved(
        self, task: Task, place: ticks.Place, due: list[tuple[ticks.Run, NewJob]], now: float
    ) -> float:
        number = max(place.number, self._free.get(task.name, 0))
        jobs = ticks.move(self._queue, place._replace(number=number), due)
        if jobs is None:  # somebody else was first: look at what there is now
            if self._lost.get(task.name) == number:
                # Nobody stands there: that record was taken away by hand, and its id stays known for a while.
                self._free[task.name] = number + 1
            self._lost[task.name] = number
            return now
        self._begun.add(task.name)
        for job in jobs:
            _log.info("event=recurring.enqueued task=%s id=%s", task.name, job.job_id)
        if place.number and not jobs:
            _log.info("event=recurring.skipped task=%s until=%s", task.name, as_utc(place.tick).isoformat())
        self._app._enqueuer.enqueued()
        return task.schedule.next(place.tick)

    def _job(self, task: Task, tick: int) -> NewJob:
        said = {"recurring": task.name, "tick": as_utc(tick)}
        prepared = task.prepared
        options = prepared.options._replace(job_id=_job_id(task, tick), metadata=said)
        return self._app._enqueuer.new_job(prepared._replace(options=options), {})

    # -- the thread

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                due_at = self.look()
            except NobrokerError as error:
                _log.warning("event=scheduler.failed error=%s: %s", type(error).__name__, error)
                due_at = self._app._now() + EVERY_S
            except Exception:
                _log.exception("event=scheduler.failed")
                due_at = self._app._now() + EVERY_S
            self._rest_until(due_at)

    def _rest_until(self, due_at: float | None) -> None:
        """By the wall clock, which may be set meanwhile."""
        while len(self._app._tasks) == self._in_code:
            left = EVERY_S if due_at is None else due_at - self._app._now()
            if left <= 0 or self._stop.wait(min(left, EVERY_S)):
                return


def due(task: Task, after: int, now: float) -> tuple[list[int], int]:
    """The ticks to be enqueued, and up to where nothing is due any more then.

    Args:
        after: up to here nothing is due.
        now: what is due is not behind this.
    """
    schedule, until = task.schedule, int(now)
    if until <= after:
        return [], after
    start = after if task.missed == "all" else max(after, int(now - task.grace) - 1)
    found = list(takewhile(lambda tick: tick <= until, islice(schedule.upcoming(start), _AT_ONCE)))
    if found:
        return found, found[-1]
    missed = schedule.newest(after, start) if start > after else None
    if missed is None:
        return [], after
    return [missed] if task.missed == "once" else [], missed


def _job_id(task: Task, tick: int) -> str:
    return f"{task.name}@{as_utc(tick):%Y-%m-%dT%H:%M:%SZ}"
