"""Jobs that are held until others are done.

A held job is the job itself, with an id of its own, available in the far future; a record says what it waits
for. When that is done, its time is set to now. Doing so twice changes nothing: so it does not matter who
does it, how often, and who is killed meanwhile.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from nobroker.app import records
from nobroker.app.collecting import NOT_YET, Member
from nobroker.app.definition import PreparedJob
from nobroker.app.handle import KEPT_OUT, JobHandle
from nobroker.app.records import Link, found
from nobroker.errors import JobExistsError, JobsDiscardedError
from nobroker.job import Job, JobState, NewJob
from nobroker.queue import Queue

if TYPE_CHECKING:
    from nobroker.app.application import App

TOLD: Final = "lost"
"""In the state of a job that is dead because what it waited for is gone. Requeued, it runs all the same."""


def chain(*jobs: PreparedJob) -> list[JobHandle[Any]]:
    """Enqueue jobs of which each runs when the one before it is done.

    They are enqueued with one write, without their enqueue hooks. When one is dead, those behind it wait: let
    it run again with `Queue.requeue_dead`, and the chain goes on. When one is cancelled, dropped or purged,
    the next one becomes dead with a reason that says so.

    Args:
        jobs: made by ``build``. What ``set(wait=...)`` says counts from the end of the job before.

    Returns:
        Their handles, in order. Where a limit keeps one of the jobs out, nothing was enqueued, and all of
        them say so (`JobHandle.discarded`).

    Raises:
        TypeError, ValueError: no jobs, something else, or jobs of several `App`s.
        JobExistsError: a ``job_id`` is known already; nothing was enqueued.
        SerializationError: an argument can't be stored; nothing was enqueued.
    """
    app = _app_of("chain", jobs)
    if len(jobs) == 1:
        return list(app._enqueuer.all(jobs))
    watch_id = records.made_id("held")
    news: list[NewJob] = []
    links: list[Link] = []
    for number, one in enumerate(jobs):
        marks: dict[str, Any] = {"then": watch_id} if number < len(jobs) - 1 else {}
        if number:
            new, link = _held(app, one, watch_id, len(links), [str(news[-1].job_id)], marks)
            links.append(link)
        else:
            new = _new(app, one, marks)
        news.append(new)
    return _enqueue(app, watch_id, links, news)


def after(*done: JobHandle[Any] | str, run: PreparedJob) -> JobHandle[Any]:
    """Enqueue a job that runs when others are done, which are on the queue already.

    As in a `chain`, it waits as long as one of them is dead, and becomes dead when one of them is cancelled,
    dropped or purged.

    Args:
        done: their handles or ids.
        run: made by ``build``.

    Returns:
        Its handle; with ``created=False`` where its ``job_id`` is known already, or a limit keeps it out, and
        nothing was enqueued.

    Raises:
        TypeError, ValueError: none of them, or something else.
        JobNotFoundError: one of them is not known (any more).
        SerializationError: an argument can't be stored; nothing was enqueued.
    """
    app = _app_of("after", [run])
    if not done:
        raise ValueError("after needs at least one job to wait for")
    ids = list(dict.fromkeys(_id_of(one) for one in done))
    if all(_standing([app.queue.get(job_id)]) is Standing.DONE for job_id in ids):
        return app._enqueuer.all([run])[0]
    watch_id = records.made_id("held")
    new, link = _held(app, run, watch_id, 0, ids, {})
    try:
        [handle] = _enqueue(app, watch_id, [link], [new])
    except JobExistsError as error:
        if error.job_id != new.job_id:
            raise
        return app._enqueuer.handle(error.job_id, created=False)
    return handle


def _app_of(what: str, jobs: Any) -> App:
    for one in jobs:
        if type(one) is not PreparedJob:
            raise TypeError(f"{what} takes what build() gives, such as send.build(42), not {one!r:.100}")
    if not jobs:
        raise ValueError(f"{what} needs at least one job")
    app: App = jobs[0].definition.app
    for one in jobs:
        if one.definition.app is not app:
            raise ValueError(f"{what} takes jobs of one App; {one.definition!r} belongs to another one")
    return app


def _id_of(one: Any) -> str:
    if isinstance(one, JobHandle):
        return one.id
    if type(one) is not str:
        raise TypeError(f"after takes handles or ids of jobs, not {one!r:.100}")
    return one


def _new(app: App, prepared: PreparedJob, marks: dict[str, Any]) -> NewJob:
    """The job, with an id: its own, or one made here."""
    collector = app._enqueuer.collector()
    if collector is not None:
        marks = {**marks, "batch": collector.batch_id}
    new = app._enqueuer.new_job(prepared, marks)
    new.job_id = new.job_id or records.made_id("job")
    return new


def _held(
    app: App, prepared: PreparedJob, watch_id: str, number: int, of: list[str], marks: dict[str, Any]
) -> tuple[NewJob, Link]:
    new = _new(app, prepared, {**marks, "held": records.numbered(watch_id, number)})
    link = Link(str(new.job_id), of, new.delay, new.run_at)
    new.delay, new.run_at = records.FAR_S, None
    return new, link


def _enqueue(app: App, watch_id: str, links: list[Link], news: list[NewJob]) -> list[JobHandle[Any]]:
    """With one write: now, or at the end of the block that this is called in."""
    record = records.record(records.HELD, watch_id, links=[list(link) for link in links])
    collector = app._enqueuer.collector()
    if collector is not None:
        members = [
            Member(new, app._enqueuer.handle(None, why_none=NOT_YET), may_exist=False, bound=watch_id)
            for new in news
        ]
        collector.add(members, [record])
        return [member.handle for member in members]
    try:
        jobs = app.queue.enqueue_all([record, *news], all_new=True)[1:]
    except JobsDiscardedError:
        handles = [app._enqueuer.handle(None) for _ in news]
        for handle in handles:
            handle._not_enqueued(KEPT_OUT, kept_out=True)
        return handles
    app._look_soon(watch_id)
    app._enqueuer.enqueued()
    return [app._enqueuer.handle(job.id) for job in jobs]


# -- watching


class Standing(Enum):
    """How things stand with the jobs that a job waits for."""

    DONE = auto()
    WAIT = auto()
    LOST = auto()


def _standing(jobs: list[Job | None]) -> Standing:
    if any(job is None or records.was_cancelled(job) for job in jobs):
        return Standing.LOST
    done = all(job is not None and job.state is JobState.DONE for job in jobs)
    return Standing.DONE if done else Standing.WAIT


class HeldJobs:
    """A chain, or one job that waits for others. The links are looked at in order: each waits for the one
    before it.
    """

    def __init__(self, record: Job) -> None:
        self.id = record.id
        self.over = False
        self._links = [Link(*link) for link in record.payload["links"]]
        self._at = 0

    def awaits(self) -> list[str]:
        return [] if self._at == len(self._links) else self._links[self._at].of

    def look(self, queue: Queue) -> int:
        moved = 0
        while self._at < len(self._links):
            link = self._links[self._at]
            job = found(queue, link.job)
            if job is not None and records.is_held(job):
                standing = _standing([found(queue, job_id) for job_id in link.of])
                if standing is Standing.WAIT:
                    return moved
                if standing is Standing.LOST:
                    self._tell_lost(queue, link)
                    queue.reschedule(link.job, delay=0.0)
                elif link.run_at is not None:
                    queue.reschedule(link.job, run_at=link.run_at)
                else:
                    queue.reschedule(link.job, delay=link.delay)
                moved += 1
            self._at += 1
        records.cancel(queue, self.id)
        self.over = True
        return moved

    def _tell_lost(self, queue: Queue, link: Link) -> None:
        """Write down why the job can't run; it becomes dead by that when a worker takes it."""
        gone = [_lost_because(job_id, found(queue, job_id)) for job_id in link.of]
        reason = (
            f"held until others are done, which can't be: {'; '.join(filter(None, gone))}. "
            "Requeue this job to run it all the same"
        )
        record_id = records.numbered(self.id, self._at)
        queue.enqueue_all([records.record(records.LOST, record_id, job=link.job, reason=reason)])


def _lost_because(job_id: str, job: Job | None) -> str | None:
    if job is None:
        return f"job {job_id} is not known any more: dropped, purged, or done longer ago than keep_done"
    return f"job {job_id} was cancelled" if records.was_cancelled(job) else None


class LostJob:
    """A job that can't run, until a worker has made it dead."""

    def __init__(self, record: Job) -> None:
        self.id = record.id
        self.over = False
        self._job: str = record.payload["job"]

    def awaits(self) -> list[str]:
        return [self._job]

    def look(self, queue: Queue) -> int:
        job = found(queue, self._job)
        if job is not None and job.state in (JobState.READY, JobState.LEASED):
            return 0
        records.cancel(queue, self.id)
        self.over = True
        return 0


def why_lost(queue: Queue, job: Job, held: str) -> str | None:
    """Why a job that was held can't run; None: it can, or was told so once and was requeued."""
    if type(job.job_state) is dict and job.job_state.get(TOLD):
        return None
    record = found(queue, held)
    if record is None or records.kind_of(record) != records.LOST:
        return None
    return str(record.payload["reason"])
