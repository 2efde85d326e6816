"""What the layer writes down for itself: records of batches and of jobs that wait for others.

Each is a job in the lane `LANE`, available in the far future, so that no worker ever takes it. It stands
there as long as something is to be done about it, and is cancelled then: its id stays known for ``keep_done``
seconds. Here alone is the layout of these records.

``{"watch": kind, ...}``, by kind:

========  ==============================  ================================================================
kind      id                              content
========  ==============================  ================================================================
batch     the batch's                     members, description, metadata, callbacks
join      batch + "+" + number            batch, members
closed    batch + "+" + number            batch
end       batch + "+end"                  batch, joins, description, metadata, total, done, failed
held      a random one                    links: [job, [jobs it waits for], delay, run_at]
lost      held + "+" + number of link     job, reason
========  ==============================  ================================================================

The members of a batch record, and of a join, have the sequence numbers that follow the record's own.
Numbers of joins count from 0, without a gap; "closed" takes the one that the next join would have.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, NamedTuple

from nobroker.errors import JobNotFoundError
from nobroker.job import Job, JobState, NewJob
from nobroker.limits import Limit, Rate
from nobroker.queue import Queue

LANE: Final = "nobroker.watch"
TICKS_LANE: Final = "nobroker.recurring"
"""Of other records, see `ticks`."""
FAR_S: Final = 36_000 * 86400.0
"""Ninety-eight years: what is delayed for so long is not meant to be reached."""
_HELD_S: Final = 35_000 * 86400.0
_CANCELLED: Final = "cancelled"  # what the queue writes as the last error of a cancelled job

BATCH: Final = "batch"
JOIN: Final = "join"
CLOSED: Final = "closed"
END: Final = "end"
HELD: Final = "held"
LOST: Final = "lost"

_LIMITS: Final[dict[str, Any]] = {"limits": Limit, "rates": Rate}


class Link(NamedTuple):
    """A job that is held.

    Attributes:
        job: its id.
        of: ids of the jobs that it waits for.
        delay: seconds that it waits when they are done.
        run_at: or a moment before which it does not run.
    """

    job: str
    of: list[str]
    delay: float
    run_at: Any


def made_id(kind: str) -> str:
    """An id that nobody has."""
    return f"{kind}-{uuid.uuid4().hex}"


def record(kind: str, record_id: str, **content: Any) -> NewJob:
    """A record, to be enqueued."""
    return NewJob({"watch": kind, **content}, job_id=record_id, lane=LANE, delay=FAR_S)


def written(new: NewJob) -> dict[str, Any]:
    """A job that is to be enqueued one day, as it stands in a record until then."""
    said = {name: getattr(new, name) for name in NewJob.__match_args__}
    for name, kind in _LIMITS.items():
        said[name] = [[getattr(one, field) for field in kind.__match_args__] for one in said[name] or ()]
    return said


def unwritten(said: dict[str, Any]) -> NewJob:
    """The reverse of `written`."""
    limits = {name: [kind(*fields) for fields in said[name]] for name, kind in _LIMITS.items()}
    return NewJob(**{**said, **limits})


def kind_of(job: Job) -> str | None:
    """The kind of a record; None for something that is none."""
    payload = job.payload
    kind = payload.get("watch") if job.lane == LANE and type(payload) is dict else None
    return kind if type(kind) is str else None


def members_of(job: Job) -> range:
    """The sequence numbers of the members that stand behind a record."""
    return range(job.seq + 1, job.seq + 1 + job.payload["members"])


def numbered(owner: str, number: int) -> str:
    return f"{owner}+{number}"


def end_of(batch_id: str) -> str:
    return f"{batch_id}+end"


def found(queue: Queue, job_id: str) -> Job | None:
    """The job, or None where it is not known (any more)."""
    try:
        return queue.get(job_id)
    except JobNotFoundError:
        return None


def is_held(job: Job) -> bool:
    """Whether a job still waits in the far future."""
    return job.state is JobState.READY and job.available_at - job.enqueued_at > _HELD_S


def was_cancelled(job: Job) -> bool:
    """Whether a job is done because it was called off."""
    return job.state is JobState.DONE and job.last_error == _CANCELLED and job.result is None


def cancel(queue: Queue, record_id: str) -> None:
    """Put a record away. Doing so twice is harmless."""
    try:
        queue.cancel(record_id)
    except JobNotFoundError:
        return  # put away and forgotten
