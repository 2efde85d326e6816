"""The census: counts always equal the bytes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nobroker.state import codes
from nobroker.state.pages import SIZE, Pages

LANES = ("", "a", "b")
some_code = st.integers(1, codes.COUNT - 1)
any_code = st.integers(0, codes.COUNT - 1)
# Around the borders of pages, where mistakes are.
places = st.integers(1, 40) | st.integers(SIZE - 20, SIZE + 20) | st.integers(3 * SIZE - 5, 3 * SIZE + 5)


class PagesMachine(RuleBasedStateMachine):
    """Beside a plain dict of sequence numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages()
        self.known: dict[int, tuple[int, str]] = {}
        self.own: set[int] = set()
        self.tokens: dict[int, int] = {}
        self.refs: dict[int, int] = {}

    @rule(first=places, length=st.integers(1, 60), code=some_code, lane=st.sampled_from(LANES))
    def add(self, first: int, length: int, code: int, lane: str) -> None:
        seqs = range(first, first + length)
        if not any(seq in self.known for seq in seqs):
            self.pages.add(first, first + length - 1, code, lane)
            self.known.update(dict.fromkeys(seqs, (code, lane)))

    @rule(code=some_code)
    def add_over_pages(self, code: int) -> None:
        first, last = SIZE + 100, 3 * SIZE - 200
        if any(seq in self.known for seq in range(first, last + 1)):
            return
        self.pages.add(first, last, code, "")
        self.known.update(dict.fromkeys(range(first, last + 1), (code, "")))

    @rule(first=places, length=st.sampled_from([-5, 0, 1, 30, 2 * SIZE, 2**60]))
    def tally(self, first: int, length: int) -> None:
        last = first + length - 1
        found = Counter(code for seq, (code, _) in self.known.items() if first <= seq <= last)
        expected = [found[code] for code in range(codes.COUNT)]
        expected[codes.NONE] = max(length, 0) - sum(expected[1:])
        assert self.pages.tally(first, last) == expected

    @rule(seq=places, code=any_code)
    def put(self, seq: int, code: int) -> None:
        old = self.known.get(seq, (codes.NONE, ""))[0]
        assert self.pages.put(seq, code) == old
        self._change(seq, code)

    @rule(first=places, length=st.integers(0, 3 * SIZE), code=any_code)
    def fill(self, first: int, length: int, code: int) -> None:
        self.pages.fill(first, first + length, code)
        for seq in range(first, first + length + 1):
            self._change(seq, code)

    def _change(self, seq: int, code: int) -> None:
        if seq in self.known:
            if code:
                self.known[seq] = (code, self.known[seq][1])
            else:
                del self.known[seq]
                self.own.discard(seq)
                self.tokens.pop(seq, None)
                self.refs.pop(seq, None)

    @rule(seq=places, delta=st.integers(0, 2**40))
    def remember(self, seq: int, delta: int) -> None:
        if seq in self.known:
            self.pages.set_own_ids(seq, seq)
            self.pages.set_tokens(seq, seq, delta)
            self.pages.set_ref(seq, delta + 1)
            self.own.add(seq)
            self.tokens[seq], self.refs[seq] = seq + delta, delta + 1

    @rule(first=places, length=st.integers(0, 200), code=any_code)
    def look(self, first: int, length: int, code: int) -> None:
        last = first + length
        found = [seq for seq in range(first, last + 1) if self.known.get(seq, (0, ""))[0] == code]
        assert self.pages.count_in(first, last, code) == len(found)
        if code:
            assert self.pages.next_with(first, last, code) == (found[0] if found else -1)
            span = 0
            while first + span <= last and self.known.get(first + span, (0, ""))[0] == code:
                span += 1
            assert self.pages.span_with(first, last, code) == span
            wanted = (code, codes.DONE)
            later = [seq for seq in self.known if seq >= first and self.known[seq][0] in wanted]
            assert self.pages.next_of(first, wanted) == (min(later) if later else None)
        known = [(seq, self.known[seq][0]) for seq in range(first, last + 1) if seq in self.known]
        assert [(s, self.pages.code(s)) for s in range(first, last + 1) if self.pages.code(s)] == known

    @invariant()
    def counts_equal_the_bytes(self) -> None:
        tally = Counter(self.known.values())
        for lane in LANES:
            for code in range(1, codes.COUNT):
                assert self.pages.total(code, lane) == tally[code, lane]
        for code in range(1, codes.COUNT):
            assert self.pages.total(code) == sum(tally[code, lane] for lane in LANES)
            assert list(self.pages.having(code)) == sorted(
                seq for seq, (found, _) in self.known.items() if found == code
            )
        for number, page in self.pages.table.items():
            assert any(page.codes), f"page {number} holds nothing"

    @invariant()
    def what_is_remembered_goes_with_its_job(self) -> None:
        for seq in [*range(1, 42), *range(SIZE - 20, SIZE + 20)]:
            code, lane = self.known.get(seq, (codes.NONE, ""))
            assert self.pages.code(seq) == code
            assert self.pages.lane(seq) == lane
            assert self.pages.has_own_id(seq) == (seq in self.own)
            assert self.pages.token(seq) == self.tokens.get(seq, 0)
            assert self.pages.ref(seq) == self.refs.get(seq, 0)


PagesMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestPages = PagesMachine.TestCase


def test_a_lane_nobody_used_has_no_jobs() -> None:
    assert Pages().total(codes.READY, "nobody") == 0


def test_tokens_over_the_border_of_a_page() -> None:
    pages = Pages()
    pages.add(SIZE - 3, SIZE + 3, codes.DONE, "")
    pages.set_tokens(SIZE - 3, SIZE + 3, 1000)
    assert [pages.token(seq) for seq in range(SIZE - 4, SIZE + 5)] == [
        0,
        *(seq + 1000 for seq in range(SIZE - 3, SIZE + 4)),
        0,
    ]


def test_what_is_not_known_stays_so() -> None:
    pages = Pages()
    pages.set_ref(5, 77)
    pages.set_tokens(5, 3 * SIZE, 1)
    pages.set_own_ids(5, 3 * SIZE)
    pages.fill(5, 3 * SIZE, codes.DONE)
    assert (pages.put(5, codes.DONE), pages.turn(5, codes.READY, codes.DONE)) == (codes.NONE, False)
    assert pages.table == {}
    assert (pages.code(5), pages.token(5), pages.ref(5), pages.lane(5)) == (codes.NONE, 0, 0, "")
    assert not pages.has_own_id(5)
    assert pages.total(codes.DONE) == 0


@pytest.mark.parametrize("lane", ["", "a"])
def test_a_number_that_is_known_again_has_nothing_of_the_job_before(lane: str) -> None:
    pages = Pages()
    pages.add(1, 20, codes.DONE, lane)
    pages.set_tokens(1, 20, 1000)
    pages.set_own_ids(1, 20)
    for seq in range(1, 21):
        pages.set_ref(seq, 7000 + seq)
    pages.add(30, 31, codes.READY, "")
    pages.put(3, codes.NONE)
    pages.fill(5, 9, codes.NONE)
    bare = Pages()
    bare.add(1, 9, codes.READY, "")
    bare.put(3, codes.NONE)
    bare.fill(5, 6, codes.NONE)
    assert [seq for seq in range(1, 10) if bare.code(seq)] == [1, 2, 4, 7, 8, 9]
    gone = (3, *range(5, 10))
    pages.add(3, 3, codes.READY, "")
    pages.add(5, 9, codes.READY, "")
    for seq in range(1, 21):
        known = seq not in gone
        assert pages.token(seq) == (1000 + seq if known else 0)
        assert pages.ref(seq) == (7000 + seq if known else 0)
        assert pages.has_own_id(seq) == known
        assert pages.lane(seq) == (lane if known else "")
    assert (pages.total(codes.DONE, lane), pages.total(codes.READY, "")) == (14, 8)


def test_a_tally_counts_each_state() -> None:
    pages = Pages()
    pages.add(1, 10, codes.READY, "")
    pages.add(SIZE - 2, SIZE + 5, codes.DONE, "a")
    pages.add(7 * SIZE, 7 * SIZE, codes.DEAD, "")
    for first, last in (
        (1, 10),
        (5, SIZE),
        (0, 8 * SIZE),
        (SIZE + 6, 7 * SIZE - 1),
        (4, 4),
        (9, 8),
        (1, 2**50),
    ):
        counts = pages.tally(first, last)
        assert len(counts) == codes.COUNT
        for code in range(1, codes.COUNT):
            held = [seq for seq in pages.having(code) if first <= seq <= last]
            assert counts[code] == len(held)
        assert sum(counts) == max(last - first + 1, 0)


def test_pages_that_were_left_out() -> None:
    pages = Pages()
    assert pages.skip_unknown(7) >= 2**62
    assert pages.next_of(7, (codes.READY,)) is None
    pages.add(5 * SIZE + 3, 5 * SIZE + 3, codes.READY, "")
    pages.add(9 * SIZE + 4, 9 * SIZE + 4, codes.DONE, "")
    assert pages.skip_unknown(7) == 5 * SIZE
    assert pages.skip_unknown(5 * SIZE + 9) == 5 * SIZE + 9
    assert pages.skip_unknown(6 * SIZE) == 9 * SIZE
    assert pages.next_of(7, (codes.READY, codes.DONE)) == 5 * SIZE + 3
    assert pages.next_of(5 * SIZE + 4, (codes.READY, codes.DONE)) == 9 * SIZE + 4
    assert pages.next_of(5 * SIZE + 3, (codes.DONE,)) == 9 * SIZE + 4
    assert pages.next_of(9 * SIZE + 5, (codes.DONE,)) is None


def test_an_empty_range_has_nothing() -> None:
    pages = Pages()
    pages.add(1, 9, codes.READY, "")
    for first, last in ((5, 4), (SIZE, SIZE - 1)):
        pages.fill(first, last, codes.DONE)
        assert pages.count_in(first, last, codes.READY) == 0
        assert pages.next_with(first, last, codes.READY) == -1
        assert pages.span_with(first, last, codes.READY) == 0
        assert pages.plain(first, last, codes.DONE)
    assert pages.total(codes.READY) == 9


def test_jobs_of_which_there_is_nothing_to_remember() -> None:
    pages = Pages()
    pages.add(1, SIZE + 9, codes.DONE, "")
    assert pages.plain(1, SIZE + 9, codes.DONE)
    assert not pages.plain(1, SIZE + 9, codes.DEAD)
    assert not pages.plain(0, SIZE + 9, codes.DONE), "there is no job 0"
    assert not pages.plain(1, 3 * SIZE, codes.DONE)
    pages.set_ref(7, 1000)
    pages.set_own_ids(SIZE + 5, SIZE + 5)
    for first, last, plain in (
        (1, 6, True), (7, 7, False), (8, SIZE + 4, True), (1, 8, False),
        (SIZE, SIZE + 5, False), (SIZE + 6, SIZE + 9, True),
    ):  # fmt: skip
        assert pages.plain(first, last, codes.DONE) == plain


def test_looking_over_several_pages() -> None:
    pages = Pages()
    pages.add(SIZE - 2, SIZE + 1, codes.READY, "")
    pages.add(4 * SIZE - 1, 4 * SIZE + 2, codes.READY, "")
    assert pages.next_with(3, 5 * SIZE, codes.READY) == SIZE - 2
    assert pages.next_with(SIZE + 2, 5 * SIZE, codes.READY) == 4 * SIZE - 1
    assert pages.next_with(SIZE + 2, 4 * SIZE - 2, codes.READY) == -1
    assert pages.next_with(4 * SIZE + 3, 9 * SIZE, codes.READY) == -1
    assert pages.span_with(SIZE - 2, 5 * SIZE, codes.READY) == 4
    assert pages.span_with(4 * SIZE - 1, 6 * SIZE, codes.READY) == 4
    assert pages.span_with(4 * SIZE - 1, 4 * SIZE, codes.READY) == 2
    assert pages.span_with(2 * SIZE, 3 * SIZE, codes.READY) == 0
    pages.fill(4 * SIZE + 3, 4 * SIZE + 9, codes.READY)
    pages.add(4 * SIZE + 3, 5 * SIZE - 1, codes.READY, "")
    assert pages.span_with(4 * SIZE, 6 * SIZE, codes.READY) == SIZE, "up to a page that is not there"
    pages.put(SIZE - 2, codes.DONE)
    assert pages.next_of(0, (codes.READY,)) == SIZE - 1
    assert pages.next_of(SIZE + 2, (codes.DONE, codes.READY)) == 4 * SIZE - 1
    pages.put(4 * SIZE - 1, codes.DONE)
    assert pages.next_of(3 * SIZE, (codes.READY,)) == 4 * SIZE, "on the page after that"
    for _ in range(2):
        pages.set_own_ids(SIZE - 1, SIZE)
    assert [seq for seq in range(SIZE - 3, SIZE + 3) if pages.has_own_id(seq)] == [SIZE - 1, SIZE]
    assert pages.tally(0, 2 * SIZE)[codes.READY] == 3
    assert pages.tally(SIZE, 3 * SIZE)[codes.READY] == 2
