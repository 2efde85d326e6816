"""Recurring tasks: jobs that are enqueued by a schedule.

What is said of them is kept here; how far each has come is on the queue, see `ticks`; who enqueues them is
the `scheduler`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, overload

from nobroker.app import ticks
from nobroker.app.base import BaseJob, definition_of
from nobroker.app.definition import Definition, JobFunction
from nobroker.app.errors import RecurringError
from nobroker.app.options import known
from nobroker.app.recurring_file import NEEDS, read
from nobroker.app.schedules import as_utc, schedule_of
from nobroker.app.tasks import Task, task_of
from nobroker.app.yaml_text import need_yaml

if TYPE_CHECKING:
    from nobroker.app.application import App
    from nobroker.app.handle import JobHandle

T = TypeVar("T")

_SAID: Final = ("name", "args", "kwargs", "queue", "priority", "timezone", "missed", "grace")


class RecurringTask(NamedTuple):
    """A recurring task at one moment.

    Attributes:
        name: of the task.
        job: name of the job.
        schedule: as it was written, without the time zone.
        timezone: name of the time zone.
        queue: through which its jobs go.
        missed, grace: as given; the latter in seconds.
        paused: whether it is.
        next_run: when it is enqueued next; None while it is paused.
        last_run: the newest tick that was enqueued; None: none so far.
        last_job: id of that job.
    """

    name: str
    job: str
    schedule: str
    timezone: str
    queue: str
    missed: str
    grace: float
    paused: bool
    next_run: datetime | None
    last_run: datetime | None
    last_job: str | None

    def upcoming(self, after: datetime) -> Iterator[datetime]:
        """All ticks behind a moment, paused or not, in UTC."""
        return map(as_utc, schedule_of(self.schedule, self.timezone).upcoming(int(after.timestamp())))


class Recurring:
    """The part of `App` that has to do with recurring tasks."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[str, Task] = {}
        self._recurring_files: list[str] = []

    # -- saying

    @overload
    def recurring(self, schedule: str, job: None = None, **said: Any) -> Callable[[T], T]: ...
    @overload
    def recurring(self, schedule: str, job: T, **said: Any) -> T: ...
    def recurring(self: Any, schedule: str, job: Any = None, **said: Any) -> Any:
        """Enqueue a job by a schedule: ``app.recurring("every day at 03:00", Report, args=[7])``, or
        ``@app.recurring("*/15 * * * *")`` over ``@app.job``.

        Args:
            schedule: five or six cron fields, a nickname such as ``@hourly``, ``every 15 minutes``,
                ``every day at 03:00``; maybe with a time zone behind it.
            job: what ``@app.job`` or ``@app.register`` gave; left out: a decorator of that.
            name: of the task; the job's name when left out.
            args, kwargs: what the job is called with.
            queue, priority: instead of the job's own.
            timezone: name of the time zone; UTC when left out.
            missed: of ticks at which no scheduler ran, ``"once"`` (the default): one run for all;
                ``"skip"``: none; ``"all"``: one for each.
            grace: for so long after its moment a tick counts as on time; seconds, a timedelta, ``"5m"``; a
                minute when left out.

        Returns:
            The job, or the decorator.

        Raises:
            RecurringError: something of it can't be; it names the task and the argument.
            MissingExtraError: what reads schedules is not installed.
            TypeError: `job` is none of this application, or there is no such argument.
        """
        known("recurring()", said, _SAID)

        def add(target: Any) -> Any:
            definition = _definition_of(self, target)
            name = said.get("name")
            task = task_of(
                definition.name if name is None else name, definition, {**said, "schedule": schedule}
            )
            other = self._tasks.get(task.name)
            if other is not None and not _the_same(task, other):
                raise RecurringError(
                    "there is a task of this name; say another one with name=", task=task.name, key="name"
                )
            self._tasks[task.name] = task
            return target

        return add if job is None else add(job)

    def recurring_file(self, path: str | os.PathLike[str]) -> None:
        """Take recurring tasks from a YAML file as well. It is read when the tasks are asked for or begun, so
        that the jobs in it may be defined later.

        Raises:
            RecurringError: there is no such file.
            MissingExtraError: what reads it is not installed.
        """
        need_yaml(*NEEDS)
        name = os.fspath(path)
        if not os.path.isfile(name):
            raise RecurringError("there is no such file", file=name)
        if name not in self._recurring_files:
            self._recurring_files.append(name)

    # -- asking

    def recurring_tasks(self: Any) -> list[RecurringTask]:
        """All tasks that can be as they were said, by name. For the others see `recurring_errors`."""
        tasks, _ = known_tasks(self)
        return seen(tasks, ticks.Board(self.queue), self._now())

    def recurring_errors(self: Any) -> list[RecurringError]:
        """What is wrong in the files of recurring tasks."""
        return known_tasks(self)[1]

    def paused_recurring_tasks(self: Any) -> list[str]:
        """Names of the tasks that are paused, in any process, by name."""
        return sorted(ticks.Board(self.queue).pauses)

    # -- doing

    def pause_recurring(self: Any, name: str) -> None:
        """Enqueue nothing of this task until `resume_recurring`, in any process, also after restarts.

        Raises:
            RecurringError: there is no such task.
        """
        _known(self, name, ticks.Board(self.queue))
        ticks.pause(self.queue, name, self._now())

    def resume_recurring(self: Any, name: str) -> None:
        """End a pause. What fell into it is not made up for.

        Raises:
            RecurringError: there is no such task.
        """
        while True:
            board = ticks.Board(self.queue)
            _known(self, name, board)
            place, pauses = board.places.get(name), board.pauses.get(name, [])
            now = int(self._now())
            if place is None or not pauses or place.tick >= now:
                break
            if ticks.move(self.queue, place.next(now, place.schedule)) is not None:
                break
        ticks.put_away(self.queue, pauses)

    def run_recurring_now(self: Any, name: str) -> JobHandle[Any]:
        """Enqueue the job of a task now, beside its schedule, paused or not.

        Raises:
            RecurringError: there is no such task.
        """
        task = known_tasks(self)[0].get(name)
        if task is None:
            raise _unknown(name, known_tasks(self)[0])
        handle: JobHandle[Any] = self._enqueue(task.prepared)
        return handle


def known_tasks(app: App) -> tuple[dict[str, Task], list[RecurringError]]:
    """The tasks of the code and of the files, and what is wrong in the files."""
    tasks = dict(app._tasks)
    errors: list[RecurringError] = []
    for path in app._recurring_files:
        errors += read(app, path, tasks)
    return tasks, errors


def seen(tasks: Mapping[str, Task], board: ticks.Board | None, now: float) -> list[RecurringTask]:
    """Tasks as they are now.

    Args:
        board: None: there is no queue yet.
    """
    places = board.places if board is not None else {}
    pauses = board.pauses if board is not None else {}
    return [_seen(task, places.get(name), name in pauses, now) for name, task in sorted(tasks.items())]


def _seen(task: Task, place: ticks.Place | None, paused: bool, now: float) -> RecurringTask:
    definition, call, options = task.prepared
    last = place.last if place is not None else None
    start = int(now) if place is None else max(int(now), place.tick)
    return RecurringTask(
        name=task.name,
        job=definition.name,
        schedule=task.schedule.text,
        timezone=task.schedule.zone,
        queue=definition.queue_of(options.queue, call.args, call.kwargs),
        missed=task.missed,
        grace=task.grace,
        paused=paused,
        next_run=None if paused else as_utc(task.schedule.next(start)),
        last_run=None if last is None else as_utc(last.tick),
        last_job=None if last is None else last.job,
    )


def _definition_of(app: Any, target: Any) -> Definition:
    definition = None
    if isinstance(target, JobFunction):
        definition = target.definition
    elif isinstance(target, type) and issubclass(target, BaseJob):
        definition = definition_of(target)
    if definition is None:
        raise TypeError(
            f"a recurring task is of a job, not of {target!r:.100}; @app.recurring(...) stands above @app.job"
        )
    if definition.app is not app:
        raise TypeError(f"{definition.name} is a job of another application")
    return definition


def _the_same(one: Task, other: Task) -> bool:
    """Whether a module that is imported once more has said it again."""
    same = one.prepared.call == other.prepared.call and str(one.schedule) == str(other.schedule)
    return same and one.prepared.definition.source == other.prepared.definition.source


def _known(app: Any, name: str, board: ticks.Board) -> None:
    tasks = known_tasks(app)[0]
    if name not in tasks and name not in board.places and name not in board.pauses:
        raise _unknown(name, tasks)


def _unknown(name: str, tasks: Mapping[str, Task]) -> RecurringError:
    near = get_close_matches(str(name), list(tasks), 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(tasks)) or 'none'}"
    return RecurringError(f"there is no recurring task of this name; {hint}", task=name)
