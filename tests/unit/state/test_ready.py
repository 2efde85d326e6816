"""The ready index beside a sorted list."""

from __future__ import annotations

from array import array

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nobroker.state import codes
from nobroker.state.entries import EXPIRED_LEASE, Entries, Entry
from nobroker.state.numbers import each
from nobroker.state.pages import Pages
from nobroker.state.ready import Piece, ReadyIndex
from nobroker.state.runs import Run, delayed_run

LANES = ("", "a")
priorities = st.sampled_from([-1, 0, 0, 0, 5])
lanes = st.sampled_from(LANES)
NOBODY: frozenset[str] = frozenset()


def taken(pieces: list[Piece]) -> list[tuple[int, int, str, int]]:
    """(seq, available-at, lane, priority) of each job, in order."""
    found = []
    for piece in pieces:
        seqs = list(each(piece.spans))
        assert len(seqs) == piece.size
        avails = [piece.avail] * piece.size if isinstance(piece.avail, int) else piece.avail
        assert len(avails) == piece.size
        found += [(seq, at, piece.lane, piece.priority) for seq, at in zip(seqs, avails, strict=True)]
    return found


class ReadyMachine(RuleBasedStateMachine):
    """Batches, singles, delays, retries; takes and jobs that go away elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages()
        self.entries: Entries = {}
        self.ready = ReadyIndex(self.pages, self.entries)
        self.now = 100
        self.seq = 1
        self.waiting: dict[int, tuple[int, int, str]] = {}
        """seq -> (available-at, priority, lane)"""

    def new(self, count: int) -> int:
        first, self.seq = self.seq, self.seq + count
        return first

    @rule(
        count=st.sampled_from([1, 1, 1, 2, 63, 64, 200]), priority=priorities, lane=lanes, gap=st.booleans()
    )
    def batch(self, count: int, priority: int, lane: str, gap: bool) -> None:
        if gap:
            self.new(3)
        first = self.new(count)
        self.pages.add(first, first + count - 1, codes.READY, lane)
        self.ready.add_batch(lane, priority, 5, 0, first, count, self.now)
        self.waiting.update(dict.fromkeys(range(first, first + count), (self.now, priority, lane)))

    @rule(delays=st.lists(st.integers(0, 30), min_size=1, max_size=12), priority=priorities, lane=lanes)
    def delayed(self, delays: list[int], priority: int, lane: str) -> None:
        first = self.new(len(delays))
        avails = [self.now + delay for delay in delays]
        self.pages.add(first, self.seq - 1, codes.DELAYED, lane)
        self.ready.add_later(delayed_run(lane, -priority, 5, 0, first, array("q", avails), False))
        for seq, avail in enumerate(avails, first):
            self.waiting[seq] = (avail, priority, lane)

    @rule(count=st.integers(1, 100), delay=st.integers(1, 30), priority=priorities, lane=lanes)
    def delayed_batch(self, count: int, delay: int, priority: int, lane: str) -> None:
        first = self.new(count)
        self.pages.add(first, self.seq - 1, codes.DELAYED, lane)
        self.ready.add_later(Run(lane, -priority, 5, 0, first, count, self.now + delay))
        self.waiting.update(dict.fromkeys(range(first, self.seq), (self.now + delay, priority, lane)))

    @rule(delay=st.integers(-20, 20), priority=priorities, lane=lanes, last=st.booleans())
    def retry(self, delay: int, priority: int, lane: str, last: bool) -> None:
        seq = self.new(1)
        avail = self.now + delay
        self.entries[seq] = Entry(
            lane, priority, 2, avail, attempts=1 if last else 0, flags=EXPIRED_LEASE if last else 0
        )
        later = avail > self.now
        self.pages.add(seq, seq, codes.RETRY_LATER if later else codes.RETRY, lane)
        self.ready.add_own(seq, later)
        self.waiting[seq] = (avail, priority, lane)

    @rule(number=st.integers(0, 500), delay=st.integers(-20, 20), drops=st.booleans())
    def reschedule(self, number: int, delay: int, drops: bool) -> None:
        """A job gets another time, and an entry of its own."""
        if not self.waiting:
            return
        seq = sorted(self.waiting)[number % len(self.waiting)]
        _, priority, lane = self.waiting[seq]
        avail = self.now + delay
        entry = self.entries.get(seq) or Entry(lane, priority, 5, 0)
        if seq in self.entries and drops:
            self.ready.drop_own(seq)
        self.entries[seq] = entry._replace(avail=avail)
        later = avail > self.now
        self.pages.put(seq, codes.RETRY_LATER if later else codes.RETRY)
        self.ready.add_own(seq, later)
        self.waiting[seq] = (avail, priority, lane)

    @rule(by=st.integers(0, 15))
    def advance(self, by: int) -> None:
        self.now += by

    @rule(numbers=st.lists(st.integers(0, 500), max_size=20))
    def go_elsewhere(self, numbers: list[int]) -> None:
        """Cancelled, expired, purged, or leased by a record of another process."""
        for number in numbers:
            if self.waiting:
                seq = sorted(self.waiting)[number % len(self.waiting)]
                self.pages.put(seq, codes.DONE)
                self.entries.pop(seq, None)
                del self.waiting[seq]

    def due(self, some: tuple[str, ...]) -> list[int]:
        return sorted(
            (seq for seq, (avail, _, lane) in self.waiting.items() if avail <= self.now and lane in some),
            key=lambda seq: (-self.waiting[seq][1], self.waiting[seq][0], seq),
        )

    def last_chance(self, seq: int) -> bool:
        entry = self.entries.get(seq)
        return entry is not None and entry.last_chance

    @rule(
        count=st.sampled_from([1, 2, 3, 10, 70, 1000]),
        some=st.sampled_from([None, ("",), ("a",)]),
        pause=st.booleans(),
    )
    def take(self, count: int, some: tuple[str, ...] | None, pause: bool) -> None:
        paused = frozenset({"a"}) if pause else NOBODY
        self.ready.promote(self.now, 0)
        expected: list[int] = []
        for seq in self.due(tuple(lane for lane in (some or LANES) if lane not in paused)):
            if len(expected) == count or (expected and self.last_chance(seq)):
                break
            expected.append(seq)
            if self.last_chance(seq):
                break
        assert self.ready.has_ready(some, paused) == bool(expected)
        found = taken(self.ready.take(count, some, paused))
        assert [seq for seq, *_ in found] == expected
        for seq, avail, lane, priority in found:
            assert (avail, priority, lane) == self.waiting.pop(seq)
            self.pages.put(seq, codes.LEASED)
            self.entries.pop(seq, None)

    @rule()
    def trim(self) -> None:
        self.ready.trim()

    @invariant()
    def looks_agree(self) -> None:
        self.ready.promote(self.now, 0)
        order = list(self.ready.in_order())
        due = self.due(LANES)
        assert order[: len(due)] == due
        assert sorted(order) == sorted(self.waiting)
        assert list(self.ready.in_order(("a",)))[: len(self.due(("a",)))] == self.due(("a",))

    @invariant()
    def next_due_is_not_late(self) -> None:
        self.ready.promote(self.now, 0)
        later = [avail for avail, _, _ in self.waiting.values() if avail > self.now]
        due = self.ready.next_due()[0]
        if later:
            assert due is not None
            assert due <= min(later)


ReadyMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestReady = ReadyMachine.TestCase
