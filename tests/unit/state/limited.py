"""A state whose jobs have limits: records in few words, and leases as a queue decides them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgpack

from nobroker.state import kinds
from nobroker.state.machine import State
from nobroker.state.numbers import each, pack_words
from nobroker.state.replay import apply
from nobroker.state.snapshots import capture, restore


class Machine:
    """A state, and the time and the log that go with it."""

    def __init__(self) -> None:
        self.state = State()
        self.now = 1000
        self._lsn = 1000

    def apply(self, kind: int, **head: Any) -> None:
        self._lsn += 1
        apply(self.state, kind, {"t": self.now, **head}, self._lsn)

    def add(self, number: int = 1, said: dict[str, Any] | None = None, **more: Any) -> list[int]:
        """Enqueue; the numbers of the jobs."""
        first = self.state.next_seq
        if said is not None:
            more["c"] = said
        self.apply(kinds.ENQUEUE, s=first, n=number, **more)
        return list(range(first, first + number))

    def pass_by(self, time: int) -> None:
        self.now += time
        self.state.ready.promote(self.now, self.now)

    def lease(self, count: int = 100, lanes: Iterable[str] | None = None) -> list[int]:
        """Take what may be leased now; the numbers, in order."""
        self.pass_by(0)
        pieces = self.state.ready.take(count, lanes, frozenset(self.state.paused))
        assert all(piece.size > 0 for piece in pieces), "a lease of nothing"
        if pieces:
            rows = [
                [
                    piece.size,
                    piece.priority,
                    piece.max_attempts,
                    piece.expires,
                    piece.avail if isinstance(piece.avail, int) else pack_words("q", piece.avail),
                ]
                for piece in pieces
            ]
            spans = [number for piece in pieces for number in piece.spans]
            self.apply(kinds.LEASE, q=spans, k=self.state.next_token, d=self.now + 500, v=rows)
        return [seq for piece in pieces for seq in each(piece.spans)]

    def ack(self, *seqs: int) -> None:
        for seq in seqs:
            self.apply(kinds.ACK, q=[seq, seq])

    def nack(self, seq: int, delay: int = 0, *, dead: bool = False) -> None:
        self.apply(kinds.NACK, q=[seq, seq], a=[self.now + delay], x=[0] if dead else [])

    def release(self, *seqs: int, delay: int = 0) -> None:
        for seq in seqs:
            self.apply(kinds.RELEASE, q=[seq, seq], a=[self.now + delay])

    def drop(self, *seqs: int) -> None:
        for seq in seqs:
            self.apply(kinds.DROP, q=[seq, seq])

    def requeue(self, seq: int) -> None:
        self.apply(kinds.REQUEUE, q=[seq, seq])

    def retire(self) -> None:
        """As a compaction that moves nothing: what outlives jobs is said again."""
        state = self.state
        base = {"s": 1, "k": 1, "S": 1, "K": 1, "t": 0, "p": list(state.paused), **state.ready.lasting()}
        self.apply(kinds.RETIRE, B=base)

    def carried(self) -> State:
        """The state out of a snapshot."""
        packed = [msgpack.packb(item) for item in capture(self.state)]
        found = restore([msgpack.unpackb(data, strict_map_key=False) for data in packed])
        assert found is not None
        return found

    def in_order(self, lanes: Iterable[str] | None = None) -> list[int]:
        return list(self.state.ready.in_order(lanes))

    def idle(self) -> None:
        """Nothing of limits is left when no job is."""
        ready = self.state.ready
        assert (ready.groups, ready.gates, ready.of, ready.dead) == ({}, {}, {}, {})
        assert self.state.pages.watch is None
        assert not ready.limited
        assert not any((*ready.lanes.values(), *ready.alone.values()))
        assert not ready.fairs


def key(name: str, limit: int, *more: Any) -> dict[str, Any]:
    return {"k": [[name, limit, *more]]}


def rate(name: str, most: int, duration: int) -> dict[str, Any]:
    return {"r": [[name, most, duration]]}
