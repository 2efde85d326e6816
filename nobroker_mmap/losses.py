"""What a salvage gives up: how it is told, how it is framed, and what a record tells of a lost header.

Invariant: a GAP record takes exactly the bytes that were lost, so nothing else changes its place.
"""

from dataclasses import dataclass, field

from xxhash import xxh3_64

from nobroker_mmap import files, recovery
from nobroker_mmap import format as fmt
from nobroker_mmap.offsets import Table
from nobroker_mmap.record import Place, Scan

SMALLEST_GAP = fmt.RECORD_HEADER_SIZE + 8
"""Bytes of the smallest record; every lost record had at least as many."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A piece of the log that is gone: where it was, its length in bytes, its LSNs, and why it was given
    up.

    `keys`: ranges (first, last) of the keys that had a record there, as far as an index that is left tells;
    `keys_known`: these are all.
    """

    path: str
    offset: int
    length: int
    first_lsn: int
    end_lsn: int
    reason: str
    keys: tuple[tuple[int, int], ...] = ()
    keys_known: bool = False


@dataclass
class SalvageReport:
    """What a salvage did."""

    losses: list[Loss] = field(default_factory=list)
    kept_files: list[str] = field(default_factory=list)
    records_kept: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def bytes_lost(self) -> int:
        """Sum over all losses."""
        return sum(loss.length for loss in self.losses)


def first_record(fd: int, size: int, number: int) -> tuple[int, int, int | None] | None:
    """(lineage, origin, checksum before it or None) by the first record that is left of a segment whose
    header is lost.
    """
    for offset in range(fmt.SEGMENT_HEADER_SIZE, max(0, size - fmt.RECORD_HEADER_SIZE), 8):
        raw = files.read_at(fd, fmt.RECORD_HEADER_SIZE, offset)
        if raw[:4] != fmt.RECORD_MAGIC:
            continue
        fields = fmt.RECORD_HEADER.unpack(raw)
        if fields[6] != number or fields[9] < offset - fmt.SEGMENT_HEADER_SIZE:
            continue
        place = Place(number, fields[8], fields[9] - offset)
        for record in Scan(recovery.file_reader(fd), place, offset, size, 0, chained=False):
            known = offset == fmt.SEGMENT_HEADER_SIZE
            return place.lineage, place.origin, record.previous if known else None
    return None


def keys_between(table: Table, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """Ranges of the keys that have a record from one offset of a segment to another, in order."""
    found: list[tuple[int, int]] = []
    for moved in (False, True):
        first, last = table.bounds(moved=moved)
        found += [
            (low, high)
            for offset, _, low, high in table.overlapping(first, last, moved=moved)
            if start <= offset < stop
        ]
    merged: list[tuple[int, int]] = []
    for low, high in sorted(found):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def write_gap(fd: int, place: Place, offset: int, length: int) -> None:
    """Frame a lost range as a record that everybody skips; its body is an empty map and zeros."""
    while length:
        piece = min(length, fmt.MAX_BODY_SIZE // 2)
        if 0 < length - piece < SMALLEST_GAP:
            piece -= SMALLEST_GAP
        size = piece - fmt.RECORD_HEADER_SIZE
        header = fmt.RECORD_HEADER.pack(
            fmt.RECORD_MAGIC,
            fmt.GAP,
            fmt.LAST_OF_GROUP | fmt.SKIPPABLE,
            0,
            size,
            1,
            place.number,
            0,
            place.lineage,
            place.origin + offset,
            0,
            0,
            0,
        )[: fmt.CHECKED_SIZE]
        body = b"\x80" + bytes(size - 1)
        digest = xxh3_64(header)
        digest.update(body)
        files.write_at(fd, header + fmt.U64.pack(digest.intdigest()) + body, offset)
        offset += piece
        length -= piece
