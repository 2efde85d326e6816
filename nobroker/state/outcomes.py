"""How leases and what follows from them change the state."""

from __future__ import annotations

import heapq
from typing import Any

from nobroker.state import codes
from nobroker.state.entries import CANCEL, CANCELLED, EXPIRED, EXPIRED_LEASE, NO_EXPIRY, Entry, Lease
from nobroker.state.machine import Head, State
from nobroker.state.numbers import each, unpack_words


def lease(state: State, head: Head, lsn: int) -> None:
    state.ready.promote(head["t"], head.get("w", 0))
    spans, token, deadline = head["q"], head["k"], head["d"]
    if len(spans) == 2 and spans[0] == spans[1]:
        _lease_one(state, spans[0], token, deadline, head["v"][0])
        return
    at = 0
    for number, priority, max_attempts, expires, avail in head["v"]:
        column = unpack_words("q", avail) if type(avail) is bytes else None
        taken = 0
        while taken < number:
            first, last = spans[at], spans[at + 1]
            at += 2
            delta = token - first
            length = last - first + 1
            avails = None
            if column is not None:
                avails = dict(zip(range(first, last + 1), column[taken : taken + length], strict=True))
            token += length
            taken += length
            place = 0 if column is not None else avail
            lane = state.pages.lane(first)
            made = Lease([first, last], length, delta, deadline, lane, priority, max_attempts, expires, place)
            made.avails = avails
            _lease_span(state, made)
    state.next_token = max(state.next_token, token)


def _lease_one(state: State, seq: int, token: int, deadline: int, shared: list[Any]) -> None:
    """A lease of one job: the commonest."""
    _, priority, max_attempts, expires, avail = shared
    if type(avail) is bytes:
        avail = unpack_words("q", avail)[0]
    if state.pages.turn(seq, codes.READY, codes.LEASED):
        made = Lease([seq, seq], 1, token - seq, deadline, "", priority, max_attempts, expires, avail)
        state.hold(made, seq, seq)
    else:
        lane = state.pages.lane(seq)
        _lease_span(
            state, Lease([seq, seq], 1, token - seq, deadline, lane, priority, max_attempts, expires, avail)
        )
    if token >= state.next_token:
        state.next_token = token + 1


def _lease_span(state: State, lease: Lease) -> None:
    first, last = lease.spans
    pages = state.pages
    if first == last:
        code = pages.code(first)
        if code == codes.RETRY or code == codes.RETRY_LATER:
            entry = state.entries[first]
            state.entries[first] = entry._replace(attempts=entry.attempts + 1)
        if code not in codes.WAITING:
            return
        pages.put(first, codes.LEASED)
        state.hold(lease, first, first)
        return
    if pages.count_in(first, last, codes.READY) == lease.alive:
        pages.fill(first, last, codes.LEASED)
        state.hold(lease, first, last)
        return
    for seq in range(first, last + 1):
        single = lease.like(seq, seq, lease.deadline)
        _lease_span(state, single)


def ack(state: State, head: Head, lsn: int) -> None:
    keep = head.get("k", 0)
    spans = head["q"]
    if len(spans) == 2 and spans[0] == spans[1]:
        held = state.leased.pop(spans[0], None)
        if held is not None:
            _finish(state, spans[0], spans[0], held, lsn if keep else 0)
        return
    for at in range(0, len(spans), 2):
        seq, last = spans[at], spans[at + 1]
        while seq <= last:
            lease = state.leased.get(seq)
            if lease is None:
                seq += 1
                continue
            end = seq
            while end <= last and state.leased.get(end) is lease:
                del state.leased[end]
                end += 1
            _finish(state, seq, end - 1, lease, lsn if keep else 0)
            seq = end


def _finish(state: State, first: int, last: int, lease: Lease, ref: int) -> None:
    lease.alive -= last - first + 1
    if lease.alive == 0:
        state.leases -= 1
    state.pages.set_tokens(first, last, lease.delta)
    if first != last or not state.pages.turn(first, codes.LEASED, codes.DONE):
        state.pages.fill(first, last, codes.DONE)
    if ref:
        for seq in range(first, last + 1):
            state.pages.set_ref(seq, ref)


def nack(state: State, head: Head, lsn: int, silent: int = 0) -> None:
    dead, cancelled = frozenset(head.get("x", ())), frozenset(head.get("c", ()))
    texts = frozenset(head.get("e", ()))
    stated = "J" in head
    for index, seq in enumerate(each(head["q"])):
        lease = state.let_go(seq)
        if lease is None:
            continue
        token = seq + lease.delta
        entry = state.entry_of(seq, lease)
        entry = entry._replace(
            avail=head["a"][index],
            wall=False,
            flags=entry.flags & ~(EXPIRED_LEASE | CANCEL) | silent,
            error=lsn if index in texts else entry.error,
            state=lsn if stated else entry.state,
            token=token,
        )
        if index in cancelled:
            state.entries[seq] = entry._replace(flags=entry.flags | CANCELLED)
            state.pages.set_tokens(seq, seq, lease.delta)
            state.pages.put(seq, codes.DONE)
            if head.get("k"):
                state.pages.set_ref(seq, lsn)
        elif index in dead:
            state.entries[seq] = entry
            state.pages.put(seq, codes.DEAD)
        else:
            state.wait_again(seq, entry, head["t"])


def reclaim(state: State, head: Head, lsn: int) -> None:
    nack(state, head, lsn, EXPIRED_LEASE)


def extend(state: State, head: Head, lsn: int) -> None:
    deadline = head["d"]
    progress, states = frozenset(head.get("g", ())), frozenset(head.get("s", ()))
    for index, seq in enumerate(each(head["q"])):
        if index in progress or index in states:
            held = state.leased.get(seq)
            if held is None:
                continue
            entry = state.entry_of(seq, held)
            state.entries[seq] = entry._replace(
                progress=lsn if index in progress else entry.progress,
                state=lsn if index in states else entry.state,
            )
    spans = head["q"]
    for at in range(0, len(spans), 2):
        seq, last = spans[at], spans[at + 1]
        while seq <= last:
            lease = state.leased.get(seq)
            end = seq + 1
            while lease is not None and end <= last and state.leased.get(end) is lease:
                end += 1
            if lease is not None:
                _renew(state, lease, seq, end - 1, deadline)
            seq = end


def _renew(state: State, lease: Lease, first: int, last: int, deadline: int) -> None:
    number = last - first + 1
    lease.alive -= number
    if lease.alive == 0:
        state.leases -= 1
    renewed = lease.like(first, last, deadline)
    state.hold(renewed, first, last)


def release(state: State, head: Head, lsn: int) -> None:
    for index, seq in enumerate(each(head["q"])):
        lease = state.let_go(seq)
        if lease is None:
            continue
        entry = state.entry_of(seq, lease)
        entry = entry._replace(
            avail=head["a"][index],
            wall=False,
            attempts=entry.attempts - 1,
            state=lsn if "J" in head else entry.state,
            token=seq + lease.delta,
        )
        state.wait_again(seq, entry, head["t"])
        # An expiry that has not passed yet still stands in the list.
        if entry.attempts == 0 and 0 < entry.expires <= head["t"]:
            key = (entry.expires, seq, seq, entry.priority, entry.max_attempts)
            heapq.heappush(state.expiries, key)


def expire(state: State, head: Head, lsn: int) -> None:
    for seq in each(head["q"]):
        if not state.never_leased(seq):
            continue
        entry = state.entries.get(seq)
        if entry is None:
            entry = Entry(state.pages.lane(seq), head.get("p", 0), head.get("m", 5), head["a"])
        state.entries[seq] = entry._replace(flags=entry.flags | EXPIRED, avail=head["a"], wall=False)
        state.pages.put(seq, codes.DEAD)


def requeue(state: State, head: Head, lsn: int) -> None:
    for seq in each(head["q"]):
        if state.pages.code(seq) == codes.DEAD:
            entry = state.entries[seq]._replace(avail=head["t"], attempts=0, wall=False)
            state.wait_again(seq, entry._replace(flags=NO_EXPIRY), head["t"])


def reschedule(state: State, head: Head, lsn: int) -> None:
    for seq in each(head["q"]):
        if state.pages.code(seq) not in codes.WAITING:
            continue
        entry = state.entries.get(seq)
        if entry is None:  # it left its run: what the run knew of it, the record says
            shared = (state.pages.lane(seq), head.get("p", 0), head.get("m", 5))
            entry = Entry(*shared, 0, expires=head.get("x", 0))
        else:
            state.ready.drop_own(seq)
        state.wait_again(seq, entry._replace(avail=head["a"], wall=head.get("w", False)), head["t"])


def cancel(state: State, head: Head, lsn: int) -> None:
    for seq in each(head.get("q", [])):
        if state.pages.code(seq) not in codes.WAITING:
            continue
        entry = state.entries.get(seq) or Entry(state.pages.lane(seq), 0, 0, 0)
        state.entries[seq] = entry._replace(flags=entry.flags & ~CANCEL | CANCELLED, token=0)
        state.pages.put(seq, codes.DONE)
        if head.get("k"):
            state.pages.set_ref(seq, lsn)
    for seq in each(head.get("g", [])):
        lease = state.leased.get(seq)
        if lease is not None:
            entry = state.entry_of(seq, lease)
            state.entries[seq] = entry._replace(flags=entry.flags | CANCEL)
