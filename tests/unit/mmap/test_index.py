"""The index over several segments, beside a plain dict."""

from __future__ import annotations

from array import array
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nobroker_mmap import format as fmt
from nobroker_mmap import losses, rows
from nobroker_mmap.losses import first_record, keys_between, write_gap
from nobroker_mmap.offsets import Index, Piece, Table
from nobroker_mmap.record import Place, Scan, encode
from nobroker_mmap.rows import Rows
from nobroker_mmap.segment import Segment

# A segment: new keys as (left out before, count), and moved ones as (first, count) of what is known by then.
SEGMENTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([0, 0, 4]), st.integers(1, 5)), max_size=4),
        st.lists(st.tuples(st.integers(1, 60), st.integers(1, 6)), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


def segment(number: int) -> Segment:
    header = fmt.SegmentHeader(number, fmt.MIN_SEGMENT_SIZE, 1, 2, 2, 1000 * number, 128, 0, 1, 0)
    return Segment(f"q.{number:06d}.seg", header)


class Made:
    """An index, the segment after it, and what a dict says of every key."""

    def __init__(self, given: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]) -> None:
        self.keys: dict[int, tuple[int, int, int]] = {}
        self.tables: dict[int, Table] = {}
        self.index = Index(lambda which: self.tables[which.number])
        key = 1
        for number, (new, moved) in enumerate(given, 1):
            table, offset = Table(), 128
            for gap, count in new:
                key += gap
                self._add(table, number, offset, key, count, moved=False)
                key, offset = key + count, offset + 8
            for first, count in moved:
                count = min(count, key - first)
                if count > 0:
                    self._add(table, number, offset, first, count, moved=True)
                    offset += 8
            self.tables[number] = table if number % 2 else table.packed()
            self.active = segment(number)
            if number < len(given):
                self.index.seal(self.active, self.tables[number])
        self.end = key

    def _add(self, table: Table, number: int, offset: int, first: int, count: int, *, moved: bool) -> None:
        table.add(offset, [(first, 3, count)], moved=moved)
        for at in range(count):
            known = self.keys.get(first + at)
            if not moved or known is None or known <= (number, offset, 3 + at):
                self.keys[first + at] = number, offset, 3 + at

    def find(self, first: int, last: int) -> list[Piece]:
        return self.index.find((self.active, self.tables[self.active.number]), first, last)


@settings(max_examples=150)
@given(SEGMENTS, st.integers(0, 70), st.integers(0, 40), st.integers(1, 4))
def test_the_newest_copy_is_found(
    given: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]], first: int, length: int, floor: int
) -> None:
    made = Made(given)
    empty = any(not new for new, _ in given)
    for low, high in ((first, first + length), (0, made.end + 5), (made.end, made.end + 3), (5, 4)):
        found = [
            (piece.first + at, (piece.segment.number, piece.offset, piece.index + at))
            for piece in made.find(low, high)
            for at in range(piece.last - piece.first + 1)
        ]
        assert found == [(key, made.keys[key]) for key in range(low, high + 1) if key in made.keys]
    moved = any(entry.moved_last >= 0 for entry in made.index.entries())
    active = made.tables[made.active.number]
    for key in range(made.end + 3):
        piece = made.index.find_one(made.active, active, key)
        if moved or active.moved:
            assert piece is None, "it has to be looked for properly"
        elif piece is None:
            assert empty or key not in made.keys
        else:
            assert (piece.first, piece.last) == (key, key)
            assert (piece.segment.number, piece.offset, piece.index) == made.keys[key]
    floor = min(floor, made.active.number)
    made.index.drop_before(floor)
    assert [entry.segment.number for entry in made.index.entries()] == list(range(floor, made.active.number))
    left = {key: place for key, place in made.keys.items() if place[0] >= floor}
    at_least = [(p.first, p.segment.number) for p in made.find(0, made.end)]
    assert all(number >= floor for _, number in at_least)
    for key, place in left.items():
        (piece,) = made.find(key, key)
        assert (piece.segment.number, piece.offset, piece.index) == place
    made.index.clear()
    assert made.index.entries() == []


@settings(max_examples=80)
@given(SEGMENTS, st.integers(128, 190), st.integers(0, 60))
def test_the_keys_of_a_piece_of_a_segment(
    given: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]], start: int, length: int
) -> None:
    for table in Made(given).tables.values():
        keys: set[int] = set()
        for part in (table.enqueued, table.moved):
            for first, offset, span in zip(part.firsts, part.offsets, list(part.spans[:]), strict=True):
                if start <= offset < start + length:
                    keys.update(range(first, first + (span & rows.COUNT)))
        ranges = keys_between(table, start, start + length)
        assert {key for low, high in ranges for key in range(low, high + 1)} == keys
        assert all(one[1] + 1 < two[0] for one, two in pairwise(ranges))


# -- rows -------------------------------------------------------------------------------------------


def test_a_column_of_one_value_is_a_column() -> None:
    one = Rows()
    for number in range(5):
        one.put(10 + 2 * number, 128 + 8 * number, 2)
    packed = one.packed()
    assert isinstance(packed.firsts, range)
    assert len(packed.spans) == len(packed) == 5
    assert packed.spans[1:3] == array("I", [2, 2])
    assert packed.spans[:] == one.spans
    assert [packed.spans[at] for at in (0, 4, -1, -5)] == [2] * 4
    for at in (5, -6):
        with pytest.raises(IndexError):
            packed.spans[at]
    assert Rows().packed().to_bytes() == b""


def test_many_rows_become_the_same_bytes() -> None:
    one = Rows()
    for number in range(3000):
        one.put(10 + 3 * number, 128 + 8 * number, 1 + number % 2)
    again = rows.rows_of_bytes(one.to_bytes())
    assert (again.firsts, again.offsets, again.spans) == (one.firsts, one.offsets, one.spans)
    assert len(one.to_bytes()) == 16 * 3000


def test_rows_are_little_endian_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    assert rows._little(array("Q", [1])).tobytes() == bytes(7) + b"\1", "the other order than this machine's"


# -- what is lost -----------------------------------------------------------------------------------

PLACE = Place(3, 77, 1000 - 128)


def file_of(path: Path, *parts: bytes) -> int:
    path.write_bytes(bytes(128) + b"".join(parts))
    return path.stat().st_size


def test_the_first_record_tells_of_a_lost_header(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first, checksum = encode(16, 1, b"\x80", b"", 3, 77, 1000, 0, 9)
    second, _ = encode(16, 1, b"\x80", b"", 3, 77, 1000 + len(first), 0, checksum)
    foreign, _ = encode(16, 1, b"\x80", b"", 4, 77, 1000, 0, 9)
    nowhere, _ = encode(16, 1, b"\x80", b"", 3, 77, 0, 0, 9)
    spoilt = first[:-8] + b"\x81" + first[-7:]
    cases: list[tuple[list[bytes], tuple[int, int, int | None] | None]] = [
        ([first, second], (77, 872, 9)),
        ([spoilt, second], (77, 872, None)),
        ([foreign, second], (77, 872, None)),
        ([bytes(len(first)), nowhere], None),
        ([foreign], None),
        ([b""], None),
    ]
    for parts, expected in cases:
        size = file_of(path, *parts, bytes(64))
        with path.open("rb") as file:
            assert first_record(file.fileno(), size, 3) == expected


@pytest.mark.parametrize("length", [72, 80, 504, 560, 568, 576, 1000, 1008, 5000])
def test_gaps_take_exactly_the_bytes_that_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(fmt, "MAX_BODY_SIZE", 1008)
    path = tmp_path / "file"
    size = file_of(path, bytes(length), b"x" * 64)
    with path.open("r+b") as file:
        write_gap(file.fileno(), PLACE, 128, length)
        raw = path.read_bytes()
    scan = Scan(lambda offset, size: raw[offset : offset + size], PLACE, 128, size, 0)
    found = list(scan)
    assert scan.offset == 128 + length
    assert raw[scan.offset :] == b"x" * 64
    assert all(record.type == fmt.GAP and record.head() == {} for record in found)
    assert all(record.flags == fmt.LAST_OF_GROUP | fmt.SKIPPABLE for record in found)
    assert all(record.end - record.lsn >= losses.SMALLEST_GAP for record in found)
