"""What a holder says of its jobs: ack, nack, extend, release; and cancel and reschedule, which others say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nobroker.errors import CorruptLogError, NotLeasedError
from nobroker.job import Job
from nobroker.lanes import Selection
from nobroker.state import codes, kinds
from nobroker.state.entries import CANCEL
from nobroker.state.machine import Head
from nobroker.state.numbers import ranges_of
from nobroker.stores.base import JobRef
from nobroker.stores.leasing import Leaser
from nobroker.stores.lookup import Lookup
from nobroker.stores.session import Part, Session
from nobroker.values import join_array, pack_plain

_NIL = b"\xc0"


class Settled:
    """Which of some references are held, by their place in the call."""

    __slots__ = ("done", "held", "lost", "missing")

    def __init__(self) -> None:
        self.held: list[tuple[int, int]] = []
        """`(sequence number, index in the call)`."""
        self.done: list[int] = []
        self.lost: list[int] = []
        self.missing: list[int] = []


class Settler:
    """Writes down the outcome of leases."""

    def __init__(self, session: Session, lookup: Lookup, leaser: Leaser) -> None:
        self._session = session
        self._lookup = lookup
        self._leaser = leaser

    def sort_out(self, jobs: Sequence[JobRef]) -> Settled:
        """Inside a transaction: who still holds what."""
        state = self._session.state
        found = Settled()
        seen: set[int] = set()
        for index, job in enumerate(jobs):
            plain = self._plainly_held(job)
            if plain:
                if plain not in seen:
                    seen.add(plain)
                    found.held.append((plain, index))
                continue
            seq, token = self._lookup.resolve(job)
            if seq is None:
                found.missing.append(index)
                continue
            lease = state.leased.get(seq)
            if lease is not None and (token is None or token == seq + lease.delta):
                if seq not in seen:
                    seen.add(seq)
                    found.held.append((seq, index))
            elif state.pages.code(seq) == codes.DONE and (
                token is None or 0 != token == state.pages.token(seq)
            ):
                found.done.append(index)
            else:
                found.lost.append(index)
        return found

    def ack(self, jobs: Sequence[JobRef], results: Sequence[bytes | None] | None, many: bool) -> None:
        session = self._session
        with session.transaction() as now:
            if not many and results is None and (seq := self._plainly_held(jobs[0])):
                end = session.append_one(kinds.ACK, {"t": now, "q": [seq, seq]}, b"")
                session.notify_freed()
                found = None
            else:
                found = self.sort_out(jobs)
                if not many:
                    self._refuse_one(jobs, found)
                parts = self.ack_parts(found, results, now)
                end = session.append(parts) if parts else session.log.position
                session.notify_freed()
        session.log.wait_durable(end)
        if found is not None:
            self._refuse_many(jobs, found)

    def _plainly_held(self, job: JobRef) -> int:
        """The number of a job with an id of ours that is held by its token; 0 when that has to be looked
        into.
        """
        if type(job) is not Job:
            return 0
        state, seq = self._session.state, job.seq
        lease = state.leased.get(seq)
        if (
            lease is None
            or job.lease_token != seq + lease.delta
            or job.id != f"{self._session.reader.prefix}{seq}"
            or state.pages.has_own_id(seq)
        ):
            return 0
        return seq

    def ack_parts(self, found: Settled, results: Sequence[bytes | None] | None, now: int) -> list[Part]:
        """The records of an ack: one for jobs to be remembered a while, one for the others."""
        state = self._session.state
        kept: list[tuple[int, bytes | None]] = []
        plain: list[int] = []
        for seq, index in found.held:
            result = None if results is None else results[index]
            if result is not None or state.pages.has_own_id(seq):
                kept.append((seq, result))
            else:
                plain.append(seq)
        parts: list[Part] = []
        if plain:
            parts.append((kinds.ACK, {"t": now, "q": ranges_of(plain)}, b""))
        if kept:
            head: Head = {
                "t": now,
                "q": ranges_of([seq for seq, _ in kept]),
                "k": now + self._session.options.keep_done_us,
            }
            tail = b""
            if any(result is not None for _, result in kept):
                tail = join_array([_NIL if result is None else result for _, result in kept])
            parts.append((kinds.ACK, head, tail))
        return parts

    def settle_and_lease(
        self,
        acks: Sequence[tuple[Job, bytes | None]],
        count: int,
        timeout_us: int,
        lanes: Selection,
    ) -> tuple[list[Job], list[Job], list[Job], int]:
        """Acks and the next lease in one group; not yet durable: the ticket says up to where to wait."""
        session = self._session
        jobs = [job for job, _ in acks]
        with session.transaction() as now:
            found = self.sort_out(jobs)
            parts = self.ack_parts(found, [result for _, result in acks], now)
            if parts and session.state.ready.limited:  # what is free by that is free for the next lease
                session.append(parts)
                parts = []
            try:
                taken = self._leaser.take(now, count, timeout_us, lanes) if count else None
            except CorruptLogError:
                if parts:  # a job ahead cannot be read; that is no reason to do the finished ones again
                    session.append(parts)
                raise
            if taken is not None:
                parts.append(taken.part)
            end = session.append(parts) if parts else session.log.position
            if taken is not None:
                self._leaser.leased(taken)
            else:
                session.notify_freed()
        leased = [] if taken is None else self._leaser.jobs(taken, end)
        return leased, [jobs[index] for index in found.lost], [jobs[index] for index in found.missing], end

    def nack(
        self,
        jobs: Sequence[JobRef],
        error: str | None,
        delay_for: Callable[[int], int],
        dead: bool | None,
        state: bytes | None,
        many: bool,
    ) -> list[Job]:
        session = self._session
        with session.transaction() as now:
            found = self._open_only(jobs, many)
            end = session.log.position
            if found.held:
                kind, head, tail = self._nack_part(found, error, delay_for, dead, now)
                if state is not None:
                    head["J"] = state
                end = session.append([(kind, head, tail)])
                session.log.notify()
            answer = self._answer(found, now)
        session.log.wait_durable(end)
        self._refuse_many(jobs, found)
        return answer

    def _nack_part(
        self, found: Settled, error: str | None, delay_for: Callable[[int], int], dead: bool | None, now: int
    ) -> Part:
        state = self._session.state
        finished, cancelled, avails = [], [], []
        for index, (seq, _) in enumerate(found.held):
            entry = state.entry_of(seq, state.leased[seq])
            avail = now
            if entry.flags & CANCEL:
                cancelled.append(index)
            elif dead or (dead is None and entry.attempts >= entry.max_attempts):
                finished.append(index)
            else:
                avail = now + delay_for(entry.attempts)
            avails.append(avail)
        head: Head = {"t": now, "q": _singles(found), "a": avails}
        if finished:
            head["x"] = finished
        if cancelled:
            head["c"], head["k"] = cancelled, now + self._session.options.keep_done_us
        tail = b""
        if error is not None:
            head["e"] = list(range(len(avails)))
            tail = pack_plain([error] * len(avails))
        return kinds.NACK, head, tail

    def extend(
        self, jobs: Sequence[JobRef], timeout_us: int, progress: bytes | None, state: bytes | None, many: bool
    ) -> list[Job]:
        session = self._session
        with session.transaction() as now:
            found = self._open_only(jobs, many)
            if found.held:
                head: Head = {"t": now, "q": ranges_of([seq for seq, _ in found.held]), "d": now + timeout_us}
                tail = b""
                everyone = list(range(len(found.held)))
                if progress is not None:
                    head["g"] = everyone
                if state is not None:
                    head["s"] = everyone
                if progress is not None or state is not None:
                    pair = join_array([_one(progress), _one(state)])
                    tail = join_array([pair] * len(everyone))
                session.append([(kinds.EXTEND, head, tail)])
            answer = self._answer(found, now)
        self._refuse_many(jobs, found)
        return answer

    def release(self, jobs: Sequence[JobRef], delay_us: int, state: bytes | None, many: bool) -> list[Job]:
        session = self._session
        with session.transaction() as now:
            found = self._open_only(jobs, many)
            if found.held:
                leased = session.state.leased
                avails = [
                    now + delay_us if delay_us else min(now, leased[seq].place(seq)) for seq, _ in found.held
                ]
                head: Head = {"t": now, "q": _singles(found), "a": avails}
                if state is not None:
                    head["J"] = state
                flagged = [seq for seq, _ in found.held if self._is_flagged(seq)]
                parts: list[Part] = [(kinds.RELEASE, head, b"")]
                if flagged:  # cancelled while held: given back means finished
                    keep = now + session.options.keep_done_us
                    parts.append((kinds.CANCEL, {"t": now, "q": ranges_of(flagged), "k": keep}, b""))
                session.append(parts)
                session.log.notify()
            answer = self._answer(found, now)
        self._refuse_many(jobs, found)
        return answer

    def _is_flagged(self, seq: int) -> bool:
        entry = self._session.state.entries.get(seq)
        return entry is not None and entry.flags & CANCEL != 0

    def cancel(self, job_id: str) -> Job:
        session = self._session
        with session.transaction() as now:
            seq = self._lookup.known(job_id)
            code = session.state.pages.code(seq)
            end = session.log.position
            if code in codes.WAITING:
                head: Head = {"t": now, "q": [seq, seq], "k": now + session.options.keep_done_us}
                end = session.append([(kinds.CANCEL, head, b"")])
                session.notify_freed()
            elif code == codes.LEASED:
                end = session.append([(kinds.CANCEL, {"t": now, "g": [seq, seq]}, b"")])
            job = self._lookup.job(seq, now)
        session.log.wait_durable(end)
        return job

    def reschedule(self, job_id: str, delay_us: int, run_at_us: int | None) -> Job:
        session = self._session
        with session.transaction() as now:
            seq = self._lookup.known(job_id)
            end = session.log.position
            if session.state.pages.code(seq) in codes.WAITING:
                head: Head = {"t": now, "q": [seq, seq], "a": now + delay_us}
                if run_at_us is not None:
                    head["a"], head["w"] = run_at_us, True
                shared = self._lookup.head(seq)
                head.update((key, shared[key]) for key in "pmx" if key in shared)
                end = session.append([(kinds.RESCHEDULE, head, b"")])
                session.log.notify()
            job = self._lookup.job(seq, now)
        session.log.wait_durable(end)
        return job

    # -- who may

    def _open_only(self, jobs: Sequence[JobRef], many: bool) -> Settled:
        """As `sort_out`, for verbs to which a finished job is not leased."""
        found = self.sort_out(jobs)
        found.lost += found.done
        found.done = []
        if not many:
            self._refuse_one(jobs, found)
        return found

    def _answer(self, found: Settled, now: int) -> list[Job]:
        return [self._lookup.job(seq, now) for seq, _ in found.held]

    def _refuse_one(self, jobs: Sequence[JobRef], found: Settled) -> None:
        if found.missing:
            raise self._lookup.missing(_id(jobs[0]))
        if found.lost:
            raise NotLeasedError(self._why(jobs[0]), [jobs[0]])

    def _refuse_many(self, jobs: Sequence[JobRef], found: Settled) -> None:
        refused = sorted(found.missing + found.lost)
        if refused:
            one = jobs[refused[0]]
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            raise NotLeasedError(
                f"job {_id(one)!r}{more} is not leased by this caller (any more); "
                f"the other {len(jobs) - len(refused)} were settled",
                [jobs[index] for index in refused],
            )

    def _why(self, job: JobRef) -> str:
        seq, _ = self._lookup.resolve(job)
        state = self._session.state
        code = codes.NONE if seq is None else state.pages.code(seq)
        if code == codes.LEASED:
            what = "was leased again since: this token is out of date"
        elif code == codes.DONE:
            what = "is finished"
        elif code == codes.DEAD:
            what = "is in the dead-letter queue"
        else:
            what = "is waiting, not leased: its lease ended, or there was none"
        where = self._session.log.path
        return f"job {_id(job)!r} in {where} {what}. The handler's work may run twice; make it idempotent"


def _id(job: Any) -> str:
    return job.id if isinstance(job, Job) else str(job)


def _singles(found: Settled) -> list[int]:
    return ranges_of([seq for seq, _ in found.held])


def _one(packed: bytes | None) -> bytes:
    return _NIL if packed is None else join_array([packed])
