"""A byte for each job: the census.

Invariants
- The byte of a sequence number is its state (`codes`); what the table does not hold is NONE.
- `counts` per lane always equal the bytes: every change goes through `fill` or `put`, which keep both.
- A page exists only while it holds a byte that is not NONE.
- `watch`, when there is one, is told of every change but of new jobs, after it.

Tokens and references of finished jobs stand in arrays beside the bytes, made only for pages that have such
jobs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from nobroker.state.codes import COUNT, NONE

SHIFT: Final = 12
SIZE: Final = 1 << SHIFT
MASK: Final = SIZE - 1
_ZERO_WORDS: Final = array("Q", bytes(8 * SIZE))


class Page:
    """The jobs with the sequence numbers `number * SIZE` and up."""

    __slots__ = ("codes", "lanes", "own", "refs", "tokens")

    def __init__(self) -> None:
        self.codes = bytearray(SIZE)
        self.tokens: array[int] | None = None
        self.refs: array[int] | None = None
        self.lanes: array[int] | None = None
        self.own: bytearray | None = None


class Pages:
    """All pages, the lanes, and the counts."""

    def __init__(self) -> None:
        self.table: dict[int, Page] = {}
        self.lane_names: list[str] = [""]
        self.lane_numbers: dict[str, int] = {"": 0}
        self.counts: list[list[int]] = [[0] * COUNT]
        self.watch: Callable[[int, int, int], None] | None = None
        """Takes the first and the last sequence number, and their code."""

    # -- reading

    def skip_unknown(self, seq: int) -> int:
        """The first number from `seq` on whose page has any job: millions may have been left out."""
        number = seq >> SHIFT
        if number in self.table:
            return seq
        return min((known for known in self.table if known > number), default=2**65 >> SHIFT) << SHIFT

    def code(self, seq: int) -> int:
        page = self.table.get(seq >> SHIFT)
        return NONE if page is None else page.codes[seq & MASK]

    def token(self, seq: int) -> int:
        """The last token of a finished job; 0 when it had none."""
        page = self.table.get(seq >> SHIFT)
        return 0 if page is None or page.tokens is None else page.tokens[seq & MASK]

    def ref(self, seq: int) -> int:
        """LSN of the record that holds what was said of the job at its end; 0 when nothing is kept."""
        page = self.table.get(seq >> SHIFT)
        return 0 if page is None or page.refs is None else page.refs[seq & MASK]

    def lane(self, seq: int) -> str:
        page = self.table.get(seq >> SHIFT)
        return "" if page is None or page.lanes is None else self.lane_names[page.lanes[seq & MASK]]

    def has_own_id(self, seq: int) -> bool:
        page = self.table.get(seq >> SHIFT)
        return page is not None and page.own is not None and page.own[seq & MASK] != 0

    def total(self, code: int, lane: str | None = None) -> int:
        """How many jobs have the code, in one lane or all."""
        if lane is None:
            return sum(counts[code] for counts in self.counts)
        number = self.lane_numbers.get(lane)
        return 0 if number is None else self.counts[number][code]

    def next_with(self, first: int, last: int, code: int) -> int:
        """The lowest sequence number in `first..last` with the code; -1 when there is none."""
        front = self.table.get(first >> SHIFT)
        if front is not None and first <= last and front.codes[first & MASK] == code:
            return first
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            if page is not None:
                found = page.codes.find(code, low, high)
                if found >= 0:
                    return (number << SHIFT) + found
        return -1

    def span_with(self, first: int, last: int, code: int) -> int:
        """How many sequence numbers from `first` on, up to `last`, have the code without a gap."""
        if first == last:
            return int(self.code(first) == code)
        length = 0
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            if page is None:
                return length
            rest = page.codes[low:high].lstrip(bytes((code,)))
            length += high - low - len(rest)
            if rest:
                return length
        return length

    def count_in(self, first: int, last: int, code: int) -> int:
        found = 0
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            found += (
                high - low
                if page is None and code == NONE
                else 0
                if page is None
                else page.codes.count(code, low, high)
            )
        return found

    def tally(self, first: int, last: int) -> list[int]:
        """How many jobs of `first..last` have each code; those that are not known count for NONE."""
        counts = [0] * COUNT
        low_page, high_page = first >> SHIFT, last >> SHIFT
        few = high_page - low_page < len(self.table)
        for number in range(low_page, high_page + 1) if few else list(self.table):
            page = self.table.get(number)
            if page is None:
                continue
            low, high = max(first - (number << SHIFT), 0), min(last + 1 - (number << SHIFT), SIZE)
            for code in range(1, COUNT):
                counts[code] += page.codes.count(code, low, max(low, high))
        counts[NONE] = max(last - first + 1, 0) - sum(counts)
        return counts

    def plain(self, first: int, last: int, code: int) -> bool:
        """Whether all have the code, and none has a reference or an id of the caller's own."""
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            if page is None or page.codes.count(code, low, high) != high - low:
                return False
            if page.refs is not None and any(page.refs[low:high]):
                return False
            if page.own is not None and page.own.count(0, low, high) != high - low:
                return False
        return True

    def having(self, code: int) -> Iterator[int]:
        """All sequence numbers with the code, ascending."""
        for number in sorted(self.table):
            page = self.table.get(number)
            at = -1 if page is None else page.codes.find(code)
            while page is not None and at >= 0:
                yield (number << SHIFT) + at
                at = page.codes.find(code, at + 1)

    def next_of(self, start: int, wanted: Iterable[int]) -> int | None:
        """The lowest sequence number from `start` on that has one of the codes."""
        number, low = start >> SHIFT, start & MASK
        while True:
            page = self.table.get(number)
            if page is not None:
                found = [at for code in wanted if (at := page.codes.find(code, low)) >= 0]
                if found:
                    return (number << SHIFT) + min(found)
            low = 0
            if number + 1 in self.table:
                number += 1
            else:
                following = min((other for other in self.table if other > number), default=None)
                if following is None:
                    return None
                number = following

    # -- changing

    def lane_number(self, lane: str) -> int:
        number = self.lane_numbers.get(lane)
        if number is None:
            number = self.lane_numbers[lane] = len(self.lane_names)
            self.lane_names.append(lane)
            self.counts.append([0] * COUNT)
        return number

    def add(self, first: int, last: int, code: int, lane: str) -> None:
        """New jobs: NONE until now."""
        if first == last and not lane:
            page = self.table.get(first >> SHIFT)
            if page is not None and page.lanes is None:
                page.codes[first & MASK] = code
                self.counts[0][code] += 1
                return
        lane_number = self.lane_number(lane)
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            if page is None:
                page = self.table[number] = Page()
            page.codes[low:high] = bytes((code,)) * (high - low)
            if lane_number or page.lanes is not None:
                if page.lanes is None:
                    page.lanes = array("I", bytes(4 * SIZE))
                page.lanes[low:high] = array("I", [lane_number]) * (high - low)
        self.counts[lane_number][code] += last - first + 1

    def put(self, seq: int, code: int) -> int:
        """Change one byte of a known job; returns what it was. A job that is not known stays so."""
        page = self.table.get(seq >> SHIFT)
        if page is None:
            return NONE
        at = seq & MASK
        old = page.codes[at]
        if old == NONE:
            return NONE
        counts = self.counts[0 if page.lanes is None else page.lanes[at]]
        counts[old] -= 1
        page.codes[at] = code
        if code:
            counts[code] += 1
        else:
            self._forget(seq >> SHIFT, page, at, at + 1)
        if self.watch is not None:
            self.watch(seq, seq, code)
        return old

    def turn(self, seq: int, old: int, new: int) -> bool:
        """Change one byte when it is `old`, of a job in a page without lanes; False: look properly. Neither
        is NONE.
        """
        page = self.table.get(seq >> SHIFT)
        if page is None or page.lanes is not None or page.codes[seq & MASK] != old:
            return False
        page.codes[seq & MASK] = new
        counts = self.counts[0]
        counts[old] -= 1
        counts[new] += 1
        if self.watch is not None:
            self.watch(seq, seq, new)
        return True

    def fill(self, first: int, last: int, code: int) -> None:
        """Change all known jobs of `first..last`; those that are not known stay so."""
        if first == last:
            self.put(first, code)
            return
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            if page is None:
                continue
            codes = page.codes[low:high]
            old = codes[0]
            if page.lanes is None and old and codes.count(old) == high - low:
                page.codes[low:high] = bytes((code,)) * (high - low)
                self.counts[0][old] -= high - low
                if code:
                    self.counts[0][code] += high - low
                else:
                    self._forget(number, page, low, high)
                if self.watch is not None:
                    self.watch((number << SHIFT) + low, (number << SHIFT) + high - 1, code)
                continue
            base = number << SHIFT
            for offset in range(low, high):
                self.put(base + offset, code)

    def set_tokens(self, first: int, last: int, delta: int) -> None:
        """Remember the tokens `seq + delta` of jobs that end."""
        if first == last:
            single = self.table.get(first >> SHIFT)
            if single is not None and single.tokens is not None:
                single.tokens[first & MASK] = first + delta
                return
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            if page is not None:
                if page.tokens is None:
                    page.tokens = _ZERO_WORDS[:]
                start = (number << SHIFT) + low + delta
                page.tokens[low:high] = array("Q", range(start, start + high - low))

    def set_ref(self, seq: int, lsn: int) -> None:
        page = self.table.get(seq >> SHIFT)
        if page is not None:
            if page.refs is None:
                page.refs = _ZERO_WORDS[:]
            page.refs[seq & MASK] = lsn

    def set_own_ids(self, first: int, last: int) -> None:
        for number, low, high in _cuts(first, last):
            page = self.table.get(number)
            if page is not None:
                if page.own is None:
                    page.own = bytearray(SIZE)
                page.own[low:high] = b"\1" * (high - low)

    def _forget(self, number: int, page: Page, low: int, high: int) -> None:
        if page.codes.count(NONE) == SIZE:
            self.table.pop(number, None)
            return
        length = high - low
        if page.tokens is not None:
            page.tokens[low:high] = array("Q", bytes(8 * length))
        if page.refs is not None:
            page.refs[low:high] = array("Q", bytes(8 * length))
        if page.own is not None:
            page.own[low:high] = bytes(length)
        if page.lanes is not None:
            page.lanes[low:high] = array("I", bytes(4 * length))


def _cuts(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """`first..last` page by page: `(page number, low, high)`, high exclusive."""
    if first > last:
        return
    number, end = first >> SHIFT, last >> SHIFT
    if number == end:
        yield number, first & MASK, (last & MASK) + 1
        return
    yield number, first & MASK, SIZE
    for middle in range(number + 1, end):
        yield middle, 0, SIZE
    yield end, 0, (last & MASK) + 1
