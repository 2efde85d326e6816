"""The ready index beside a sorted list."""

from __future__ import annotations

from array import array

import pytest
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


def index(*entries: tuple[int, Entry], later: bool = False) -> ReadyIndex:
    """Single jobs with entries of their own."""
    pages, table = Pages(), dict(entries)
    found = ReadyIndex(pages, table)
    for seq, entry in entries:
        pages.add(seq, seq, codes.RETRY_LATER if later else codes.RETRY, entry.lane)
        found.add_own(seq, later)
    return found


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("wall", [False, True])
def test_a_row_that_stands_already_is_not_added_again(later: bool, wall: bool) -> None:
    ready = index((5, Entry("", 0, 5, 10, wall=wall)), (6, Entry("", 0, 5, 11, wall=wall)), later=later)
    for seq in (5, 6, 5):
        ready.add_own(seq, later)
    if later:
        assert ready.next_due() == ((None, 10) if wall else (10, None))
        ready.promote(10, 10)
        assert list(ready.in_order()) == [5, 6]
        ready.promote(11, 11)
        assert ready.next_due() == (None, None)
    assert [seq for seq, *_ in taken(ready.take(10, None, NOBODY))] == [5, 6]
    assert ready.take(10, None, NOBODY) == []


def test_what_was_taken_for_nothing_is_put_back() -> None:
    ready = index((5, Entry("", 3, 5, 10)))
    pages = ready._pages
    pages.add(10, 12, codes.READY, "")
    ready.add_batch("", 0, 5, 0, 10, 3, 100)
    pages.add(20, 22, codes.DELAYED, "a")
    ready.add_later(delayed_run("a", -1, 4, 900, 20, array("q", [103, 101, 102]), False))
    ready.promote(103, 0)
    for _ in range(3):
        pieces = ready.take(100, None, NOBODY)
        assert taken(pieces) == [
            (5, 10, "", 3),
            *((21, 101, "a", 1), (22, 102, "a", 1), (20, 103, "a", 1)),
            *((10, 100, "", 0), (11, 100, "", 0), (12, 100, "", 0)),
        ]
        assert {(piece.max_attempts, piece.expires) for piece in pieces if piece.lane == "a"} == {(4, 900)}
        assert not ready.has_ready(None, NOBODY)
        ready.put_back(pieces)
    assert list(ready.in_order()) == [5, 21, 22, 20, 10, 11, 12]


def test_rows_that_speak_of_nothing_any_more() -> None:
    ready = index((5, Entry("a", 0, 5, 10)), (6, Entry("a", 0, 5, 11)), (7, Entry("b", 0, 5, 12)), later=True)
    pages = ready._pages
    pages.add(20, 22, codes.DELAYED, "b")
    ready.add_later(delayed_run("b", 0, 5, 0, 20, array("q", [13, 14, 15]), False))
    assert list(ready.in_order()) == [5, 6, 7, 20, 21, 22]
    assert list(ready.in_order(("b",))) == [7, 20, 21, 22]
    del ready._entries[5]
    ready._entries[6] = ready._entries[6]._replace(wall=True)
    pages.put(21, codes.DONE)
    assert list(ready.in_order()) == [7, 20, 22]
    assert list(ready.in_order(("a",))) == []
    assert list(ready.in_order(("",))) == []
    ready.promote(20, 0)
    assert pages.code(6) == codes.RETRY_LATER, "it waits for the other clock by now"
    assert [seq for seq, *_ in taken(ready.take(10, None, NOBODY))] == [7, 20, 22]


def test_leased_jobs_that_count_as_waiting() -> None:
    ready = index((5, Entry("", 0, 5, 10)), (6, Entry("", 0, 5, 20)))
    ready._pages.put(5, codes.LEASED)
    assert list(ready.in_order()) == [6]
    assert list(ready.in_order(more=[(0, 10, 5)])) == [5, 6], "once, though its old row is at the same place"
    assert list(ready.in_order(more=[(0, 30, 5)])) == [6, 5]
    assert list(ready.in_order(more=[(-1, 30, 5), (0, 15, 9)])) == [5, 9, 6]


def test_who_waits_longest() -> None:
    ready = index((5, Entry("a", 2, 5, 50)), (6, Entry("b", 0, 5, 20)), (7, Entry("a", 0, 5, 40)))
    pages = ready._pages
    pages.add(10, 12, codes.READY, "a")
    ready.add_batch("a", 0, 5, 0, 10, 3, 30)
    pages.add(100, 199, codes.READY, "a")
    ready.add_batch("a", 1, 5, 0, 100, 100, 60)
    assert ready.oldest(None, frozenset()) == 20
    assert ready.oldest(("a",), frozenset()) == 30
    assert ready.oldest(("c",), frozenset()) is None
    assert ready.oldest(None, frozenset({6})) == 30
    pages.fill(10, 12, codes.DONE)
    assert ready.oldest(("a",), frozenset()) == 40
    assert ready.oldest(("a",), frozenset({7})) == 50
    assert ready.oldest(("a",), frozenset({5, 7})) == 60
    ready._entries[7] = ready._entries[7]._replace(avail=45)
    assert ready.oldest(("a",), frozenset()) == 50, "the row of the time before is none"
    pages.put(5, codes.LEASED)
    assert ready.oldest(("a",), frozenset()) == 60


def test_one_by_one_from_the_only_lane() -> None:
    ready = index()
    pages = ready._pages
    assert ready.take(1, None, NOBODY) == []
    pages.add(1, 3, codes.READY, "")
    for seq in (1, 2, 3):
        ready.add_batch("", 0, 5, 0, seq, 1, 100 + seq)
    pages.put(2, codes.DONE)
    assert taken(ready.take(1, None, NOBODY)) == [(1, 101, "", 0)]
    pages.put(1, codes.LEASED)
    assert taken(ready.take(1, None, NOBODY)) == [(3, 103, "", 0)]
    assert ready.take(1, None, NOBODY) == []
    assert ready._tails == {}, "a run that is used up is let go"
    pages.add(4, 5, codes.READY, "")
    ready.add_batch("", 0, 5, 0, 4, 1, 110)
    ready.add_batch("", 2, 5, 0, 5, 1, 120)
    assert [taken(ready.take(1, None, NOBODY))[0][0] for _ in range(2)] == [5, 4]
    for seq in (6, 8, 9):
        pages.add(seq, seq, codes.READY, "")
        ready.add_batch("", 0, 5, 0, seq, 1, 130 + seq)
    assert [taken(ready.take(1, None, NOBODY)) for _ in range(4)] == [
        [(6, 136, "", 0)], [(8, 138, "", 0)], [(9, 139, "", 0)], []
    ]  # fmt: skip
    own = index((5, Entry("", 0, 5, 10)), (6, Entry("", 0, 5, 11)))
    assert [taken(own.take(1, None, NOBODY))[0][:2] for _ in range(2)] == [(5, 10), (6, 11)]


def test_jobs_that_went_elsewhere_are_left_out_of_a_row_with_gaps() -> None:
    ready = index()
    pages = ready._pages
    for seq in (1, 3, 4, 5, 9):
        pages.add(seq, seq, codes.READY, "")
        ready.add_batch("", 0, 5, 0, seq, 1, 100 + seq)
    pages.fill(4, 5, codes.DONE)
    (piece,) = ready.take(3, None, NOBODY)
    assert (piece.spans, piece.size, piece.avail) == ([1, 1, 3, 3, 9, 9], 3, [101, 103, 109])
    assert ready.take(3, None, NOBODY) == []


def test_a_large_batch_is_one_piece() -> None:
    ready = index()
    ready._pages.add(1, 200, codes.READY, "")
    ready.add_batch("", 0, 5, 70, 1, 200, 100)
    (piece,) = ready.take(150, None, NOBODY)
    assert piece == Piece([1, 150], 150, "", 0, 5, 70, 100)
    ready._pages.fill(160, 169, codes.DONE)
    assert [piece.spans for piece in ready.take(150, None, NOBODY)] == [[151, 159], [170, 200]]
    assert ready.take(150, None, NOBODY) == []


def test_lanes_are_told_apart_by_what_comes_next() -> None:
    ready = index()
    pages = ready._pages
    for seq, lane, priority in (
        (1, "a", 0),
        (2, "b", 0),
        (3, "c", 5),
        (4, "a", 0),
        (5, "b", -1),
        (6, "c", 0),
    ):
        pages.add(seq, seq, codes.READY, lane)
        ready.add_batch(lane, priority, 5, 0, seq, 1, 100)
    assert [seq for seq, *_ in taken(ready.take(10, None, NOBODY))] == [3, 1, 2, 4, 6, 5]


def test_a_job_on_its_last_chance_is_taken_alone() -> None:
    last = Entry("", 0, 2, 11, attempts=1, flags=EXPIRED_LEASE)
    ready = index((5, Entry("", 0, 2, 10)), (6, last), (7, Entry("", 0, 2, 12)))
    assert [[seq for seq, *_ in taken(ready.take(10, None, NOBODY))] for _ in range(4)] == [[5], [6], [7], []]


def test_rows_that_are_not_true_any_more_are_passed_over() -> None:
    ready = index((5, Entry("", 0, 5, 10)), (6, Entry("a", 0, 5, 11)))
    pages = ready._pages
    pages.add(10, 79, codes.READY, "a")
    ready.add_batch("a", 0, 5, 0, 10, 70, 5)
    pages.add(80, 80, codes.READY, "a")
    ready.add_batch("a", 0, 5, 0, 80, 1, 7)
    pages.put(5, codes.DONE)
    pages.fill(10, 70, codes.DONE)
    assert not ready.has_ready(("",), NOBODY)
    assert not ready.has_ready(("",), NOBODY)
    assert list(ready.lanes) == ["a"], "an empty lane is let go"
    pages.add(200, 269, codes.READY, "a")
    ready.add_batch("a", 0, 5, 0, 200, 70, 5)
    assert [seq for seq, *_ in taken(ready.take(12, None, NOBODY))] == [*range(71, 80), 200, 201, 202]
    assert [seq for seq, *_ in taken(ready.take(100, ("a",), NOBODY))] == [*range(203, 270), 80, 6]
    pages.add(300, 369, codes.READY, "a")
    ready.add_batch("a", 0, 5, 0, 300, 70, 20)
    pages.add(370, 370, codes.READY, "b")
    ready.add_batch("b", 0, 5, 0, 370, 1, 20)
    pages.fill(300, 369, codes.LEASED)
    ready.trim()
    assert list(ready.lanes) == ["b"]
    assert not ready.has_ready(None, frozenset({"b"}))


def test_a_run_whose_front_went_elsewhere_waits_for_its_turn() -> None:
    ready = index()
    pages = ready._pages
    for seq in (1, 2, 4):
        pages.add(seq, seq, codes.READY, "")
        ready.add_batch("", 0, 5, 0, seq, 1, 100 + 10 * seq)
    pages.add(10, 80, codes.READY, "")
    ready.add_batch("", 0, 5, 0, 10, 71, 125)
    pages.fill(1, 2, codes.LEASED)
    assert [seq for seq, *_ in taken(ready.take(72, None, NOBODY))] == [*range(10, 81), 4]
