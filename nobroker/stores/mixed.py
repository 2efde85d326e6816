"""Jobs of several kinds in one call: all of them or none.

Invariants
- One lock, one group of records, one sync.
- Those that are created have sequence numbers that follow each other, in the order given.
- What a limit discards is written nowhere: whoever enqueued it is told.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from nobroker.errors import JobExistsError, JobsDiscardedError
from nobroker.job import Job, JobState
from nobroker.state.machine import Head
from nobroker.state.owned import id_digests
from nobroker.stores.base import NewJobs
from nobroker.stores.enqueueing import RECORD_BYTES, chosen_of, parts_of, size_of, sort_out
from nobroker.stores.lookup import Lookup
from nobroker.stores.newjobs import JobBatch, common_head
from nobroker.stores.session import Part, Session


class MixedEnqueuer:
    """Appends groups of jobs that are alike."""

    def __init__(self, session: Session, lookup: Lookup) -> None:
        self._session = session
        self._lookup = lookup

    def enqueue(self, groups: Sequence[NewJobs], all_new: bool) -> list[Job]:
        """Add jobs that are not known yet, each id once.

        Raises:
            JobExistsError, JobsDiscardedError: with `all_new`, when an id is known or repeated, or a limit
                keeps a job out; nothing was added.
        """
        session = self._session
        ids = list(_own(groups))
        digests = id_digests(ids)
        known: dict[str, int] = {}
        existing: dict[str, Job] = {}
        made: list[Sequence[Job]] = []
        with session.transaction() as now:
            fresh = not ids or session.state.ids.all_new(digests)
            if not fresh:
                known, first_at = sort_out(self._lookup, ids)
                fresh = len(first_at) == len(ids)
                existing = {job_id: self._lookup.job(seq, now) for job_id, seq in known.items()}
            end = session.log.position
            kept_out = self._kept_out(groups, now) if fresh and all_new else []
            if not kept_out and (fresh or not all_new):
                new = groups if fresh else _not_known(groups, known)
                if new:
                    end = self.append(new, now, made)
        session.log.wait_durable(end)
        if not fresh and all_new:
            raise self._exists(ids, known)
        if kept_out:
            message = f"limits keep {len(kept_out):,} of the jobs out; none of them was added"
            raise JobsDiscardedError(f"{message} to {session.log.path}", kept_out)
        jobs: Iterator[Job] = chain.from_iterable(made)
        return list(jobs) if fresh else list(_answers(groups, jobs, existing))

    def append(
        self, groups: Sequence[NewJobs], now: int, made: list[Sequence[Job]], before: Sequence[Part] = ()
    ) -> int:
        """Inside a transaction: add jobs that are not known, as far as their limits let them in. `made` gets
        them, and what is told of the others, in order; returns the end of the log.

        Args:
            before: small records that go before the jobs; nothing is written of them when there are none.
        """
        session = self._session
        session.state.ready.now = now
        rooms = list(self._rooms(groups))
        taken = [
            new if room >= new.count else _part_of(new, list(range(room)))
            for new, room in zip(groups, rooms, strict=True)
        ]
        if any(new.count for new in taken):
            size = sum(size_of(new, new.batches, _own([new])) for new in taken)
            session.room_for(size + RECORD_BYTES * len(before))
        session.reserve(sum(new.count for new in taken), 0)
        prefix, seq = session.reader.prefix, session.state.next_seq
        parts: list[Part] = []
        for new, given, room in zip(taken, groups, rooms, strict=True):
            head = common_head(new, now)
            parts += parts_of(new.batches, head, seq, new.delays_us, new.ids)
            made.append(JobBatch(prefix, new, head, seq))
            if new is not given:
                made.append(_discarded(given, head, room))
            seq += new.count
        if not parts:
            return session.log.position
        end = session.append([*before, *parts])
        session.log.notify()
        return end

    def _kept_out(self, groups: Sequence[NewJobs], now: int) -> list[int]:
        """Indexes of the jobs that their limits would keep out."""
        self._session.state.ready.now = now
        found: list[int] = []
        start = 0
        for new, room in zip(groups, self._rooms(groups), strict=True):
            found += range(start + room, start + new.count)
            start += new.count
        return found

    def _rooms(self, groups: Sequence[NewJobs]) -> Iterator[int]:
        """How many jobs of each group their limits let in."""
        ready = self._session.state.ready
        entered: Counter[tuple[str, str]] = Counter()
        for new in groups:
            room, said = new.count, new.limits or {}
            for key, limit, *discard in said.get("k", ()):
                if discard:
                    room = min(room, max(0, limit - ready.entered(key) - entered["k", key]))
            for key, most, duration, *discard in said.get("r", ()):
                if discard:
                    room = min(room, max(0, most - ready.used(key, duration) - entered["r", key]))
            for kind in "kr":
                for key, *_ in said.get(kind, ()):
                    entered[kind, key] += room
            yield room

    def _exists(self, ids: list[str], known: dict[str, int]) -> JobExistsError:
        seen: set[str] = set()
        for job_id in ids:
            if job_id in known or job_id in seen:
                break
            seen.add(job_id)
        what = "is known already" if job_id in known else "is given twice"
        where = self._session.log.path
        return JobExistsError(f"job_id {job_id!r} {what} in {where}; none of the jobs was added", job_id)


def _own(groups: Iterable[NewJobs]) -> Iterator[str]:
    """The callers' own ids, in order."""
    return (job_id for new in groups for job_id in new.ids or () if job_id is not None)


def _not_known(groups: Sequence[NewJobs], known: dict[str, int]) -> list[NewJobs]:
    """What is to be added: ids that are known, and repeats, left out."""
    seen: set[str | None] = set(known)
    found: list[NewJobs] = []
    for new in groups:
        indexes = []
        for index, job_id in enumerate(new.ids or [None] * new.count):
            if job_id is None or job_id not in seen:
                seen.add(job_id)
                indexes.append(index)
        if len(indexes) == new.count:
            found.append(new)
        elif indexes:
            found.append(_part_of(new, indexes))
    return found


def _part_of(new: NewJobs, indexes: list[int]) -> NewJobs:
    """The same with some of its jobs only."""
    part = NewJobs(chosen_of(new.batches, indexes), len(indexes), new.max_attempts)
    part.priority, part.lane, part.metadata, part.limits = new.priority, new.lane, new.metadata, new.limits
    part.delay_us, part.run_at_us, part.expires_us = new.delay_us, new.run_at_us, new.expires_us
    if new.delays_us is not None:
        part.delays_us = array("q", [new.delays_us[index] for index in indexes])
    if new.ids is not None:
        part.ids = [new.ids[index] for index in indexes]
    return part


def _discarded(new: NewJobs, head: Head, start: int) -> list[Job]:
    """What is told of the jobs from an index on, which are not taken in."""
    jobs = JobBatch("", new, head, 0)[start:]
    for index, job in enumerate(jobs, start):
        own = None if new.ids is None else new.ids[index]
        job.id, job.seq = own or "", 0
        job.state, job.created, job.last_error = JobState.DONE, False, "discarded: its key has no room"
    return jobs


def _answers(groups: Sequence[NewJobs], made: Iterator[Job], existing: dict[str, Job]) -> Iterator[Job]:
    """One job for each that was given; those that were not created are said to be so."""
    for new in groups:
        for job_id in new.ids or [None] * new.count:
            old = None if job_id is None else existing.get(job_id)
            if old is None:
                job = next(made)
                if job_id is not None:
                    existing[job_id] = job
            else:
                job = old.snapshot()
                job.created = False
            yield job
