"""Records in few words, and what a state is after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nobroker.state import kinds
from nobroker.state.machine import State
from nobroker.state.numbers import each
from nobroker.state.replay import apply

BASE = {"s": 1, "k": 1, "S": 1, "K": 1, "t": 0, "p": []}
Record = tuple[int, dict[str, Any]]


def play(*records: Record, state: State | None = None, lsn: int = 1000) -> State:
    """A state after some records; each has the LSN after the one before."""
    state = State() if state is None else state
    for kind, head in records:
        apply(state, kind, head, lsn)
        lsn += 1
    return state


def jobs(first: int = 1, number: int = 3, time: int = 10, **more: Any) -> Record:
    return kinds.ENQUEUE, {"s": first, "n": number, "t": time, **more}


def leased(*spans: int, token: int = 50, time: int = 11, deadline: int = 99, **shared: Any) -> Record:
    number = sum(last - first + 1 for first, last in zip(spans[::2], spans[1::2], strict=True))
    row = [number, shared.get("p", 0), shared.get("m", 5), shared.get("x", 0), shared.get("a", 10)]
    return kinds.LEASE, {"t": time, "q": list(spans), "k": token, "d": deadline, "v": [row]}


def states(state: State, seqs: Iterable[int]) -> list[int]:
    return [state.pages.code(seq) for seq in seqs]


def fingerprint(state: State) -> Any:
    """All that a state knows."""
    pages = {
        number: (bytes(page.codes), page.tokens, page.refs, page.lanes, page.own)
        for number, page in state.pages.table.items()
    }
    held = {seq: (lease.delta, lease.deadline, lease.alive) for seq, lease in state.leased.items()}
    counts = [list(numbers) for numbers in state.pages.counts]
    numbers = (state.next_seq, state.next_token, state.reserved_seq, state.reserved_token, state.leases)
    return pages, dict(state.entries), held, counts, numbers, list(state.ready.in_order()), state.expiries


def order(state: State, count: int = 1000) -> list[int]:
    pieces = state.ready.take(count, None, frozenset(state.paused))
    return [seq for piece in pieces for seq in each(piece.spans)]
