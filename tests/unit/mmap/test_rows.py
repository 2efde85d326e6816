"""Rows of the index: the same answers, whatever form they are kept in."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from nobroker_mmap.offsets import Table, table_of_bytes
from nobroker_mmap.rows import Rows

# (keys left out before it, index, count) of rows that rise.
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 7, 2**40]), st.sampled_from([0, 0, 3]), st.integers(1, 5)),
    max_size=30,
)
EQUAL = st.tuples(st.integers(1, 4), st.integers(0, 30)).map(lambda pair: [(0, 0, pair[0])] * pair[1])


def table_of(steps: list[tuple[int, int, int]], *, moved: bool = False) -> tuple[Table, int]:
    table, key = Table(), 1
    for number, (gap, index, count) in enumerate(steps):
        key += gap
        table.add(128 + 8 * number, [(key, index, count)], moved=moved)
        key += count
    return table, key


@given(STEPS | EQUAL)
def test_packing_changes_no_answer(steps: list[tuple[int, int, int]]) -> None:
    table, end = table_of(steps)
    packed = table.packed()
    known = [first + more for first in table.enqueued.firsts for more in (-1, 0, 1, 4)]
    for key in (0, *known, end, end + 1):
        assert packed.row_of(key) == table.row_of(key)
        for last in (key, key + 3, end):
            assert packed.overlapping(key, last, moved=False) == table.overlapping(key, last, moved=False)
    assert packed.bounds(moved=False) == table.bounds(moved=False)
    assert packed.to_bytes() == table.to_bytes()


@given(STEPS, st.randoms(use_true_random=False))
def test_moved_rows_come_sorted_and_come_back(steps: list[tuple[int, int, int]], chance) -> None:  # type: ignore[no-untyped-def]
    rows = table_of(steps, moved=True)[0].moved_rows()
    shuffled = list(enumerate(rows))
    chance.shuffle(shuffled)
    table = Table()
    for number, row in shuffled:
        table.add(128 + 8 * number, [row], moved=True)
    assert table.moved_rows() == rows == table.packed().moved_rows()
    again = table_of_bytes(table.to_bytes(), 0, len(rows))
    assert again is not None
    assert again.moved_rows() == rows
    assert again.overlapping(0, 2**60, moved=True) == table.overlapping(0, 2**60, moved=True)


def test_later_records_come_after_earlier_ones() -> None:
    table = Table()
    for offset, first in ((128, 5), (136, 9), (144, 5)):
        table.add(offset, [(first, 0, 1)], moved=True)
    assert table.overlapping(5, 5, moved=True) == [(144, 0, 5, 5), (128, 0, 5, 5)]


def test_the_bytes_are_pairs_of_little_endian_words() -> None:
    table = Table()
    table.add(0x11223344, [(0x0102030405060708, 3, 9)], moved=False)
    assert table.to_bytes() == struct.pack("<QQ", 0x0102030405060708, 0x11223344 << 32 | 3 << 16 | 9)
    assert table_of_bytes(table.to_bytes()[:-1], 1, 0) is None
    assert table_of_bytes(table.to_bytes(), 1, 1) is None


def test_equal_rows_without_a_gap_take_a_quarter() -> None:
    rows = Rows()
    for number in range(1000):
        rows.put(5 + 10 * number, 128 + 64 * number, 10)
    packed = rows.packed()
    assert isinstance(packed.firsts, range)
    assert packed.spans[0] == packed.spans[-1] == 10
    rows.put(5 + 10 * 1000 + 1, 128 + 64_000, 10)
    assert not isinstance(rows.packed().firsts, range)


def test_a_row_of_more_keys_than_fit_is_told_in_several() -> None:
    table = Table()
    table.add(128, [(1, 0, 70_000)], moved=False)
    assert table.row_of(70_000) == (128, 69_999)
    assert table.packed().row_of(65_536) == (128, 65_535)
    assert table.row_of(70_001) is None
    table = Table()
    table.add(128, [(1, 0, 0xFFFF), (0x10000, 5, 0xFFFF), (0x20000, 7, 3)], moved=True)
    assert table.moved_rows() == [(1, 0, 0xFFFF), (0x10000, 5, 0xFFFF), (0x20000, 7, 3)]


def test_bounds() -> None:
    table = Table()
    assert table.bounds(moved=False) == table.bounds(moved=True) == (0, -1)
    for offset, first, count in ((128, 10, 4), (136, 20, 7), (144, 40, 2)):
        table.add(offset, [(first, 0, count)], moved=False)
        table.add(offset, [(first - 5, 0, 60 - first)], moved=True)
        assert table.bounds(moved=False) == (10, first + count - 1)
        assert table.bounds(moved=True) == (5, 54)
    assert table.packed().bounds(moved=True) == (5, 54)
