"""What the layer writes down of recurring tasks: how far each has come, and which are paused.

Each record is a job in the lane `LANE`, available in the far future, so that no worker ever takes it.
Here alone is the layout of these records.

``{"recurring": kind, "task": name, ...}``, by kind:

========  ==========================  ====================================================================
kind      id                          content
========  ==========================  ====================================================================
place     recurring+task+number       number, tick, schedule, last: [tick, id of its job, when] or None
pause     a random one                when
========  ==========================  ====================================================================

All moments are seconds since the epoch.

Invariants
- The place of a task is its record with the highest number. Nothing is due up to its tick.
- Whoever enqueues a tick also writes the next place, in one write that is refused when somebody else has
  written it. So each tick is enqueued once, however many schedulers run, and whenever they are killed.
- A place is put away when two newer ones stand. It stays known for ``keep_done`` seconds at least: only a
  scheduler that was stopped for as long as two ticks and ``keep_done``, between its look and its write, could
  find the number free again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from nobroker.app.records import FAR_S, TICKS_LANE, cancel
from nobroker.errors import JobExistsError, JobsDiscardedError
from nobroker.job import JobState, NewJob
from nobroker.queue import Queue

LANE: Final = TICKS_LANE
_KEPT: Final = 2
"""Places of one task that stand."""


class Run(NamedTuple):
    """A tick that was enqueued.

    Attributes:
        tick: the moment.
        job: id of the job.
        at: when it was enqueued.
    """

    tick: int
    job: str
    at: float


class Place(NamedTuple):
    """How far a task has come.

    Attributes:
        task: its name.
        number: of this place; they count up.
        tick: nothing is due up to this moment.
        schedule: the schedule by which it came there.
        last: the newest tick that was enqueued.
    """

    task: str
    number: int
    tick: int
    schedule: str
    last: Run | None

    @property
    def id(self) -> str:
        return f"recurring+{self.task}+{self.number}"

    def next(self, tick: int, schedule: str) -> Place:
        return Place(self.task, self.number + 1, tick, schedule, self.last)

    def record(self) -> NewJob:
        content = {"number": self.number, "tick": self.tick, "schedule": self.schedule}
        last = None if self.last is None else list(self.last)
        return _record("place", self.task, self.id, **content, last=last)


class Board:
    """All records of one moment.

    Attributes:
        places: by the name of the task.
        pauses: the ids of pauses by the name of the task.
        stale: ids of places that are to be put away.
    """

    def __init__(self, queue: Queue) -> None:
        self.places: dict[str, Place] = {}
        self.pauses: dict[str, list[str]] = {}
        self.stale: list[str] = []
        numbers: dict[str, list[tuple[int, str]]] = {}
        for job in queue.list_jobs(JobState.READY, lane=LANE):
            said = job.payload if type(job.payload) is dict else {}
            task = said.get("task")
            if said.get("recurring") == "pause" and type(task) is str:
                self.pauses.setdefault(task, []).append(job.id)
                continue
            place = _place(said)
            if place is not None:
                numbers.setdefault(place.task, []).append((place.number, job.id))
                known = self.places.get(place.task)
                if known is None or known.number < place.number:
                    self.places[place.task] = place
        for found in numbers.values():
            self.stale += [job_id for _, job_id in sorted(found)[:-_KEPT]]


def move(queue: Queue, place: Place, due: Iterable[tuple[Run, NewJob]] = ()) -> list[NewJob] | None:
    """Write a place, and enqueue the jobs of ticks with it. A job that is known already is left out, and so
    is one that a limit keeps out.

    Args:
        due: ascending; the last of those that are on the queue becomes the last of the place.

    Returns:
        Those enqueued. None: somebody else wrote this place; nothing was written.
    """
    chosen = list(due)
    last = chosen[-1][0] if chosen else None
    while True:
        written = place if last is None else place._replace(last=last)
        try:
            queue.enqueue_all([written.record(), *(job for _, job in chosen)], all_new=True)
        except JobExistsError as error:
            if error.job_id == place.id:
                return None
            chosen = [one for one in chosen if one[1].job_id != error.job_id]
        except JobsDiscardedError as error:
            chosen = [one for index, one in enumerate(chosen, 1) if index not in error.jobs]
            last = chosen[-1][0] if chosen else None
        else:
            return [job for _, job in chosen]


def pause(queue: Queue, task: str, now: float) -> None:
    """Write a pause, unless there is one. It takes the next place, too: a scheduler that looked before cannot
    enqueue what it saw was due.
    """
    while True:
        board = Board(queue)
        if task in board.pauses:
            return
        records = [_record("pause", task, f"pause-{uuid.uuid4().hex}", when=now)]
        place = board.places.get(task)
        if place is not None:
            records.append(place.next(place.tick, place.schedule).record())
        with suppress(JobExistsError):  # a scheduler was first: look again
            queue.enqueue_all(records, all_new=True)
            return


def put_away(queue: Queue, record_ids: Iterable[str]) -> None:
    for record_id in record_ids:
        cancel(queue, record_id)


def _record(kind: str, task: str, record_id: str, **content: Any) -> NewJob:
    payload = {"recurring": kind, "task": task, **content}
    return NewJob(payload, job_id=record_id, lane=LANE, delay=FAR_S)


def _place(said: dict[str, Any]) -> Place | None:
    """The place in a record; None: it is none, or a later version wrote it."""
    match said:
        case {
            "recurring": "place",
            "task": str(task),
            "number": int(number),
            "tick": int(tick),
            "schedule": str(schedule),
            "last": last,
        }:
            return Place(task, number, tick, schedule, None if last is None else Run(*last))
    return None
