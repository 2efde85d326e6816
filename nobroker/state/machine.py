"""The state of a queue, and how each record changes it.

Invariants
- Replay is a function of the records alone: the same log gives the same state, whichever snapshot it starts from.
- A record about a job that is not known changes nothing: the job's segment has been retired, and what must be kept of it comes
  later in the log as a MOVE with its complete state.
- A MOVE of a known job changes no answer, only where its values are found.
- READY and DELAYED (RETRY and RETRY_LATER) differ only in what this process has promoted so far.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import xxhash

from nobroker.state import codes, kinds
from nobroker.state.entries import (
    CANCEL,
    CANCELLED,
    EXPIRED,
    EXPIRED_LEASE,
    Entries,
    Entry,
    Lease,
)
from nobroker.state.pages import Pages
from nobroker.state.ready import ReadyIndex
from nobroker.state.runs import Run, delayed_run

Head = dict[str, Any]
NEVER = 2**62


class State:
    """What a queue knows, all lanes."""

    def __init__(self) -> None:
        self.next_token = 1
        self.reserved_seq = 1
        self.reserved_token = 1
        self.next_seq = 1
        self.time = 0
        self.paused: set[str | None] = set()
        self.boot = ""
        self.anchors: dict[str, tuple[int, int]] = {}
        self.clear()

    def clear(self) -> None:
        """No jobs; the counters stay."""
        self.pages = Pages()
        self.entries: Entries = {}
        self.leased: dict[int, Lease] = {}
        self.ready = ReadyIndex(self.pages, self.entries)
        self.deadlines: list[tuple[int, int, Lease]] = []
        self.leases = 0
        self.expiries: list[tuple[int, int, int, int, int, int]] = []
        self.ids: dict[int, int | tuple[int, ...]] = {}
        self._order = count()

    def apply(self, kind: int, head: Head, lsn: int) -> None:
        """Apply one record. Unknown kinds change nothing."""
        handler = _HANDLERS.get(kind)
        if handler is None:
            return
        time = head.get("t", 0)
        if time > self.time:
            self.time = time
        handler(self, head, lsn)

    # -- questions

    def find_own(self, job_id: str) -> tuple[int, ...]:
        """Sequence numbers of jobs that may have this id of a caller's: the log must confirm."""
        found = self.ids.get(xxhash.xxh3_64_intdigest(job_id.encode("utf-8", "surrogatepass")))
        if found is None:
            return ()
        return (found,) if type(found) is int else found  # type: ignore[return-value]

    def next_deadline(self) -> int:
        """When the next lease ends."""
        heap = self.deadlines
        while heap and heap[0][2].alive == 0:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def next_event(self) -> int:
        """When time alone changes something next, in queue time: a lease ends, a delay or a waiting job's time is over."""
        due, _ = self.ready.next_due()
        expiry = self.expiries[0][0] if self.expiries else NEVER
        return min(self.next_deadline(), NEVER if due is None else due, expiry)

    def overdue(self, now: int) -> list[tuple[int, Lease]]:
        """Jobs whose lease has ended by `now`, in the order of deadline and sequence number."""
        if self.next_deadline() > now:
            return []
        ended = sorted({id(lease): (when, lease) for when, _, lease in self.deadlines if when <= now and lease.alive}.values(), key=_first)
        return [
            (seq, lease)
            for _, lease in ended
            for seq in _each(lease.spans)
            if self.leased.get(seq) is lease
        ]

    def outdated(self, now: int) -> list[tuple[list[int], int, int, int]]:
        """Waiting jobs whose expiry has passed: `(ranges, priority, max_attempts, available-at)`; drops them from the list."""
        found = []
        while self.expiries and self.expiries[0][0] <= now:
            _, first, last, priority, max_attempts, avail = heapq.heappop(self.expiries)
            seqs = [seq for seq in range(first, last + 1) if self.never_leased(seq)]
            if seqs:
                found.append(([number for seq in seqs for number in (seq, seq)], priority, max_attempts, avail))
        return found

    def peek_outdated(self, now: int) -> list[list[int]]:
        """As `outdated`, changing nothing: the sequence numbers themselves."""
        return [
            [seq for seq in range(first, last + 1) if self.never_leased(seq)]
            for expires, first, last, *_ in self.expiries
            if expires <= now
        ] if self.expiries and self.expiries[0][0] <= now else []

    def never_leased(self, seq: int) -> bool:
        code = self.pages.code(seq)
        if code in (codes.READY, codes.DELAYED):
            return True
        return code in (codes.RETRY, codes.RETRY_LATER) and self.entries[seq].attempts == 0

    def attempts(self, seq: int) -> int:
        """How often a job was leased."""
        entry = self.entries.get(seq)
        if entry is not None:
            return entry.attempts
        return 1 if self.pages.code(seq) in (codes.LEASED, codes.DONE) else 0

    # -- leases

    def hold(self, lease: Lease, first: int, last: int) -> None:
        """Register jobs under a lease."""
        self.leased.update(dict.fromkeys(range(first, last + 1), lease))
        heapq.heappush(self.deadlines, (lease.deadline, next(self._order), lease))
        self.leases += 1
        if len(self.deadlines) > 64 + 2 * self.leases:
            self.deadlines = [entry for entry in self.deadlines if entry[2].alive]
            heapq.heapify(self.deadlines)

    def let_go(self, seq: int) -> Lease | None:
        """Take a job out of its lease; None when it is not leased."""
        lease = self.leased.pop(seq, None)
        if lease is not None:
            lease.alive -= 1
            if lease.alive == 0:
                self.leases -= 1
        return lease

    def entry_of(self, seq: int, lease: Lease) -> Entry:
        """The entry of a leased job, made when it has none yet."""
        entry = self.entries.get(seq)
        if entry is None:
            entry = Entry(lease.lane, lease.priority, lease.max_attempts, lease.place(seq), attempts=1)
        return entry

    def wait_again(self, seq: int, entry: Entry, time: int) -> None:
        """Put a job with an entry among the waiting."""
        self.entries[seq] = entry
        later = entry.wall or entry.avail > time
        self.pages.put(seq, codes.RETRY_LATER if later else codes.RETRY)
        self.ready.add_own(seq, later)

    def remember_id(self, job_id: str, seq: int) -> None:
        digest = xxhash.xxh3_64_intdigest(job_id.encode("utf-8", "surrogatepass"))
        known = self.ids.get(digest)
        if known is None or known == seq:
            self.ids[digest] = seq
        elif type(known) is int:
            self.ids[digest] = (known, seq)
        elif seq not in known:  # type: ignore[operator]
            self.ids[digest] = (*known, seq)  # type: ignore[misc]
        self.pages.set_own_id(seq)

    def forget_ids(self, digests: bytes) -> None:
        for digest in _words(digests, "Q"):
            known = self.ids.pop(digest, None)
            if type(known) is tuple:
                alive = tuple(seq for seq in known if self.pages.code(seq))
                if alive:
                    self.ids[digest] = alive if len(alive) > 1 else alive[0]


def _words(data: bytes, code: str) -> array[int]:
    words = array(code)
    words.frombytes(data)
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _each(spans: list[int]) -> Iterator[int]:
    for at in range(0, len(spans), 2):
        yield from range(spans[at], spans[at + 1] + 1)


def _first(pair: tuple[int, Lease]) -> tuple[int, int]:
    return pair[0], pair[1].spans[0]


# -- how each record changes the state


def _enqueue(state: State, head: Head, lsn: int) -> None:
    number, first, time = head["n"], head["s"], head["t"]
    lane, priority, attempts = head.get("l", ""), head.get("p", 0), head.get("m", 5)
    expires, wall = head.get("x", 0), head.get("w", False)
    avail: Any = head.get("a", head.get("e", time))
    last = first + number - 1
    if type(avail) is bytes:
        state.pages.add(first, last, codes.DELAYED, lane)
        state.ready.add_later(delayed_run(lane, -priority, attempts, expires, first, _words(avail, "q"), wall))
        avail = 0
    elif wall or avail > time:
        state.pages.add(first, last, codes.DELAYED, lane)
        state.ready.add_later(Run(lane, -priority, attempts, expires, first, number, avail, wall))
    else:
        state.pages.add(first, last, codes.READY, lane)
        state.ready.add_batch(lane, priority, attempts, expires, first, number, avail)
    if expires:
        heapq.heappush(state.expiries, (expires, first, last, priority, attempts, avail))
    ids = head.get("i")
    if ids:
        for seq, job_id in enumerate(ids, first):
            if job_id is not None:
                state.remember_id(job_id, seq)
    if last >= state.next_seq:
        state.next_seq = last + 1


def _move(state: State, head: Head, lsn: int) -> None:
    overrides = head.get("o", {})
    ids = head.get("i")
    avails: Any = head.get("a", head.get("e", head["t"]))
    column = _words(avails, "q") if type(avails) is bytes else None
    plain: list[tuple[int, int]] = []
    for index, seq in enumerate(_each(head["q"])):
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
            key = (head["x"], seq, seq, head.get("p", 0), head.get("m", 5), avail)
            heapq.heappush(state.expiries, key)
        if seq >= state.next_seq:
            state.next_seq = seq + 1
    if plain:
        _add_moved(state, head, plain)
        if ids:
            own = dict(zip(_each(head["q"]), ids, strict=True))
            for _, seq in plain:
                if own[seq] is not None:
                    state.pages.set_own_id(seq)


def _add_moved(state: State, head: Head, plain: list[tuple[int, int]]) -> None:
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
        head.get("w", False),
        override.get("f", 0),
        lsn if "E" in override else 0,
        lsn if "P" in override else 0,
        lsn if "J" in override else 0,
        token,
    )
    pages = state.pages
    if kind == "r":
        pages.add(seq, seq, codes.RETRY, lane)
        state.wait_again(seq, entry, head["t"])
        return
    if kind == "l":
        pages.add(seq, seq, codes.LEASED, lane)
        if entry.attempts != 1 or entry.flags or entry.error or entry.progress or entry.state or entry.wall:
            state.entries[seq] = entry
        lease = Lease([seq, seq], 1, token - seq, override["d"], lane, priority, max_attempts, head.get("x", 0), entry.avail)
        state.hold(lease, seq, seq)
        state.next_token = max(state.next_token, token + 1)
        return
    pages.add(seq, seq, codes.DEAD if kind == "x" else codes.DONE, lane)
    if kind == "x" or entry.attempts != 1 or entry.flags or entry.error or entry.progress or entry.state:
        state.entries[seq] = entry
    if kind == "d":
        if token:
            pages.set_tokens(seq, seq, token - seq)
        if override.get("K"):
            pages.set_ref(seq, lsn)


def _lease(state: State, head: Head, lsn: int) -> None:
    state.ready.promote(head["t"], head.get("w", 0))
    spans, token, deadline = head["q"], head["k"], head["d"]
    at = 0
    for number, priority, max_attempts, expires, avail in head["v"]:
        column = _words(avail, "q") if type(avail) is bytes else None
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
            _lease_span(
                state,
                Lease(
                    [first, last], length, delta, deadline, state.pages.lane(first), priority, max_attempts, expires,
                    0 if column is not None else avail, avails,
                ),
            )  # fmt: skip
    state.next_token = max(state.next_token, token)


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
        single = Lease(
            [seq, seq], 1, lease.delta, lease.deadline, lease.lane, lease.priority, lease.max_attempts, lease.expires,
            lease.place(seq),
        )  # fmt: skip
        _lease_span(state, single)


def _ack(state: State, head: Head, lsn: int) -> None:
    keep = head.get("k", 0)
    spans = head["q"]
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
    state.pages.fill(first, last, codes.DONE)
    if ref:
        for seq in range(first, last + 1):
            state.pages.set_ref(seq, ref)


def _nack(state: State, head: Head, lsn: int, silent: int = 0) -> None:
    dead, cancelled = frozenset(head.get("x", ())), frozenset(head.get("c", ()))
    texts = frozenset(head.get("e", ()))
    for index, seq in enumerate(_each(head["q"])):
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


def _reclaim(state: State, head: Head, lsn: int) -> None:
    _nack(state, head, lsn, EXPIRED_LEASE)


def _extend(state: State, head: Head, lsn: int) -> None:
    deadline = head["d"]
    progress, states = frozenset(head.get("g", ())), frozenset(head.get("s", ()))
    for index, seq in enumerate(_each(head["q"])):
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
    renewed = Lease(
        [first, last], number, lease.delta, deadline, lease.lane, lease.priority, lease.max_attempts, lease.expires,
        lease.avail, lease.avails,
    )  # fmt: skip
    state.hold(renewed, first, last)


def _release(state: State, head: Head, lsn: int) -> None:
    for index, seq in enumerate(_each(head["q"])):
        lease = state.let_go(seq)
        if lease is None:
            continue
        entry = state.entry_of(seq, lease)
        entry = entry._replace(avail=head["a"][index], wall=False, attempts=entry.attempts - 1, token=seq + lease.delta)
        state.wait_again(seq, entry, head["t"])
        if lease.expires and entry.attempts == 0:
            key = (lease.expires, seq, seq, lease.priority, lease.max_attempts, entry.avail)
            heapq.heappush(state.expiries, key)


def _expire(state: State, head: Head, lsn: int) -> None:
    for seq in _each(head["q"]):
        if not state.never_leased(seq):
            continue
        entry = state.entries.get(seq)
        if entry is None:
            entry = Entry(state.pages.lane(seq), head.get("p", 0), head.get("m", 5), head["a"])
        state.entries[seq] = entry._replace(flags=entry.flags | EXPIRED)
        state.pages.put(seq, codes.DEAD)


def _requeue(state: State, head: Head, lsn: int) -> None:
    for seq in _each(head["q"]):
        if state.pages.code(seq) == codes.DEAD:
            entry = state.entries[seq]._replace(avail=head["t"], attempts=0, wall=False)
            state.wait_again(seq, entry._replace(flags=0), head["t"])


def _drop(state: State, head: Head, lsn: int) -> None:
    spans = head["q"]
    for at in range(0, len(spans), 2):
        for seq in range(spans[at], spans[at + 1] + 1):
            state.entries.pop(seq, None)
            state.let_go(seq)
        state.pages.fill(spans[at], spans[at + 1], codes.NONE)
    state.forget_ids(head.get("h", b""))


def _cancel(state: State, head: Head, lsn: int) -> None:
    for seq in _each(head.get("q", [])):
        if state.pages.code(seq) not in codes.WAITING:
            continue
        entry = state.entries.get(seq) or Entry(state.pages.lane(seq), 0, 0, 0)
        state.entries[seq] = entry._replace(flags=entry.flags & ~CANCEL | CANCELLED)
        state.pages.put(seq, codes.DONE)
        if head.get("k"):
            state.pages.set_ref(seq, lsn)
    for seq in _each(head.get("g", [])):
        lease = state.leased.get(seq)
        if lease is not None:
            entry = state.entry_of(seq, lease)
            state.entries[seq] = entry._replace(flags=entry.flags | CANCEL)


def _pause(state: State, head: Head, lsn: int) -> None:
    if head["p"]:
        state.paused.add(head.get("l"))
    else:
        state.paused.discard(head.get("l"))


def _purge(state: State, head: Head, lsn: int) -> None:
    lane = head.get("l")
    state.next_seq = max(state.next_seq, head["n"])
    if lane is None:
        state.clear()
        return
    number = state.pages.lane_numbers.get(lane)
    if number is None:
        return
    mine = [seq for code in range(1, codes.COUNT) for seq in state.pages.having(code) if state.pages.lane(seq) == lane]
    for seq in mine:
        state.entries.pop(seq, None)
        state.let_go(seq)
        state.pages.put(seq, codes.NONE)
    state.forget_ids(head.get("h", b""))


def _reserve(state: State, head: Head, lsn: int) -> None:
    state.reserved_seq = max(state.reserved_seq, head["s"])
    state.reserved_token = max(state.reserved_token, head["k"])
    state.next_seq = max(state.next_seq, head.get("S", 0))
    state.next_token = max(state.next_token, head.get("K", 0))


def _anchor(state: State, head: Head, lsn: int) -> None:
    if head["b"] != state.boot:
        state.anchors.clear()
        state.boot = head["b"]
    state.anchors[head["n"]] = (head["c"], head["t"])
    if head.get("x"):
        time = head["t"]
        for _, _, lease in state.deadlines:
            lease.deadline = min(lease.deadline, time)
        state.deadlines = [(lease.deadline, next(state._order), lease) for _, _, lease in state.deadlines if lease.alive]
        heapq.heapify(state.deadlines)


def _retire(state: State, head: Head, lsn: int) -> None:
    spans = head.get("g", [])
    for at in range(0, len(spans), 2):
        if state.entries:
            for seq, _ in list(state.pages.known(spans[at], spans[at + 1])):
                state.entries.pop(seq, None)
        state.pages.fill(spans[at], spans[at + 1], codes.NONE)
    state.forget_ids(head.get("h", b""))
    base = head["B"]
    state.next_seq = max(state.next_seq, base["s"])
    state.next_token = max(state.next_token, base["k"])
    state.reserved_seq = max(state.reserved_seq, base["S"])
    state.reserved_token = max(state.reserved_token, base["K"])
    state.time = max(state.time, base["t"])
    state.paused = set(base["p"])
    if base.get("c"):
        _adopt_anchors(state, base["c"])


def _adopt_anchors(state: State, anchors: Head) -> None:
    state.boot = anchors["b"]
    state.anchors = {name: (clock, time) for name, clock, time in anchors["a"]}


_HANDLERS: dict[int, Callable[[State, Head, int], None]] = {
    kinds.ENQUEUE: _enqueue,
    kinds.MOVE: _move,
    kinds.LEASE: _lease,
    kinds.ACK: _ack,
    kinds.NACK: _nack,
    kinds.RECLAIM: _reclaim,
    kinds.EXTEND: _extend,
    kinds.RELEASE: _release,
    kinds.EXPIRE: _expire,
    kinds.REQUEUE: _requeue,
    kinds.DROP: _drop,
    kinds.CANCEL: _cancel,
    kinds.PAUSE: _pause,
    kinds.PURGE: _purge,
    kinds.RESERVE: _reserve,
    kinds.ANCHOR: _anchor,
    kinds.RETIRE: _retire,
}
