"""Jobs that are enqueued inside a block: collected there, and enqueued together at its end.

Invariants
- What belongs to a block is enqueued with one write, all of it or nothing.
- A collector that is closed takes nothing more: calls in tasks that outlive their block enqueue as usual.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

from nobroker.app.handle import KEPT_OUT, JobHandle
from nobroker.app.records import found
from nobroker.errors import JobExistsError, JobsDiscardedError
from nobroker.job import NewJob
from nobroker.queue import Queue

T = TypeVar("T")

NOT_YET: Final = "the block of its batch has not ended; jobs in it are enqueued at its end"


class Member(NamedTuple):
    """A job of a block.

    Attributes:
        new: the job.
        handle: of it, without an id so far.
        may_exist: whether a job with its own id may be known already; then this one is left out.
        bound: the record that ties it to others, as one of a chain: with one of them, a limit keeps out all,
            and the record.
    """

    new: NewJob
    handle: JobHandle[Any]
    may_exist: bool = True
    bound: str | None = None


class Collector:
    """What is enqueued inside one block, in the order of the calls.

    Args:
        owner: the application whose jobs are collected.
        batch_id: the batch that they belong to.
        outer: the collector of the block around this one.
    """

    def __init__(self, owner: object, batch_id: str, outer: Collector | None) -> None:
        self.owner = owner
        self.batch_id = batch_id
        self.outer = outer
        self.members: list[Member] = []
        self.beside: list[NewJob] = []  # records that go along without being members
        self.open = True
        self._tell: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # guards the fields above

    def add(self, members: Iterable[Member], beside: Iterable[NewJob] = ()) -> None:
        """Take jobs in.

        Raises:
            RuntimeError: the block has ended meanwhile, in another thread.
        """
        with self._lock:
            if not self.open:
                raise RuntimeError("the block of the batch ended while a job was being added to it")
            self.members += members
            self.beside += beside

    def when_enqueued(self, tell: Callable[[], None]) -> None:
        """Call this when the block's jobs are on the queue."""
        self._tell.append(tell)

    def close(self) -> None:
        """Take nothing more."""
        with self._lock:
            self.open = False

    def enqueued(self) -> None:
        """Tell those who asked for it."""
        for tell in self._tell:
            tell()

    def given_up(self, why: str) -> None:
        """Nothing was enqueued: let the handles say so."""
        for member in self.members:
            member.handle._not_enqueued(why)


CURRENT: ContextVar[Collector | None] = ContextVar("nobroker_collector", default=None)


def collector_of(owner: object) -> Collector | None:
    """The innermost block of an application that the calling code is in."""
    collector = CURRENT.get()
    while collector is not None and not (collector.owner is owner and collector.open):
        collector = collector.outer
    return collector


def write(
    queue: Queue, record: Callable[[int], NewJob], members: Sequence[Member], beside: Sequence[NewJob]
) -> int:
    """Enqueue members behind their record. Those whose own id is known already are left out, and so are those
    that a limit keeps out; their handles say so.

    Args:
        record: makes the record for so many members.

    Returns:
        How many were enqueued.

    Raises:
        JobExistsError: some other id is known; nothing was written.
    """
    chosen, records = list(members), list(beside)
    kept_out: list[Member] = []
    while True:
        try:
            jobs = queue.enqueue_all(
                [*records, record(len(chosen)), *[member.new for member in chosen]], all_new=True
            )
            break
        except JobsDiscardedError as error:
            met = [chosen[index - len(records) - 1] for index in error.jobs]
            bound = {member.bound for member in met} - {None}
            out = set(map(id, met)) | {id(member) for member in chosen if member.bound in bound}
            kept_out += [member for member in chosen if id(member) in out]
            chosen = [member for member in chosen if id(member) not in out]
            records = [new for new in records if new.job_id not in bound]
        except JobExistsError as error:
            mine = [member for member in chosen if member.new.job_id == error.job_id]
            if not mine or not all(member.may_exist for member in mine):
                raise
            chosen = left_out(queue, chosen, lambda member: member.new.job_id if member.may_exist else None)
    for member, job in zip(chosen, jobs[len(records) + 1 :], strict=True):
        member.handle._enqueued(job.id, created=True)
    for member in kept_out:
        member.handle._not_enqueued(KEPT_OUT, kept_out=True)
    if len(chosen) + len(kept_out) < len(members):
        kept = set(map(id, [*chosen, *kept_out]))
        for member in members:
            if id(member) not in kept and member.new.job_id is not None:
                member.handle._enqueued(member.new.job_id, created=False)
    return len(chosen)


def left_out(queue: Queue, items: Sequence[T], id_of: Callable[[T], str | None]) -> list[T]:
    """The items without those whose id is known to the queue, or stands before them already."""
    seen: set[str] = set()
    kept: list[T] = []
    for item in items:
        job_id = id_of(item)
        if job_id is not None:
            if job_id in seen or found(queue, job_id) is not None:
                continue
            seen.add(job_id)
        kept.append(item)
    return kept
