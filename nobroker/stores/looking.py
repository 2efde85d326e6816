"""Reads: they take no file lock, write nothing and promise nothing about durability."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from nobroker.job import Job, JobState
from nobroker.reports import QueueStats
from nobroker.state import codes
from nobroker.state.entries import CANCEL
from nobroker.stores.base import Alike
from nobroker.stores.lookup import Lookup
from nobroker.stores.session import Session
from nobroker_mmap.errors import Restart
from nobroker_mmap.offsets import Piece

_SLICE: Final = 500
_LOOKS: Final = 5
_ALIKE: Final = 1000
_FEW: Final = 4
"""Jobs that cost less one by one."""
_HELD_BYTES: Final = 2**20
_KNOWN: Final = range(1, codes.COUNT)


class Looker:
    """Answers questions."""

    def __init__(self, session: Session, lookup: Lookup) -> None:
        self._session = session
        self._lookup = lookup

    def _current(self) -> int:
        """Under the mutex: follow the log; returns the queue time."""
        session = self._session
        session.follow()
        now = session.now()
        session.state.ready.promote(now, session.clock.wall_us())
        return now

    def get(self, job_id: str) -> Job:
        for _ in range(_LOOKS):
            with self._session.reading():
                now = self._current()
                try:
                    return self._lookup.job(self._lookup.known(job_id), now)
                except Restart:  # its segment has left since the log was followed
                    self._session.spoil()
        raise self._lookup.missing(job_id)

    def stats(self, lane: str | None, seqs: range | None) -> QueueStats:
        session = self._session
        with session.reading():
            now = self._current()
            state = session.state
            if seqs is None:
                counts = [state.pages.total(code, lane) for code in range(codes.COUNT)]
            else:
                counts = state.pages.tally(seqs.start, seqs.stop - 1)
            ready = counts[codes.READY] + counts[codes.RETRY]
            delayed = counts[codes.DELAYED] + counts[codes.RETRY_LATER]
            leased, done, dead = counts[codes.LEASED], counts[codes.DONE], counts[codes.DEAD]
            outdated = frozenset(seq for many, *_ in state.outdated(now) for seq in many)
            oldest = None
            if seqs is None:
                oldest = state.ready.oldest(None if lane is None else (lane,), outdated)
            for seq, lease in state.overdue(now):
                if (lane is None or lease.lane == lane) and (seqs is None or seq in seqs):
                    leased -= 1
                    entry = state.entry_of(seq, lease)
                    if entry.flags & CANCEL:
                        done += 1
                    elif entry.attempts >= entry.max_attempts:
                        dead += 1
                    else:
                        ready += 1
                        oldest = lease.deadline if oldest is None else min(oldest, lease.deadline)
            for seq in outdated:
                if (lane is None or state.pages.lane(seq) == lane) and (seqs is None or seq in seqs):
                    dead += 1
                    if state.pages.code(seq) in (codes.READY, codes.RETRY):
                        ready -= 1
                    else:
                        delayed -= 1
            return QueueStats(
                ready,
                delayed,
                leased,
                done,
                dead,
                ready + delayed + leased + done + dead,
                None if oldest is None or not ready or seqs is not None else max(0.0, (now - oldest) / 1e6),
                None in state.paused or (lane is not None and lane in state.paused),
                session.log.bytes_used(),
            )

    def is_paused(self) -> bool:
        with self._session.reading():
            self._session.follow()
            return None in self._session.state.paused

    def lane_limits(self) -> dict[str, int]:
        with self._session.reading():
            self._session.follow()
            return dict(self._session.state.ready.lane_limits)

    def lanes(self) -> list[str]:
        with self._session.reading():
            self._session.follow()
            pages = self._session.state.pages
            known = {n for n, counts in zip(pages.lane_names, pages.counts, strict=True) if any(counts[1:])}
            return sorted(known | {name for name in self._session.state.paused if name is not None})

    def jobs(self, wanted: JobState | None, lane: str | None) -> Iterator[Job]:
        """Jobs by sequence number; waiting ones in the order they would be delivered."""
        session = self._session
        with session.reading():
            now = self._current()
            if wanted is JobState.READY:
                order = self._ready_order(lane, now)
            else:
                order = self._all(wanted)
        while True:
            some, ended = self._slice(order, wanted, lane)
            yield from some
            if ended:
                return

    def alike(self) -> Iterator[Job | Alike]:
        """All jobs by sequence number: one by one, or many at once that hardly differ."""
        at: int | None = 0
        while at is not None:
            some, at = self._some(at)
            yield from some

    def _some(self, at: int) -> tuple[list[Job | Alike], int | None]:
        """The jobs from a sequence number on, not too many, and where to go on; None at their end."""
        session = self._session
        some: list[Job | Alike] = []
        held = singly = 0
        with session.reading():
            now = self._current()
            while len(some) < _SLICE and held < _HELD_BYTES:
                seq = session.state.pages.next_of(at, _KNOWN)
                if seq is None:
                    return some, None
                if seq >= singly:
                    many = self._waiting(seq, now)
                    if many is not None:
                        some.append(many)
                        held += len(many.packed)
                        at = many.seqs.stop
                        continue
                    singly = seq + _FEW
                job = self._job_or_none(seq, now)
                if job is not None:
                    some.append(job)
                at = seq + 1
        return some, at

    def _waiting(self, seq: int, now: int) -> Alike | None:
        """The jobs of one record from `seq` on that wait and were never leased, if there are some."""
        session = self._session
        state, reader = session.state, session.reader
        code = state.pages.code(seq)
        if code not in (codes.READY, codes.DELAYED):
            return None
        length = state.pages.span_with(seq, seq + _ALIKE - 1, code)
        try:
            piece = self._together(seq, length)
            if piece is None:
                return None
            return reader.alike(range(seq, piece.last + 1), now, reader.of(piece), piece.index)
        except Restart:  # whoever asks for one job alone deals with it
            return None

    def _together(self, seq: int, length: int) -> Piece | None:
        """Those of `length` jobs from `seq` on that one record holds; None when they are few."""
        # Asked for all at once, the index would tell all the records behind the first one, too.
        piece = None
        asked = _FEW
        while asked <= length:
            piece = next(iter(self._session.log.find(seq, seq + asked - 1)), None)
            if piece is None or piece.first != seq or piece.last - seq + 1 < _FEW:
                return None
            if piece.last - seq + 1 < asked or asked == length:
                break
            asked = min(4 * asked, length)
        return piece

    def _slice(
        self, order: Iterator[int], wanted: JobState | None, lane: str | None
    ) -> tuple[list[Job], bool]:
        """The next few jobs, and whether they were the last."""
        session = self._session
        some: list[Job] = []
        with session.reading():
            now = self._current()
            while len(some) < _SLICE:
                seq = next(order, None)
                if seq is None:
                    return some, True
                if lane is not None and session.state.pages.lane(seq) != lane:
                    continue
                job = self._job_or_none(seq, now)
                if job is not None and (wanted is None or job.state is wanted):
                    some.append(job)
        return some, False

    def _ready_order(self, lane: str | None, now: int) -> Iterator[int]:
        """Waiting jobs in the order of delivery. Whoever wants a few pays for a few; used under the mutex."""
        state = self._session.state
        lanes = None if lane is None else (lane,)
        expired = sorted((-lease.priority, lease.deadline, seq) for seq, lease in state.overdue(now))
        mine = [key for key in expired if lane is None or state.pages.lane(key[2]) == lane]
        first = list(islice(state.ready.in_order(lanes, mine), _SLICE))
        yield from first
        if len(first) == _SLICE:
            seen = set(first)
            yield from [seq for seq in self._session.state.ready.in_order(lanes, mine) if seq not in seen]

    def _all(self, wanted: JobState | None) -> Iterator[int]:
        """Sequence numbers of jobs that may have the state, ascending; the state may be replaced between two
        of them.
        """
        interesting = {
            None: _KNOWN,
            JobState.LEASED: (codes.LEASED,),
            JobState.DONE: (codes.DONE, codes.LEASED),
            JobState.DEAD: (codes.DEAD, codes.LEASED, *codes.WAITING),
        }[wanted]
        at = 0
        while True:
            seq = self._session.state.pages.next_of(at, interesting)
            if seq is None:
                return
            yield seq
            at = seq + 1

    def _job_or_none(self, seq: int, now: int) -> Job | None:
        for _ in range(_LOOKS):
            try:
                if self._session.state.pages.code(seq) == codes.NONE:
                    return None
                return self._lookup.job(seq, now)
            except Restart:  # its segment has left since the log was followed
                self._session.spoil()
                self._current()
        return None
