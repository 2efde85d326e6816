"""Taking jobs out: lease, and waiting for something to lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain, repeat
from typing import Final, NamedTuple

from nobroker.errors import CorruptLogError
from nobroker.job import Job
from nobroker.lanes import Lanes, Selection
from nobroker.state import kinds
from nobroker.state.machine import NEVER, Head
from nobroker.state.numbers import each, pack_words
from nobroker.state.ready import Piece
from nobroker.stores.decoded import Decoded
from nobroker.stores.reading import Past
from nobroker.stores.session import Part, Session
from nobroker_mmap.offsets import Piece as LogPiece

_STAND_BACK_S: Final = 0.05
"""For so long a waiter that passed a wake-up on lets others take it."""
_MOST_PASSED: Final = 5
"""So often it passes one on while the log stays as it is: nobody may be there who wants it."""


_ALL: Final = ("*",)
_NO_LANES: Final[frozenset[str | None]] = frozenset()


class Nothing(NamedTuple):
    """A lease found nothing: true until the boot clock or the wall clock says so, or the log grows."""

    until: int
    wall: int | None
    lanes: Selection
    position: int


class Taken(NamedTuple):
    """Jobs chosen for a lease: the record that says so, where their payloads are, and what went before."""

    part: Part
    sources: list[tuple[Decoded, LogPiece]]
    pieces: list[Piece]
    past: dict[int, Past]


class Leaser:
    """Hands out jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._nothing: Nothing | None = None

    def lease(
        self,
        count: int,
        timeout_us: int,
        wait: float,
        lanes: Selection,
        stop: Callable[[], bool] | None,
    ) -> list[Job]:
        """Up to `count` jobs; waits up to `wait` seconds for the first one."""
        if self._surely_nothing(lanes):
            jobs: list[Job] = []
        else:
            jobs = self._attempt(count, timeout_us, lanes)
        if jobs or wait <= 0:
            return jobs
        return self._wait(count, timeout_us, wait, lanes, stop)

    def _wait(
        self,
        count: int,
        timeout_us: int,
        wait: float,
        lanes: Selection,
        stop: Callable[[], bool] | None,
    ) -> list[Job]:
        session = self._session
        log = session.log
        end = time.monotonic() + wait
        woken, position, passed = False, -1, 0
        while True:
            # Where the flag was up before, whoever appended after this look saw it: the cheap look is enough.
            log.ensure_reachable()
            announced = log.has_waiters()
            ticket = log.announce()
            sure = announced and self._surely_nothing(lanes)
            jobs = [] if sure else self._attempt(count, timeout_us, lanes)
            remaining = end - time.monotonic()
            if jobs or remaining <= 0 or (stop is not None and stop()):
                return jobs
            if position != log.position:
                position, passed = log.position, 0
            if woken and lanes is not None and passed < _MOST_PASSED and self._others_may_want():
                passed += 1
                log.notify()
                time.sleep(_STAND_BACK_S)
            woken = log.wait(min(remaining, self._until_event()), ticket)

    def _others_may_want(self) -> bool:
        """Whether jobs wait in lanes that this caller does not serve: the wake-up was for another waiter."""
        session = self._session
        with session.reading():
            paused = session.state.paused
            return None not in paused and session.state.ready.has_ready(None, frozenset(paused))

    def _until_event(self) -> float:
        """Seconds until time alone may make something leasable."""
        nothing = self._nothing
        clock = self._session.clock
        if nothing is None:
            return 0.0
        seconds = (nothing.until - clock.boot_us()) / 1e6
        if nothing.wall is not None:
            # The wall clock may be set; look at it now and then.
            seconds = min(seconds, max((nothing.wall - clock.wall_us()) / 1e6, 0.001), 1.0)
        return max(seconds, 0.0)

    def _surely_nothing(self, lanes: Selection) -> bool:
        nothing = self._nothing
        session = self._session
        return (
            nothing is not None
            and session.clock.boot_us() < nothing.until
            and nothing.lanes == lanes
            and nothing.position == session.log.position
            and not session.log.behind()
            and (nothing.wall is None or session.clock.wall_us() < nothing.wall)
        )

    def _attempt(self, count: int, timeout_us: int, lanes: Selection) -> list[Job]:
        session = self._session
        with session.transaction() as now:
            taken = self.take(now, count, timeout_us, lanes)
            if taken is None:
                return []
            end = session.append_one(*taken.part)
            self.leased(taken)
        return self.jobs(taken, end)

    def take(self, now: int, count: int, timeout_us: int, lanes: Selection) -> Taken | None:
        """Inside a transaction: choose jobs, make sure that they can be read, and word the record."""
        session = self._session
        state = session.state
        if None in state.paused:
            self._remember_nothing(now, lanes)
            return None
        wall = session.clock.wall_us()
        if state.ready.later or state.ready.later_wall or state.ready.rates:
            state.ready.promote(now, wall)
        paused = frozenset(state.paused) if state.paused else _NO_LANES
        session.unsettle()
        pieces = state.ready.take(count, lanes, paused)
        if not pieces:
            session.settled()
            self._remember_nothing(now, lanes)
            return None
        self._nothing = None
        if session.reserve(0, 1 if count == 1 else sum(piece.size for piece in pieces)):
            session.unsettle()
        spans = pieces[0].spans if len(pieces) == 1 else [n for piece in pieces for n in piece.spans]
        try:
            sources = self._sources(spans)
        except CorruptLogError:
            state.ready.put_back(pieces)
            session.settled()
            raise
        head: Head = {
            "t": now,
            "w": wall,
            "d": now + timeout_us,
            "k": state.next_token,
            "q": spans,
            "v": [_column(piece) for piece in pieces],
        }
        if lanes is not None:
            names = lanes.names if isinstance(lanes, Lanes) else lanes
            if names != _ALL:
                head["l"] = list(names)
        return Taken((kinds.LEASE, head, b""), sources, pieces, {})

    def leased(self, taken: Taken) -> None:
        """Inside the transaction, after the append: note what went before, wake who waits for the rest."""
        session = self._session
        state = session.state
        if state.entries:
            for seq in each(taken.part[1]["q"]):
                entry = state.entries.get(seq)
                if entry is not None:
                    taken.past[seq] = session.reader.past(seq, entry)
        # One job wakes one waiter; whoever woke and left jobs behind wakes the next.
        if session.log.has_waiters() and state.ready.has_ready(None, _NO_LANES):
            session.log.notify()

    def _sources(self, spans: list[int]) -> list[tuple[Decoded, LogPiece]]:
        """The verified records of the jobs, in the order of the ranges."""
        session = self._session
        if len(spans) == 2 and spans[0] == spans[1]:
            found = session.log.find_one(spans[0])
            if found is None:
                raise session.lost(spans[0])
            return [(session.reader.of(found), found)]
        sources: list[tuple[Decoded, LogPiece]] = []
        for at in range(0, len(spans), 2):
            expected = spans[at]
            for piece in session.log.find(spans[at], spans[at + 1]):
                if piece.first != expected:
                    break
                expected = piece.last + 1
                sources.append((session.reader.of(piece), piece))
            if expected != spans[at + 1] + 1:
                raise session.lost(expected)
        return sources

    def jobs(self, taken: Taken, end: int) -> list[Job]:
        """The leased jobs, decoded outside the file lock; durable first where the machine crashed a moment
        ago.
        """
        session = self._session
        if session.careful():
            session.log.wait_durable(end, force=True)
        head, reader = taken.part[1], session.reader
        deadline, past = head["d"], taken.past
        first = taken.pieces[0]
        if first.size == 1 and len(taken.pieces) == 1 and type(first.avail) is int:
            decoded, piece = taken.sources[0]
            seq = piece.first
            with session.reading():
                return [
                    reader.leased(seq, head["k"], deadline, first.avail, past.get(seq), decoded, piece.index)
                ]
        avails = chain.from_iterable(
            repeat(piece.avail, piece.size) if isinstance(piece.avail, int) else piece.avail
            for piece in taken.pieces
        )
        token = head["k"]
        jobs: list[Job] = []
        with session.reading():
            for decoded, piece in taken.sources:
                jobs += reader.leased_run(piece, token, deadline, avails, past, decoded)
                token += piece.last - piece.first + 1
        return jobs

    def _remember_nothing(self, now: int, lanes: Selection) -> None:
        session = self._session
        _, wall = session.state.ready.next_due()
        event = session.state.next_event()
        boot = session.clock.boot_us()
        if session.log.control.grace_until > boot and event <= now:
            event = now + session.log.control.grace_until - boot
        self._nothing = Nothing(
            boot + (event - now if event < NEVER else NEVER), wall, lanes, session.log.position
        )


def _column(piece: Piece) -> list[int | bytes]:
    avail = piece.avail if isinstance(piece.avail, int) else pack_words("q", piece.avail)
    return [piece.size, piece.priority, piece.max_attempts, piece.expires, avail]
