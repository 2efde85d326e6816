"""Records -> jobs: where the values of a job are found, and how it looks now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from nobroker.job import Job, JobState
from nobroker.limits import shown
from nobroker.state import codes, kinds
from nobroker.state.entries import CANCEL, CANCELLED, EXPIRED, NO_EXPIRY, Entry
from nobroker.state.machine import State
from nobroker.state.numbers import column, columns
from nobroker.state.replay import MISFITS
from nobroker.stores.base import Alike
from nobroker.stores.decoded import Decoded
from nobroker.values import unpack
from nobroker_mmap.log import Log
from nobroker_mmap.offsets import Piece
from nobroker_mmap.record import Record

_CACHED_RECORDS: Final = 8
_CACHED_BYTES: Final = 8 * 2**20
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"


_PLAIN_KEYS: Final = frozenset("nstpmla")
"""Keys of the head of a record whose jobs differ in nothing but payload and time."""


class Past(NamedTuple):
    """What a job has been through before a lease."""

    attempts: int
    flags: int
    error: str | None
    progress: Any
    state: Any


class Reader:
    """Jobs from the log, with the records used last at hand."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._cache: OrderedDict[int, Decoded] = OrderedDict()
        self._cached_bytes = 0
        self.prefix = default_prefix(log.log_id)

    def forget(self) -> None:
        """Drop what is at hand (after a fork, or when the log's state is loaded anew)."""
        self._cache.clear()
        self._cached_bytes = 0

    def job_id(self, seq: int, found: Decoded, index: int) -> str:
        ids = found.head.get("i")
        own = ids[index] if ids else None
        return f"{self.prefix}{seq}" if own is None else own

    def default_seq(self, job_id: str) -> int | None:
        """The sequence number in an id that the queue made; None for any other."""
        if not job_id.startswith(self.prefix):
            return None
        digits = job_id[len(self.prefix) :]
        return (
            int(digits)
            if digits.isascii() and digits.isdigit() and (digits[0] != "0") and len(digits) < 17
            else None
        )

    # -- records

    def decoded(self, record: Record) -> Decoded:
        """Decode, or the one at hand."""
        found = self._cache.get(record.lsn)
        return found if found is not None else self._keep(record)

    def at(self, lsn: int) -> Decoded:
        found = self._cache.get(lsn)
        return found if found is not None else self._keep(self._log.read_at(lsn))

    def of(self, piece: Piece) -> Decoded:
        """The verified record of a piece."""
        lsn = piece.segment.origin + piece.offset
        found = self._cache.get(lsn)
        if found is None:
            found = self._keep(self._log.read(piece))
        else:
            self._cache.move_to_end(lsn)
        if piece.index + piece.last - piece.first >= found.head.get("n", 0):
            raise found.corrupt("it does not hold the jobs that the index says")
        return found

    def _keep(self, record: Record) -> Decoded:
        found = Decoded(record)
        if found.head.get("n") == 1:
            return found  # nothing more will be asked of it
        self._cache[record.lsn] = found
        self._cached_bytes += len(record.body)
        while len(self._cache) > 1 and (
            len(self._cache) > _CACHED_RECORDS or self._cached_bytes > _CACHED_BYTES
        ):
            _, old = self._cache.popitem(last=False)
            self._cached_bytes -= len(old.record.body)
        return found

    def find(self, seq: int) -> tuple[Decoded, int] | None:
        """The record with the newest copy of a job, and its index there."""
        piece = self._log.find_one(seq)
        return None if piece is None else (self.of(piece), piece.index)

    # -- jobs

    def job(self, state: State, seq: int, now: int, found: Decoded, index: int) -> Job:
        """A job as it is at `now`: leases that have ended by then count as ended."""
        head = found.head
        enqueued = column(head.get("e") or head["t"], index)
        code = state.pages.code(seq)
        entry = state.entries.get(seq)
        metadata = head.get("M")
        expires = head.get("x")
        job = Job(
            self.job_id(seq, found, index),
            found.value(index),
            head.get("p", 0),
            _STATES[code],
            state.attempts(seq),
            head.get("m", 5),
            column(head.get("a") or enqueued, index) / 1e6,
            enqueued / 1e6,
            None,
            state.pages.token(seq) or None,
            None,
            seq,
            head.get("l", ""),
            None if metadata is None else unpack(metadata),
        )
        if expires:
            job.expires_at = expires / 1e6
        if "c" in head:
            job.limits = shown(head["c"])
        if entry is not None:
            self._add_entry(job, entry, seq)
        if expires and expires <= now and state.never_leased(seq):
            job.state, job.last_error, job.available_at = JobState.DEAD, "expired", expires / 1e6
        if code == codes.LEASED:
            _add_lease(job, state, seq, now, entry)
        ref = state.pages.ref(seq)
        if ref and code == codes.DONE:
            job.result = self.result(ref, seq)
        return job

    def alike(self, seqs: range, now: int, found: Decoded, index: int) -> Alike | None:
        """Waiting jobs that were never leased; None when their time is over at `now`."""
        head, stop = found.head, index + len(seqs)
        expires, metadata, ids = head.get("x"), head.get("M"), head.get("i")
        if expires and expires <= now:
            return None
        enqueued = columns(head.get("e") or head["t"], index, stop)
        job = Job(
            self.job_id(seqs[0], found, index),
            None,
            head.get("p", 0),
            max_attempts=head.get("m", 5),
            seq=seqs[0],
            lane=head.get("l", ""),
            metadata=None if metadata is None else unpack(metadata),
            expires_at=expires / 1e6 if expires else None,
            limits=shown(head.get("c")),
        )
        return Alike(
            job,
            seqs,
            self.prefix,
            ids[index:stop] if ids else None,
            enqueued,
            columns(head["a"], index, stop) if head.get("a") else enqueued,
            found.record.tail_bytes,
            index,
            found.corrupt,
        )

    def leased(
        self, seq: int, token: int, deadline: int, avail: int, past: Past | None, found: Decoded, index: int
    ) -> Job:
        """A job just leased, as the lease's record says; `past` has what went before, when there is
        something.
        """
        head = found.head
        enqueued = column(head.get("e") or head["t"], index)
        metadata = head.get("M")
        job = Job(
            self.job_id(seq, found, index),
            found.value(index),
            head.get("p", 0),
            JobState.LEASED,
            1,
            head.get("m", 5),
            avail / 1e6,
            enqueued / 1e6,
            deadline / 1e6,
            token,
            None,
            seq,
            head.get("l", ""),
            None if metadata is None else unpack(metadata),
        )
        if "x" in head and not (past is not None and past.flags & NO_EXPIRY):
            job.expires_at = head["x"] / 1e6
        if "c" in head:
            job.limits = shown(head["c"])
        if past is not None:
            job.attempts, job.last_error = past.attempts, past.error
            job.progress, job.job_state = past.progress, past.state
            job.cancel_requested = past.flags & CANCEL != 0
        return job

    def leased_run(
        self,
        piece: Piece,
        token: int,
        deadline: int,
        avails: Iterator[int],
        past: dict[int, Past],
        found: Decoded,
    ) -> list[Job]:
        """As `leased`, for the jobs of a piece; their tokens count up from `token`."""
        head, start, first = found.head, piece.index - piece.first, piece.first
        numbers = range(first, piece.last + 1)
        if past or not head.keys() <= _PLAIN_KEYS:
            return [
                self.leased(
                    seq, seq - first + token, deadline, next(avails), past.get(seq), found, start + seq
                )
                for seq in numbers
            ]
        prefix, value, leased = self.prefix, found.value, JobState.LEASED
        priority, limit, lane = head.get("p", 0), head.get("m", 5), head.get("l", "")
        enqueued, until, delta = head["t"] / 1e6, deadline / 1e6, token - first
        return [
            Job(
                f"{prefix}{seq}",
                value(start + seq),
                priority,
                leased,
                1,
                limit,
                avail / 1e6,
                enqueued,
                until,
                seq + delta,
                None,
                seq,
                lane,
            )
            for seq, avail in zip(numbers, avails, strict=False)
        ]

    def past(self, seq: int, entry: Entry) -> Past:
        """What an entry says of a job, with the values it refers to."""
        error = self.said(entry.error, seq, "E") if entry.error else None
        progress = self.said(entry.progress, seq, "P") if entry.progress else None
        state = self.said(entry.state, seq, "J") if entry.state else None
        return Past(entry.attempts, entry.flags, error, progress, state)

    def _add_entry(self, job: Job, entry: Entry, seq: int) -> None:
        if entry.avail or job.state is not JobState.DONE:
            job.available_at = entry.avail / 1e6
        if entry.token and job.state is not JobState.DONE:
            job.lease_token = entry.token
        if entry.error:
            job.last_error = self.said(entry.error, seq, "E")
        if entry.progress:
            job.progress = self.said(entry.progress, seq, "P")
        if entry.state:
            job.job_state = self.said(entry.state, seq, "J")
        if entry.flags & CANCELLED:
            job.last_error = "cancelled"
        elif entry.flags & EXPIRED and job.state is JobState.DEAD:
            job.last_error = "expired"
        job.cancel_requested = entry.flags & CANCEL != 0
        if entry.flags & NO_EXPIRY:
            job.expires_at = None

    def result(self, ref: int, seq: int) -> Any:
        found = self.at(ref)
        if found.record.type in kinds.WHOLE:
            return self.said(ref, seq, "R")
        if found.record.type != kinds.ACK or not found.record.tail_bytes:
            return None
        return found.value(found.place_of(seq))

    def said(self, ref: int, seq: int, what: str) -> Any:
        """What the record at `ref` says of a job: E error, P progress, J job state, R result.

        Raises:
            CorruptLogError: it is not the record that was believed to be there.
        """
        found = self.at(ref)
        try:
            return _said(found, seq, what)
        except MISFITS as error:
            raise found.corrupt(repr(error)) from error

    def keep_until(self, ref: int, seq: int) -> int:
        """Until when a finished job is remembered."""
        found = self.at(ref)
        if found.record.type in kinds.WHOLE:
            return int(found.head.get("o", {}).get(found.place_of(seq), {}).get("K", 0))
        return int(found.head.get("k", 0))


_STATES: Final = {
    codes.NONE: JobState.DONE,
    codes.READY: JobState.READY,
    codes.DELAYED: JobState.READY,
    codes.RETRY: JobState.READY,
    codes.RETRY_LATER: JobState.READY,
    codes.LEASED: JobState.LEASED,
    codes.DONE: JobState.DONE,
    codes.DEAD: JobState.DEAD,
}


def _said(found: Decoded, seq: int, what: str) -> Any:
    index = found.place_of(seq)
    if found.record.type in kinds.WHOLE:
        packed = found.head.get("o", {}).get(index, {}).get(what)
        return packed if what == "E" or packed is None else unpack(packed)
    if what == "J" and found.record.type != kinds.EXTEND:
        return unpack(found.head["J"])
    said = found.value(index)
    if what == "E" or said is None:
        return said
    part = said[0 if what == "P" else 1]
    return None if part is None else part[0]


def _add_lease(job: Job, state: State, seq: int, now: int, entry: Entry | None) -> None:
    lease = state.leased[seq]
    job.lease_token = seq + lease.delta
    if lease.deadline > now:
        job.lease_deadline = lease.deadline / 1e6
        job.available_at = lease.place(seq) / 1e6
        return
    job.available_at = lease.deadline / 1e6
    flags = entry.flags if entry is not None else 0
    if flags & CANCEL:
        job.state, job.last_error, job.cancel_requested = JobState.DONE, "cancelled", False
    elif job.attempts >= lease.max_attempts:
        job.state, job.last_error = JobState.DEAD, lease_expired(job.attempts)
    else:
        job.state = JobState.READY


def lease_expired(attempts: int) -> str:
    return f"lease expired on attempt {attempts}: its holder died or was too slow"


def default_prefix(log_id: int) -> str:
    """`nb-`, the log's id in base 32, and a dash."""
    return "nb-" + "".join(_DIGITS[log_id >> shift & 31] for shift in range(60, -1, -5)) + "-"
