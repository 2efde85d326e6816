"""Records about the queue as a whole, and about jobs that leave it."""

from __future__ import annotations

import heapq

from nobroker.state import codes
from nobroker.state.machine import Head, State


def drop(state: State, head: Head, lsn: int) -> None:
    spans = head["q"]
    for at in range(0, len(spans), 2):
        for seq in range(spans[at], spans[at + 1] + 1):
            state.entries.pop(seq, None)
            state.let_go(seq)
        state.pages.fill(spans[at], spans[at + 1], codes.NONE)
    state.forget_ids(head.get("h", b""))


def pause(state: State, head: Head, lsn: int) -> None:
    if head["p"]:
        state.paused.add(head.get("l"))
    else:
        state.paused.discard(head.get("l"))


def limit_lane(state: State, head: Head, lsn: int) -> None:
    state.ready.limit_lane(head["l"], head["n"])


def purge(state: State, head: Head, lsn: int) -> None:
    lane = head.get("l")
    state.next_seq = max(state.next_seq, head["n"])
    if lane is None:
        lasting = state.ready.lasting()
        state.clear()
        state.ready.set_lasting(lasting)
        return
    number = state.pages.lane_numbers.get(lane)
    if number is None:
        return
    mine = [
        seq
        for code in range(1, codes.COUNT)
        for seq in state.pages.having(code)
        if state.pages.lane(seq) == lane
    ]
    for seq in mine:
        state.entries.pop(seq, None)
        state.let_go(seq)
        state.pages.put(seq, codes.NONE)
    state.forget_ids(head.get("h", b""))


def reserve(state: State, head: Head, lsn: int) -> None:
    state.reserved_seq = max(state.reserved_seq, head["s"])
    state.reserved_token = max(state.reserved_token, head["k"])
    state.next_seq = max(state.next_seq, head.get("S", 0))
    state.next_token = max(state.next_token, head.get("K", 0))


def anchor(state: State, head: Head, lsn: int) -> None:
    if head["b"] != state.boot:
        state.anchors.clear()
        state.boot = head["b"]
    state.anchors[head["n"]] = (head["c"], head["t"])
    if head.get("x"):
        time = head["t"]
        for _, _, lease in state.deadlines:
            lease.deadline = min(lease.deadline, time)
        state.deadlines = [
            (lease.deadline, next(state.order), lease) for _, _, lease in state.deadlines if lease.alive
        ]
        heapq.heapify(state.deadlines)


def retire(state: State, head: Head, lsn: int) -> None:
    spans = head.get("g", [])
    for at in range(0, len(spans), 2):
        first, last = spans[at], spans[at + 1]
        if len(state.entries) < last - first:
            gone = [seq for seq in state.entries if first <= seq <= last]
        else:
            gone = [seq for seq in range(first, last + 1) if seq in state.entries]
        for seq in gone:
            del state.entries[seq]
        state.pages.fill(first, last, codes.NONE)
    state.forget_ids(head.get("h", b""))
    base = head["B"]
    state.next_seq = max(state.next_seq, base["s"])
    state.next_token = max(state.next_token, base["k"])
    state.reserved_seq = max(state.reserved_seq, base["S"])
    state.reserved_token = max(state.reserved_token, base["K"])
    state.time = max(state.time, base["t"])
    state.paused = set(base["p"])
    state.ready.set_lasting(base)
    if base.get("c"):
        _adopt_anchors(state, base["c"])


def _adopt_anchors(state: State, anchors: Head) -> None:
    state.boot = anchors["b"]
    state.anchors = {name: (clock, time) for name, clock, time in anchors["a"]}
