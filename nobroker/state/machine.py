"""The state of a queue. How records change it stands in `replay`.

Invariants
- READY and DELAYED (RETRY and RETRY_LATER) differ only in what this process has promoted so far.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

from nobroker.state import codes
from nobroker.state.entries import NO_EXPIRY, Entries, Entry, Lease
from nobroker.state.numbers import each, unpack_words
from nobroker.state.owned import OwnIds, id_digest, id_digests
from nobroker.state.pages import Pages
from nobroker.state.ready import ReadyIndex

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
        self.expiries: list[tuple[int, int, int, int, int]] = []
        self.ids = OwnIds()
        self.order = count()

    # -- questions

    def find_own(self, job_id: str) -> tuple[int, ...]:
        """Sequence numbers of jobs that may have this id of a caller's: the log must confirm."""
        return self.ids.find(id_digest(job_id))

    def next_deadline(self) -> int:
        """When the next lease ends."""
        heap = self.deadlines
        while heap and heap[0][2].alive == 0:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def next_event(self) -> int:
        """When time alone changes something next, in queue time: a lease ends, a delay or a waiting job's
        time is over, a rate has room again.
        """
        due, _ = self.ready.next_due()
        opening = self.ready.next_opening()
        expiry = self.expiries[0][0] if self.expiries else NEVER
        return min(
            self.next_deadline(), NEVER if due is None else due, NEVER if opening is None else opening, expiry
        )

    def overdue(self, now: int) -> list[tuple[int, Lease]]:
        """Jobs whose lease has ended by `now`, in the order of deadline and sequence number."""
        if self.next_deadline() > now:
            return []
        ended = sorted(
            {
                id(lease): (when, lease) for when, _, lease in self.deadlines if when <= now and lease.alive
            }.values(),
            key=_first,
        )
        return [
            (seq, lease) for _, lease in ended for seq in each(lease.spans) if self.leased.get(seq) is lease
        ]

    def outdated(self, now: int) -> list[tuple[list[int], int, int, int]]:
        """Waiting jobs whose expiry has passed: `(sequence numbers, priority, max_attempts, expiry)`."""
        if not self.expiries or self.expiries[0][0] > now:
            return []
        passed = [entry for entry in self.expiries if entry[0] <= now]
        return [
            (seqs, priority, max_attempts, expires)
            for expires, first, last, priority, max_attempts in passed
            if (seqs := [seq for seq in range(first, last + 1) if self.never_leased(seq)])
        ]

    def drop_outdated(self, now: int) -> None:
        """Let go of expiries that have passed and were written down."""
        while self.expiries and self.expiries[0][0] <= now:
            heapq.heappop(self.expiries)

    def never_leased(self, seq: int) -> bool:
        """Whether a job's expiry still counts: it waits, was never leased, and nobody requeued it."""
        code = self.pages.code(seq)
        if code in (codes.READY, codes.DELAYED):
            return True
        if code not in (codes.RETRY, codes.RETRY_LATER):
            return False
        entry = self.entries[seq]
        return entry.attempts == 0 and not entry.flags & NO_EXPIRY

    def attempts(self, seq: int) -> int:
        """How often a job was leased."""
        entry = self.entries.get(seq)
        if entry is not None:
            return entry.attempts
        return 1 if self.pages.code(seq) in (codes.LEASED, codes.DONE) else 0

    # -- leases

    def hold(self, lease: Lease, first: int, last: int) -> None:
        """Register jobs under a lease."""
        if first == last:
            self.leased[first] = lease
        else:
            self.leased.update(dict.fromkeys(range(first, last + 1), lease))
        heapq.heappush(self.deadlines, (lease.deadline, next(self.order), lease))
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
            place, expires = lease.place(seq), lease.expires
            entry = Entry(lease.lane, lease.priority, lease.max_attempts, place, attempts=1, expires=expires)
        return entry

    def wait_again(self, seq: int, entry: Entry, time: int) -> None:
        """Put a job with an entry among the waiting."""
        self.entries[seq] = entry
        later = entry.wall or entry.avail > time
        self.pages.put(seq, codes.RETRY_LATER if later else codes.RETRY)
        self.ready.add_own(seq, later)

    def remember_id(self, job_id: str, seq: int) -> None:
        self.ids.add(id_digest(job_id), seq)
        self.pages.set_own_ids(seq, seq)

    def remember_ids(self, job_ids: list[str], first: int) -> None:
        """Ids of known jobs that follow each other."""
        self.ids.add_all(id_digests(job_ids), first)
        self.pages.set_own_ids(first, first + len(job_ids) - 1)

    def forget_ids(self, digests: bytes) -> None:
        self.ids.forget(unpack_words("Q", digests), self.pages.code)


def _first(pair: tuple[int, Lease]) -> tuple[int, int]:
    return pair[0], pair[1].spans[0]
