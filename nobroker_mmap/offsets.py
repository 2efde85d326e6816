"""The index: which record holds a key. Sidecar files of sealed segments, arrays for the one being written.

Invariants
- A sidecar is believed only when segment number, lineage, end and checksum fit; else the segment is
  scanned. Losing or swapping one changes no answer.
- The newest copy of a key wins: later segments over earlier ones, later records over earlier ones.
- Rows that ENQUEUE made rise along the log, so the segment that holds a key is found by bisection; only
  segments with rows that MOVE made are looked at besides.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from xxhash import xxh3_64

from nobroker_mmap import files
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import damaged
from nobroker_mmap.record import Record, Scan
from nobroker_mmap.rows import COUNT, Rows, rows_of_bytes
from nobroker_mmap.segment import Segment

Row = tuple[int, int, int]
"""(first key, index in the record, count)"""
RowsOf = Callable[[Record], list[Row]]
_new = tuple.__new__


class Piece(NamedTuple):
    """Consecutive keys `first`…`last` in the record at `offset` of `segment`; `index` is where `first` is
    in it.
    """

    segment: Segment
    offset: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    first: int
    last: int


class Table:
    """Rows of one segment in two parts, by the way they were made.

    New keys rise along a segment, so adding them is appending; moved ones mostly do.
    """

    __slots__ = ("_hint", "broken_at", "enqueued", "moved")

    def __init__(self, enqueued: Rows | None = None, moved: Rows | None = None, broken_at: int = 0) -> None:
        self.enqueued = Rows() if enqueued is None else enqueued
        self.moved = Rows() if moved is None else moved
        self.broken_at = broken_at
        """Offset at which the segment's records stop to verify, so that rows are missing; 0: none is."""
        self._hint = 0

    def row_of(self, key: int) -> tuple[int, int] | None:
        """(offset, index) of the record that made a new key. Keys asked for in their order are found at
        once.
        """
        rows, at = self.enqueued, self._hint
        firsts, spans = rows.firsts, rows.spans
        if not (at < len(firsts) and firsts[at] <= key < firsts[at] + (spans[at] & COUNT)):
            at = rows.until(key) - 1
            if at < 0 or key >= firsts[at] + (spans[at] & COUNT):
                return None
        first, span = firsts[at], spans[at]
        self._hint = at if key + 1 < first + (span & COUNT) else at + 1
        return rows.offsets[at], (span >> 16) + key - first

    def add(self, offset: int, rows: Iterable[Row], *, moved: bool) -> None:
        """Add the rows of one record."""
        target = self.moved if moved else self.enqueued
        for first, index, count in rows:
            while count > COUNT:
                target.put(first, offset, index << 16 | COUNT)
                first, index, count = first + COUNT, index + COUNT, count - COUNT
            target.put(first, offset, index << 16 | count)

    def overlapping(self, first: int, last: int, *, moved: bool) -> list[tuple[int, int, int, int]]:
        """(offset, index, first, last) of the rows that have keys in a range, cut to it; the latest record
        first.
        """
        rows = self.moved if moved else self.enqueued
        found = []
        at = rows.until(last)
        while at > 0:
            at -= 1
            start, span = rows.firsts[at], rows.spans[at]
            stop = start + (span & COUNT) - 1
            if stop >= first:
                low = max(first, start)
                found.append((rows.offsets[at], (span >> 16) + low - start, low, min(last, stop)))
            elif start + COUNT <= first or not moved:
                break
        if len(found) > 1:
            found.sort(reverse=True)
        return found

    def bounds(self, *, moved: bool) -> tuple[int, int]:
        """Lowest and highest key of a part; (0, -1) when it is empty."""
        rows = self.moved if moved else self.enqueued
        if not rows:
            return 0, -1
        if not moved:
            return rows.firsts[0], rows.firsts[-1] + (rows.spans[-1] & COUNT) - 1
        return rows.firsts[0], max(map(_last, rows.firsts, rows.spans))

    def moved_rows(self) -> list[Row]:
        """The rows that MOVE made."""
        rows = self.moved
        return [(rows.firsts[at], rows.spans[at] >> 16, rows.spans[at] & COUNT) for at in range(len(rows))]

    def packed(self) -> "Table":
        """The same in less space; nothing is added to it any more."""
        return Table(self.enqueued.packed(), self.moved.packed(), self.broken_at)

    def to_bytes(self) -> bytes:
        """Both parts as the bytes of a sidecar."""
        return self.enqueued.to_bytes() + self.moved.to_bytes()


def _last(first: int, span: int) -> int:
    return first + (span & COUNT) - 1


def table_of_bytes(raw: bytes, enqueued: int, moved: int) -> Table | None:
    """The table in the bytes of a sidecar or snapshot; None when they are not the rows they say."""
    if len(raw) != 16 * (enqueued + moved):
        return None
    return Table(rows_of_bytes(raw[: 16 * enqueued]), rows_of_bytes(raw[16 * enqueued :]))


def write_sidecar(path: str, temporary: str, segment: Segment, table: Table) -> None:
    """Write the sidecar of a sealed segment. It is not synced: a torn one does not verify."""
    rows = table.to_bytes()
    fields = (
        fmt.SIDECAR_MAGIC,
        fmt.SIDECAR_VERSION,
        segment.number,
        segment.header.lineage,
        len(table.enqueued),
        len(table.moved),
        segment.end,
    )
    files.write_cache(path, temporary, [_header(fields, rows), rows])


def _header(fields: tuple[bytes, int, int, int, int, int, int], rows: bytes) -> bytes:
    digest = xxh3_64(rows)
    digest.update(fmt.SIDECAR_HEADER.pack(*fields, 0)[:56])
    return fmt.SIDECAR_HEADER.pack(*fields, digest.intdigest())


def read_sidecar(path: str, segment: Segment) -> Table | None:
    """The rows of a sealed segment from its sidecar; None when there is none to be believed."""
    try:
        raw = files.read_file(path, 2 * fmt.MAX_FILE_SIZE)
    except OSError:
        return None
    if len(raw) < fmt.CACHE_HEADER_SIZE:
        return None
    magic, version, number, lineage, enqueued, moved, end, _ = fmt.SIDECAR_HEADER.unpack_from(raw)
    expected = (fmt.SIDECAR_MAGIC, fmt.SIDECAR_VERSION, segment.number, segment.header.lineage, segment.end)
    rows = raw[fmt.CACHE_HEADER_SIZE :]
    if (magic, version, number, lineage, end) != expected:
        return None
    if _header((magic, version, number, lineage, enqueued, moved, end), rows) != raw[: fmt.CACHE_HEADER_SIZE]:
        return None
    return table_of_bytes(rows, enqueued, moved)


class RowSource:
    """How the application's records become rows."""

    __slots__ = ("indexed", "moved", "rows")

    def __init__(self, rows: RowsOf, indexed: frozenset[int], moved: frozenset[int]) -> None:
        self.rows = rows
        self.indexed = indexed | moved
        self.moved = moved

    def add(self, table: Table, record: Record) -> None:
        """Add the rows of a record when its type has any.

        Raises:
            CorruptLogError: the application finds none in a record that should have some.
        """
        if record.type not in self.indexed:
            return
        try:
            table.add(record.offset, self.rows(record), moved=record.type in self.moved)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            where = f"segment {record.segment:06d}"
            what = f"the record verifies but does not fit ({error!r})"
            raise damaged(where, record.offset, what) from error

    def scan(self, segment: Segment) -> Table:
        """The rows of a segment from its records, up to its end or to where it is damaged."""
        table = Table()
        scan = Scan(
            segment.read,
            segment.place,
            fmt.SEGMENT_HEADER_SIZE,
            segment.limit,
            segment.header.previous_checksum,
        )
        for record in scan:
            self.add(table, record)
        if scan.offset < segment.end:
            table.broken_at = scan.offset
        return table


class _Entry(NamedTuple):
    segment: Segment
    first: int
    last: int
    moved_first: int
    moved_last: int


class Index:
    """Finds keys over all segments. `table_of` gives a segment's rows, loading them when needed."""

    def __init__(self, table_of: Callable[[Segment], Table]) -> None:
        self._table_of = table_of
        self._sealed: list[_Entry] = []
        self._firsts: list[int] = []
        self._any_moved = False

    def seal(self, segment: Segment, table: Table) -> None:
        """A sealed segment joins, after all that are there."""
        entry = _Entry(segment, *table.bounds(moved=False), *table.bounds(moved=True))
        self._sealed.append(entry)
        self._any_moved |= entry.moved_last >= 0
        lowest = entry.first if entry.last >= 0 else (self._firsts[-1] if self._firsts else 0)
        self._firsts.append(max(lowest, self._firsts[-1] if self._firsts else 0))

    def drop_before(self, number: int) -> None:
        """Segments below a number leave."""
        keep = 0
        while keep < len(self._sealed) and self._sealed[keep].segment.number < number:
            keep += 1
        del self._sealed[:keep], self._firsts[:keep]
        self._any_moved = any(entry.moved_last >= 0 for entry in self._sealed)

    def clear(self) -> None:
        """Forget everything."""
        self._sealed.clear()
        self._firsts.clear()
        self._any_moved = False

    def entries(self) -> list[_Entry]:
        """The sealed segments with the bounds of their keys."""
        return self._sealed

    def find_one(self, segment: Segment, table: Table, key: int) -> Piece | None:
        """The piece of one key, quickly, where nothing was moved; None says to look with `find`. The segment
        is the one that is being read, with its rows.
        """
        if table.moved or self._any_moved:
            return None
        if self._firsts and not (table.enqueued and key >= table.enqueued.firsts[0]):
            segment = self._sealed[max(0, bisect_right(self._firsts, key) - 1)].segment
            table = self._table_of(segment)
        row = table.row_of(key)
        return None if row is None else _new(Piece, (segment, row[0], row[1], key, key))

    def find(self, active: tuple[Segment, Table], first: int, last: int) -> list[Piece]:
        """Pieces that hold the newest copies of a range of keys, by key; keys that no record holds are left
        out. `active` is the segment that is being read, with its rows.
        """
        found: list[Piece] = []
        segment, table = active
        missing = _claim(segment, table, [(first, last)], found, moved=True)
        missing = _claim(segment, table, missing, found, moved=False)
        for entry in reversed(self._sealed):
            if not missing:
                break
            if entry.moved_first <= missing[-1][1] and entry.moved_last >= missing[0][0]:
                missing = _claim(entry.segment, self._table_of(entry.segment), missing, found, moved=True)
        if missing:
            at = bisect_right(self._firsts, missing[-1][1]) - 1
            while at >= 0 and missing:
                entry = self._sealed[at]
                if entry.first <= missing[-1][1] and entry.last >= missing[0][0]:
                    missing = _claim(
                        entry.segment, self._table_of(entry.segment), missing, found, moved=False
                    )
                elif 0 <= entry.last < missing[0][0]:
                    break
                at -= 1
        if len(found) > 1:
            found.sort(key=_by_first)
        return found


def _by_first(piece: Piece) -> int:
    return piece.first


def _claim(
    segment: Segment, table: Table, missing: list[tuple[int, int]], found: list[Piece], *, moved: bool
) -> list[tuple[int, int]]:
    """Move what a table has of the missing ranges to `found`; returns what is missing then."""
    rest: list[tuple[int, int]] = []
    for low, high in missing:
        holes = [(low, high)]
        for offset, index, start, stop in table.overlapping(low, high, moved=moved):
            left: list[tuple[int, int]] = []
            for a, b in holes:
                x, y = max(a, start), min(b, stop)
                if x > y:
                    left.append((a, b))
                    continue
                found.append(Piece(segment, offset, index + x - start, x, y))
                if a < x:
                    left.append((a, x - 1))
                if y < b:
                    left.append((y + 1, b))
            holes = left
            if not holes:
                break
        rest.extend(holes)
    return rest
