"""The segments a handle knows, its cursor in them, and the index over them.

Invariants
- The cursor is always at the end of a whole group that this handle has given out, and everything before it
  is in the index: rows of the segment the cursor is in are in `table` while that segment is the newest,
  else in its sidecar.
- A segment joins only when its header follows from the one before: number, log, lineage, base, end.
- `newest` may be ahead of `reading`, the segment the cursor is in, never behind.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from nobroker_mmap import files, offsets
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import CorruptLogError, damaged
from nobroker_mmap.logs import logger
from nobroker_mmap.offsets import Index, Piece, Row, RowSource, Table
from nobroker_mmap.record import Record
from nobroker_mmap.segment import MapCache, Segment, open_segment

_CACHED_TABLES = 16
_NONE: frozenset[int] = frozenset()


class SegmentInfo(NamedTuple):
    """What a segment is, for compaction and people. Keys are those of rows that ENQUEUE made; none: (0,
    -1).
    """

    number: int
    base: int
    end_offset: int
    size: int
    path: str
    first_key: int
    last_key: int
    rows: int
    moved_rows: int


def check_link(previous: Segment, following: Segment) -> None:
    """Does a segment follow from the one before?

    Raises:
        CorruptLogError: it does not.
    """
    a, b = previous.header, following.header
    end_lsn = previous.origin + b.previous_end
    if (
        b.number != a.number + 1
        or b.log_id != a.log_id
        or b.previous_lineage != a.lineage
        or not fmt.SEGMENT_HEADER_SIZE <= b.previous_end <= a.size
        or b.base < end_lsn
        or (b.base != end_lsn and b.lineage == a.lineage)
    ):
        raise damaged(following.path, 0, f"this segment does not continue {previous.path}")


class Chain:
    """Segments, cursor and index of one handle. The caller holds the handle's mutex."""

    def __init__(self, names: fmt.Names, source: RowSource, *, writable: bool, tag: str) -> None:
        self.names = names
        self.source = source
        self.writable = writable
        self.tag = tag
        self.segments: dict[int, Segment] = {}
        self.maps = MapCache()
        self.table = Table()
        self.collecting = False
        self.cursor = 0
        self.checksum = 0
        self.chained = True
        self.last_type = 0
        self.closed_at = 0
        """LSN behind the last CLOSE record that was read."""
        self.newest: Segment
        self.reading: Segment
        self._index = Index(self.table_of)
        self._indexed = 0
        self._tables: OrderedDict[int, Table] = OrderedDict()

    # -- membership ---------------------------------------------------------------------------------

    def attach(self, segments: Iterable[Segment]) -> None:
        """Begin with these segments, which follow from each other."""
        self.maps.clear()
        self._forget_index()
        self.segments = {segment.number: segment for segment in segments}
        self.newest = self.segments[max(self.segments)]
        self.reading = self.segments[min(self.segments)]

    def learn_next(self) -> bool:
        """Let the segment after the newest join; False when there is none yet."""
        newest = self.newest
        path = self.names.segment(newest.number + 1)
        try:
            following = open_segment(path)
        except FileNotFoundError:
            return False
        check_link(newest, following)
        self.join(following)
        return True

    def join(self, following: Segment) -> None:
        """A segment that follows the newest joins, which settles where that one's records end."""
        self.newest.end = following.header.previous_end
        self.segments[following.number] = following
        self.newest = following

    def drop_before(self, floor: int) -> None:
        """Segments below a number leave."""
        for number in [number for number in self.segments if number < floor]:
            self.maps.forget(number)
            self.segments.pop(number).unmap()
            self._tables.pop(number, None)
        self._index.drop_before(floor)

    def release(self) -> None:
        """Unmap everything."""
        self.maps.clear()
        for segment in self.segments.values():
            segment.unmap()

    # -- the cursor ---------------------------------------------------------------------------------

    def place(self, segment: Segment, lsn: int, checksum: int, table: Table | None) -> None:
        """Put the cursor into a segment. `table` has the segment's rows up to there; None: at its
        beginning.
        """
        self._forget_index()
        self._tables.clear()
        self.reading = segment
        self.cursor, self.checksum, self.chained = lsn, checksum, True
        self.last_type = 0
        self.table = Table() if table is None else table
        self.collecting = segment is self.newest

    def step(self) -> None:
        """Go from the end of the segment the cursor is in, which only the next one tells, to that one."""
        segment = self.reading
        following = self.segments[segment.number + 1]
        header = following.header
        if self.chained and self.checksum != header.previous_checksum:
            raise damaged(
                segment.path, segment.end, "its last record is not the one the next segment follows"
            )
        if self.collecting:
            self._remember(segment.number, self.table)
        self.reading = following
        self.cursor, self.checksum, self.chained = following.base, header.previous_checksum, True
        self.table = Table()
        self.collecting = following is self.newest

    def accept(self, group: list[Record]) -> None:
        """Move the cursor past a group, and its rows into the index."""
        last = group[-1]
        indexed = self.source.indexed if self.collecting else _NONE
        for record in group:
            kind = record.type
            if kind in indexed:
                self.source.add(self.table, record)
            elif kind == fmt.RETIRE:
                self.drop_before(min(retired_floor(record), self.reading.number))
            elif kind == fmt.CLOSE:
                self.closed_at = record.end
        self.cursor, self.checksum = last.end, last.checksum
        self.chained = last.type != fmt.GAP
        self.last_type = last.type

    @property
    def offset(self) -> int:
        """The cursor as an offset in the segment it is in."""
        return self.cursor - self.reading.origin

    @property
    def floor(self) -> int:
        """Number of the first segment that counts."""
        return next(iter(self.segments))

    # -- the index ----------------------------------------------------------------------------------

    def _forget_index(self) -> None:
        self._index.clear()
        self._tables.clear()
        self._indexed = 0

    def _remember(self, number: int, table: Table) -> Table:
        self._tables[number] = table = table.packed()
        while len(self._tables) > _CACHED_TABLES:
            self._tables.popitem(last=False)
        return table

    def table_of(self, segment: Segment) -> Table:
        """The rows of a segment; from its sidecar when it is sealed and that is sound, else from its
        records.
        """
        if segment is self.reading and self.collecting:
            return self.table
        table = self._tables.get(segment.number)
        if table is not None:
            self._tables.move_to_end(segment.number)
            return table
        table = offsets.read_sidecar(self.names.sidecar(segment.number), segment)
        if table is None:
            self.maps.use(segment)
            table = self.source.scan(segment)
            if not table.broken_at:
                self.write_sidecar(segment, table)
        return self._remember(segment.number, table)

    def write_sidecar(self, segment: Segment, table: Table) -> None:
        """Write the sidecar of a sealed segment where that is allowed. A failure costs a scan later,
        nothing else.
        """
        if not self.writable or not segment.end:
            return
        path = self.names.sidecar(segment.number)
        try:
            offsets.write_sidecar(path, self.names.temporary(path, self.tag), segment, table)
        except OSError as error:
            logger().warning(
                "%s: the index was not written (%s); it is rebuilt by a scan when needed", path, error
            )

    def _complete_index(self) -> Index:
        limit = self.reading.number
        if self._indexed < limit - 1:
            for number, segment in self.segments.items():
                if self._indexed < number < limit:
                    self._index.seal(segment, self.table_of(segment))
            self._indexed = limit - 1
        return self._index

    def find(self, first: int, last: int) -> list[Piece]:
        """Pieces with the newest copies of keys, by key."""
        return self._complete_index().find((self.reading, self.table_of(self.reading)), first, last)

    def find_one(self, key: int) -> Piece | None:
        """The piece with the newest copy of one key; None when no record holds it."""
        index, segment = self._complete_index(), self.reading
        table = self.table if self.collecting else self.table_of(segment)
        piece = index.find_one(segment, table, key)
        if piece is None:
            piece = next(iter(index.find((segment, table), key, key)), None)
        return piece

    def keys_of(self, number: int) -> tuple[tuple[int, int], list[Row]]:
        """Bounds of the keys that ENQUEUE made in a segment, and the rows that MOVE made: all there are.

        Raises:
            CorruptLogError: what the segment holds cannot be known.
        """
        segment = self.segments[number]
        table = self.table_of(segment)
        if table.broken_at:
            raise damaged(segment.path, table.broken_at, "no record verifies here, and there was one")
        return table.bounds(moved=False), table.moved_rows()

    def moved_since(self, number: int, first: int, last: int) -> bool:
        """Has a segment after this one a moved copy of one of the keys?"""
        later = [
            entry.segment
            for entry in self._complete_index().entries()
            if entry.segment.number > number and entry.moved_first <= last and entry.moved_last >= first
        ]
        return any(
            self.table_of(segment).overlapping(first, last, moved=True) for segment in (*later, self.reading)
        )

    def info(self) -> list[SegmentInfo]:
        """All segments up to the one the cursor is in."""
        found = []
        for number, segment in self.segments.items():
            if number > self.reading.number:
                break
            table = self.table_of(segment)
            first, last = table.bounds(moved=False)
            end = self.offset if segment is self.reading else segment.end
            found.append(
                SegmentInfo(
                    number,
                    segment.base,
                    end,
                    segment.size,
                    segment.path,
                    first,
                    last,
                    len(table.enqueued),
                    len(table.moved),
                )
            )
        return found

    # -- reading ------------------------------------------------------------------------------------

    def record_at(self, segment: Segment, offset: int) -> Record:
        """The verified record at an offset of a segment.

        Raises:
            FileNotFoundError: its file has gone.
        """
        return self.maps.use(segment).record_at(offset)

    def segment_of(self, lsn: int) -> Segment | None:
        """The segment that holds an LSN."""
        for segment in reversed(self.segments.values()):
            if segment.base <= lsn:
                return segment if lsn - segment.origin < segment.limit else None
        return None


def retired_floor(record: Record) -> int:
    """First segment that counts, by a RETIRE record."""
    floor = record.head().get("f")
    if not isinstance(floor, int) or not 1 <= floor <= record.segment:
        raise CorruptLogError(
            f"segment {record.segment:06d}: the RETIRE record at offset {record.offset} names no"
            " segment of the log",
            path=f"segment {record.segment:06d}",
            offset=record.offset,
        )
    return floor


def numbered_files(names: fmt.Names) -> dict[str, dict[int, str]]:
    """Numbered files of a log by kind ("seg", "idx", "new") and number."""
    found: dict[str, dict[int, str]] = {"seg": {}, "idx": {}, "new": {}}
    for entry in files.entries(names.directory):
        parsed = names.numbered(entry.name)
        if parsed is not None:
            found[parsed[0]][parsed[1]] = entry.path
    return found
