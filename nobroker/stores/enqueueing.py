"""Putting jobs in: enqueue, and the restoring of whole jobs by an import."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, cast

from nobroker.job import Job, JobState
from nobroker.limits import from_shown
from nobroker.state import kinds
from nobroker.state.machine import Head
from nobroker.state.numbers import pack_words
from nobroker.state.owned import id_digests
from nobroker.stores.base import NewJobs
from nobroker.stores.lookup import Lookup
from nobroker.stores.newjobs import JobBatch, common_head, new_job
from nobroker.stores.session import Part, Session
from nobroker.stores.tip import TipEnqueuer
from nobroker.values import (
    BATCH_BYTES,
    BATCH_JOBS,
    join_array,
    pack_list,
    pack_plain,
    pack_value,
    split_array,
    unpack,
)

_RESTORED_STATES: Final = {JobState.READY: "r", JobState.LEASED: "r", JobState.DONE: "d", JobState.DEAD: "x"}


RECORD_BYTES: Final = 256
"""Of a record without payloads, ids, lane and metadata, at most; its share of a segment's header included."""


class Enqueuer:
    """Appends jobs."""

    def __init__(self, session: Session, lookup: Lookup) -> None:
        self._session = session
        self._lookup = lookup
        self._tip = TipEnqueuer(session)

    def enqueue(self, new: NewJobs) -> Sequence[Job]:
        session = self._session
        if new.ids is not None:
            return self._enqueue_own(new, cast("list[str]", new.ids))
        if new.count == 0:
            return []
        with session.transaction() as now:
            session.room_for(size_of(new, new.batches, ()))
            session.reserve(new.count, 0)
            first = session.state.next_seq
            head = common_head(new, now)
            end = session.append(parts_of(new.batches, head, first, new.delays_us, None))
            session.log.notify()
        session.log.wait_durable(end)
        return JobBatch(session.reader.prefix, new, head, first)

    def enqueue_one(self, new: NewJobs) -> Job:
        """As `enqueue`, for one job without an id of the caller's."""
        session = self._session
        packed = new.batches[0][1]
        job = self._tip.enqueue(new, packed)
        if job is not None:
            return job
        with session.transaction() as now:
            limited = session.options.max_bytes is not None
            session.room_for(size_of(new, new.batches, ()) if limited else len(packed))
            session.reserve(1, 0)
            seq = session.state.next_seq
            common = common_head(new, now)
            head = {"n": 1, "s": seq, **common}
            end = session.append_one(kinds.ENQUEUE, head, packed, ((seq, 0, 1),))
        session.log.notify()  # now that whoever wakes gets the lock at once
        session.log.wait_durable(end)
        avail = common.get("a", now)
        return new_job(new, common, f"{session.reader.prefix}{seq}", seq, avail, unpack(packed)[0])

    def _enqueue_own(self, new: NewJobs, ids: list[str]) -> Sequence[Job]:
        """With ids of the caller's: only those not yet known are created, each once."""
        session = self._session
        digests = id_digests(ids)
        with session.transaction() as now:
            all_new = session.state.ids.all_new(digests)
            known, fresh = ({}, {}) if all_new else sort_out(self._lookup, ids)
            existing = {job_id: self._lookup.job(seq, now) for job_id, seq in known.items()}
            end = session.log.position
            first = session.state.next_seq
            head = common_head(new, now)
            names = ids if all_new else list(fresh)
            if names:
                batches, delays = new.batches, new.delays_us
                if len(names) != new.count:
                    chosen = list(fresh.values())
                    batches = chosen_of(batches, chosen)
                    delays = delays and array("q", [delays[index] for index in chosen])
                session.room_for(size_of(new, batches, names))
                session.reserve(len(names), 0)
                first = session.state.next_seq
                end = session.append(parts_of(batches, head, first, delays, names))
                session.log.notify()
        session.log.wait_durable(end)
        if all_new:
            return JobBatch(session.reader.prefix, new, head, first)
        return self._answer(new, ids, head, first, fresh, existing)

    def _answer(
        self,
        new: NewJobs,
        ids: list[str],
        head: Head,
        first: int,
        fresh: dict[str, int],
        existing: dict[str, Job],
    ) -> Sequence[Job]:
        if len(fresh) == len(ids):
            return JobBatch(self._session.reader.prefix, new, head, first)
        place = {job_id: seq for seq, job_id in enumerate(fresh, first)}
        made = list(JobBatch(self._session.reader.prefix, new, head, 0))
        answer: list[Job] = []
        for index, job_id in enumerate(ids):
            old = existing.get(job_id)
            if old is not None:
                job = old.snapshot()
                job.created = False
            else:
                job = made[fresh[job_id]].snapshot()
                job.id, job.seq = job_id, place[job_id]
                job.created = fresh[job_id] == index
            answer.append(job)
        return answer

    def restore(self, jobs: Iterable[Job]) -> int:
        """Add whole jobs, with all that they have been through; ids already known are left alone. Returns
        how many were added.
        """
        source = iter(jobs)
        added = 0
        while chunk := list(islice(source, BATCH_JOBS)):
            packed = [pack_list([job.payload], [f"payload of {job.id}"]) for job in chunk]
            overrides = [_override(job) for job in chunk]
            added += self._restore_chunk(chunk, packed, overrides)
        return added

    def _restore_chunk(self, jobs: list[Job], packed: list[bytes], overrides: list[Head]) -> int:
        session = self._session
        fresh: dict[str, tuple[Job, bytes, Head]] = {}
        with session.transaction() as now:
            for job, payload, override in zip(jobs, packed, overrides, strict=True):
                if job.id not in fresh and self._lookup.seq_of(job.id) is None:
                    fresh[job.id] = job, payload, override
            if fresh:
                session.room_for(sum(map(_restored_size, fresh.values())))
                session.reserve(len(fresh), 0)
            seq = session.state.next_seq
            keep = now + session.options.keep_done_us
            parts: list[Part] = []
            group: list[tuple[Job, bytes, Head]] = []
            for job, payload, override in fresh.values():
                if group and (
                    not _alike(group[0][0], job) or sum(len(item[1]) for item in group) > BATCH_BYTES
                ):
                    parts.append(_restored(group, seq, now, keep))
                    seq += len(group)
                    group = []
                group.append((job, payload, override))
            if group:
                parts.append(_restored(group, seq, now, keep))
            end = session.append(parts) if parts else session.log.position
            session.log.notify()
        session.log.wait_durable(end)
        return len(fresh)


def sort_out(lookup: Lookup, ids: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Inside a transaction: sequence numbers of the known ids, and where each other one stands first."""
    known: dict[str, int] = {}
    fresh: dict[str, int] = {}
    for index, job_id in enumerate(ids):
        if job_id not in fresh and job_id not in known:
            seq = lookup.seq_of(job_id)
            if seq is None:
                fresh[job_id] = index
            else:
                known[job_id] = seq
    return known, fresh


def size_of(new: NewJobs, batches: list[tuple[int, bytes]], ids: Iterable[str]) -> int:
    """Bytes that jobs take in the log, at most."""
    common = RECORD_BYTES + _text_size(new.lane) + len(new.metadata or b"")
    if new.limits is not None:
        common += len(pack_plain(new.limits))
    size = sum(len(packed) + common for _, packed in batches) + sum(map(_text_size, ids))
    return size if new.delays_us is None else size + 8 * len(new.delays_us)


def _restored_size(item: tuple[Job, bytes, Head]) -> int:
    """The same for one job that is put back whole, as if it were alone in its record."""
    job, payload, override = item
    values = sum(len(value) for value in override.values() if isinstance(value, bytes))
    texts = sum(map(_text_size, (job.id, job.lane, override.get("E", ""))))
    metadata = 0 if job.metadata is None else len(pack_value(job.metadata, "metadata"))
    limits = 0 if job.limits is None else len(pack_plain(from_shown(job.limits)))
    return RECORD_BYTES + len(payload) + values + texts + metadata + limits


def _text_size(text: str) -> int:
    return 5 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def parts_of(
    batches: list[tuple[int, bytes]],
    common: Head,
    first: int,
    delays_us: array[int] | None,
    ids: Sequence[str | None] | None,
) -> list[Part]:
    """The records of new jobs with sequence numbers from `first` on."""
    parts: list[Part] = []
    at = 0
    now = common["t"]
    for number, packed in batches:
        head = {"n": number, "s": first + at, **common}
        if delays_us is not None:
            head["a"] = pack_words("q", [now + delay for delay in delays_us[at : at + number]])
        if ids is not None and any(job_id is not None for job_id in ids[at : at + number]):
            head["i"] = ids[at : at + number]
        parts.append((kinds.ENQUEUE, head, packed))
        at += number
    return parts


def chosen_of(batches: list[tuple[int, bytes]], indexes: list[int]) -> list[tuple[int, bytes]]:
    """The batches with only the payloads at the indexes, ascending."""
    elements = [element for _, packed in batches for element in split_array(packed)]
    return [
        (len(some), join_array([elements[index] for index in some]))
        for start in range(0, len(indexes), BATCH_JOBS)
        if (some := indexes[start : start + BATCH_JOBS])
    ]


def _alike(one: Job, other: Job) -> bool:
    return (one.lane, one.priority, one.max_attempts, one.expires_at, one.limits) == (
        other.lane,
        other.priority,
        other.max_attempts,
        other.expires_at,
        other.limits,
    ) and pack_value(one.metadata) == pack_value(other.metadata)


def _override(job: Job) -> Head:
    state = _RESTORED_STATES[job.state]
    override: Head = {}
    if (
        state != "r"
        or job.attempts
        or job.last_error is not None
        or job.progress is not None
        or job.job_state is not None
    ):
        override["s"], override["n"] = state, job.attempts
    if job.last_error is not None:
        override["E"] = job.last_error
    for key, value in (("R", job.result), ("P", job.progress), ("J", job.job_state)):
        if value is not None:
            override[key] = pack_value(value, f"value of {job.id}")
    return override


def _restored(group: list[tuple[Job, bytes, Head]], seq: int, now: int, keep_until: int) -> Part:
    first = group[0][0]
    head: Head = {
        "t": now,
        "n": len(group),
        "q": [seq, seq + len(group) - 1],
        "e": pack_words("q", [round(job.enqueued_at * 1e6) for job, _, _ in group]),
        "a": pack_words("q", [round(job.available_at * 1e6) for job, _, _ in group]),
        "i": [job.id for job, _, _ in group],
    }
    if first.priority:
        head["p"] = first.priority
    if first.max_attempts != 5:
        head["m"] = first.max_attempts
    if first.lane:
        head["l"] = first.lane
    if first.expires_at is not None:
        head["x"] = round(first.expires_at * 1e6)
    if first.metadata is not None:
        head["M"] = pack_value(first.metadata, "metadata")
    if first.limits is not None:
        head["c"] = from_shown(first.limits)
    overrides = {}
    for index, (job, _, override) in enumerate(group):
        if override:
            if job.state is JobState.DONE:
                override["K"] = keep_until
            overrides[index] = override
    if overrides:
        head["o"] = overrides
    return kinds.MOVE, head, join_array([payload[1:] for _, payload, _ in group])
