"""The census: counts always equal the bytes."""

from __future__ import annotations

from collections import Counter

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
