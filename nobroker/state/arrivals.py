"""How jobs come into the state: ENQUEUE and MOVE."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from typing import Any

from nobroker.state import codes, outcomes
from nobroker.state.entries import Entry, Lease
from nobroker.state.gates import Group, words_of
from nobroker.state.machine import Head, State
from nobroker.state.numbers import each, unpack_words
from nobroker.state.runs import Run, delayed_run


def enqueue(state: State, head: Head, lsn: int) -> None:
    number, first, time = head["n"], head["s"], head["t"]
    if len(head) == 3:  # nothing out of the ordinary
        last = first + number - 1
        state.pages.add(first, last, codes.READY, "")
        state.ready.add_batch("", 0, 5, 0, first, number, time)
        if last >= state.next_seq:
            state.next_seq = last + 1
        return
    lane, priority, attempts = head.get("l", ""), head.get("p", 0), head.get("m", 5)
    expires, wall = head.get("x", 0), head.get("w", False)
    avail: Any = head.get("a", head.get("e", time))
    last = first + number - 1
    group = None
    if "c" in head:
        state.ready.now = time
        group = state.ready.join(range(first, last + 1), lane, priority, words_of(head["c"]))
    if type(avail) is bytes:
        state.pages.add(first, last, codes.DELAYED, lane)
        state.ready.add_later(
            delayed_run(lane, -priority, attempts, expires, first, unpack_words("q", avail), wall, group)
        )
        avail = 0
    elif wall or avail > time:
        state.pages.add(first, last, codes.DELAYED, lane)
        run = Run(lane, -priority, attempts, expires, first, number, avail, wall, group=group)
        state.ready.add_later(run)
    else:
        state.pages.add(first, last, codes.READY, lane)
        state.ready.add_batch(lane, priority, attempts, expires, first, number, avail, group)
    if expires:
        heapq.heappush(state.expiries, (expires, first, last, priority, attempts))
    ids = head.get("i")
    if ids and None not in ids:
        state.remember_ids(ids, first)
    elif ids:
        for seq, job_id in enumerate(ids, first):
            if job_id is not None:
                state.remember_id(job_id, seq)
    if last >= state.next_seq:
        state.next_seq = last + 1


def move(state: State, head: Head, lsn: int) -> None:
    overrides = head.get("o", {})
    ids = head.get("i")
    avails: Any = head.get("a", head.get("e", head["t"]))
    column = unpack_words("q", avails) if type(avails) is bytes else None
    plain: list[tuple[int, int]] = []
    for index, seq in enumerate(each(head["q"])):
        if state.pages.code(seq) != codes.NONE:
            _moved_refs(state, seq, lsn)
            continue
        avail = column[index] if column is not None else avails
        override = overrides.get(index)
        if override is None:
            plain.append((avail, seq))
        else:
            _settle_moved(state, seq, head, override, avail, lsn)
        if ids and ids[index] is not None:
            state.remember_id(ids[index], seq)
        if head.get("x"):
            key = (head["x"], seq, seq, head.get("p", 0), head.get("m", 5))
            heapq.heappush(state.expiries, key)
        if seq >= state.next_seq:
            state.next_seq = seq + 1
    if plain:
        _add_moved(state, head, plain, _joined(state, head, (seq for _, seq in plain)))
        if ids:
            own = dict(zip(each(head["q"]), ids, strict=True))
            for _, seq in plain:
                if own[seq] is not None:
                    state.pages.set_own_ids(seq, seq)


def replace(state: State, head: Head, lsn: int) -> None:
    seq = head["q"][0]
    if state.pages.code(seq) == codes.NONE:
        move(state, head, lsn)
        return
    _moved_refs(state, seq, lsn)
    outcomes.reschedule(state, head, lsn)


def _joined(state: State, head: Head, seqs: Iterable[int]) -> Group | None:
    """The group of moved jobs; None when they have no limits."""
    if "c" not in head:
        return None
    words = words_of(head["C" if "C" in head else "c"])
    return state.ready.join(seqs, head.get("l", ""), head.get("p", 0), words)


def _add_moved(state: State, head: Head, plain: list[tuple[int, int]], group: Group | None) -> None:
    """Ordinary waiting jobs, as one run of those due and one of those not."""
    lane, priority, attempts = head.get("l", ""), head.get("p", 0), head.get("m", 5)
    wall = head.get("w", False)
    plain.sort()
    time = head["t"]
    split = 0 if wall else next((i for i, (avail, _) in enumerate(plain) if avail > time), len(plain))
    for part, later in ((plain[:split], False), (plain[split:], True)):
        if not part:
            continue
        base = min(seq for _, seq in part)
        for _, seq in part:
            state.pages.add(seq, seq, codes.DELAYED if later else codes.READY, lane)
        run = Run(
            lane,
            -priority,
            attempts,
            head.get("x", 0),
            base,
            len(part),
            0,
            wall,
            array("I", [seq - base for _, seq in part]),
            array("q", [avail for avail, _ in part]),
            group,
        )
        if later:
            state.ready.add_later(run)
        else:
            state.ready.add_run(run)


def _moved_refs(state: State, seq: int, lsn: int) -> None:
    entry = state.entries.get(seq)
    if entry is not None:
        state.entries[seq] = entry._replace(
            error=lsn if entry.error else 0,
            progress=lsn if entry.progress else 0,
            state=lsn if entry.state else 0,
        )
    if state.pages.ref(seq):
        state.pages.set_ref(seq, lsn)


def _settle_moved(state: State, seq: int, head: Head, override: Head, avail: int, lsn: int) -> None:
    lane, priority, max_attempts = head.get("l", ""), head.get("p", 0), head.get("m", 5)
    kind, token = override.get("s", "r"), override.get("k", 0)
    entry = Entry(
        lane,
        priority,
        max_attempts,
        override.get("a", avail),
        override.get("n", 0),
        bool(override.get("w", head.get("w"))),
        override.get("f", 0),
        lsn if "E" in override else 0,
        lsn if "P" in override else 0,
        lsn if "J" in override else 0,
        token,
        head.get("x", 0),
    )
    pages = state.pages
    group = _joined(state, head, (seq,)) if kind in ("r", "l") else None
    if kind == "r":
        pages.add(seq, seq, codes.RETRY, lane)
        state.wait_again(seq, entry, head["t"])
        return
    if kind == "l":
        pages.add(seq, seq, codes.LEASED, lane)
        if entry.attempts != 1 or entry.flags or entry.error or entry.progress or entry.state or entry.wall:
            state.entries[seq] = entry
        lease = Lease(
            [seq, seq],
            1,
            token - seq,
            override["d"],
            lane,
            priority,
            max_attempts,
            head.get("x", 0),
            entry.avail,
        )
        state.hold(lease, seq, seq)
        if group is not None:
            state.ready.hold(seq, group)
        state.next_token = max(state.next_token, token + 1)
        return
    if kind == "x" and "c" in head:
        state.ready.bury(seq, lane, priority, words_of(head["C" if "C" in head else "c"]))
    pages.add(seq, seq, codes.DEAD if kind == "x" else codes.DONE, lane)
    if kind == "x" or entry.attempts != 1 or entry.flags or entry.error or entry.progress or entry.state:
        state.entries[seq] = entry
    if kind == "d":
        if token:
            pages.set_tokens(seq, seq, token - seq)
        if override.get("K"):
            pages.set_ref(seq, lsn)
