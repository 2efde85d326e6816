"""Runs: rows of waiting jobs, cut and searched by delivery key."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobroker.state import runs
from nobroker.state.numbers import column, each, pack_words, ranges_of, unpack_words
from nobroker.state.runs import Run, delayed_run


def batch(seq: int = 10, count: int = 5, avail: int = 100, priority: int = 0) -> Run:
    return Run("", -priority, 5, 0, seq, count, avail)


def singles(*items: tuple[int, int]) -> Run:
    """Single enqueues: (seq, available-at) each."""
    run = Run("", 0, 5, 0, items[0][0], 1, 0, avails=array("q", [items[0][1]]))
    for seq, avail in items[1:]:
        assert run.append(seq, 1, avail)
    return run


def seqs_of(run: Run) -> list[int]:
    return [key[2] for key in list(run.keys())]


class TestRun:
    def test_a_batch_is_a_row_of_keys(self) -> None:
        assert list(batch(count=3).keys()) == [(0, 100, 10), (0, 100, 11), (0, 100, 12)]
        assert batch(priority=7).key() == (-7, 100, 10)

    def test_adjacent_singles_need_no_sequence_numbers(self) -> None:
        run = singles((1, 10), (2, 10), (3, 15))
        assert run.seqs is None
        assert list(run.keys()) == [(0, 10, 1), (0, 10, 2), (0, 15, 3)]

    def test_singles_with_others_between(self) -> None:
        run = singles((1, 10), (5, 11), (6, 12))
        assert list(run.keys()) == [(0, 10, 1), (0, 11, 5), (0, 12, 6)]
        assert run.append(9, 3, 20)
        assert [run.seq_at(n) for n in range(6)] == [1, 5, 6, 9, 10, 11]

    def test_what_does_not_fit_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = singles((1, 10))
        assert not run.append(2, 1, 9), "time runs backwards"
        assert not run.append(2**32 + 1, 1, 10), "too far away"
        assert not batch().append(15, 1, 100), "a batch has one time"
        monkeypatch.setattr(runs, "MAX_MERGED", 2)
        assert run.append(2, 1, 10)
        assert not run.append(3, 1, 10), "long enough"

    def test_cut(self) -> None:
        run = batch(count=5)
        front = run.cut(2)
        assert seqs_of(front) == [10, 11]
        assert seqs_of(run) == [12, 13, 14]
        again = run.cut(4)
        assert seqs_of(again) == [12, 13]

    def test_delayed_run_is_in_order_of_time(self) -> None:
        run = delayed_run("x", -1, 3, 0, 100, array("q", [30, 10, 20, 10]), False)
        assert list(run.keys()) == [(-1, 10, 101), (-1, 10, 103), (-1, 20, 102), (-1, 30, 100)]
        assert run.due_before(9) == 0
        assert run.due_before(10) == 2
        assert run.due_before(29) == 3

    def test_due_before_of_a_batch(self) -> None:
        run = batch(count=5, avail=100)
        assert (run.due_before(99), run.due_before(100)) == (0, 5)

    @given(
        st.lists(st.integers(0, 5), min_size=1, max_size=30),
        st.integers(-2, 2),
        st.integers(-1, 6),
        st.integers(0, 60),
    )
    def test_index_before_any_key(self, avails: list[int], nprio: int, avail: int, seq: int) -> None:
        limit = (nprio, avail, seq)
        kinds = [
            delayed_run("", 0, 5, 0, 20, array("q", avails), False),
            singles(*((20 + 2 * n, at) for n, at in enumerate(sorted(avails)))),
            singles(*((20 + n, at) for n, at in enumerate(sorted(avails)))),
            batch(seq=20, count=len(avails), avail=3),
        ]
        for run in kinds:
            keys = list(run.keys())
            assert keys == sorted(keys)
            assert run.index_before(limit) == sum(key < limit for key in keys)
            assert run.index_before(None) == len(keys)


class TestNumbers:
    @given(st.lists(st.integers(0, 40)))
    def test_ranges(self, numbers: list[int]) -> None:
        spans = ranges_of(numbers)
        assert list(each(spans)) == numbers
        assert len(spans) % 2 == 0

    def test_ranges_are_as_few_as_can_be(self) -> None:
        assert ranges_of([1, 2, 3, 7, 6, 7]) == [1, 3, 7, 7, 6, 7]
        assert ranges_of([]) == []

    @given(st.lists(st.integers(-(2**63), 2**63 - 1)))
    def test_words(self, numbers: list[int]) -> None:
        packed = pack_words("q", numbers)
        assert len(packed) == 8 * len(numbers)
        assert list(unpack_words("q", packed)) == numbers
        assert [column(packed, n) for n in range(len(numbers))] == numbers

    def test_words_are_little_endian(self) -> None:
        assert pack_words("Q", [1]) == b"\x01" + bytes(7)

    def test_one_for_all(self) -> None:
        assert column(5, 3) == 5
