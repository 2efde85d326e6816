"""Reading a whole log from its files and saying what is wrong. Changes nothing, takes no lock.

Invariants
- Everything is read with positioned reads, so damaged and truncated files are findings, never signals.
- What a writer at work may be in the middle of is not reported: the end of the log is taken first.
"""

import os
from dataclasses import dataclass
from typing import Literal

from nobroker_mmap import files, offsets, opening, recovery, snapshot
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import check_link, numbered_files
from nobroker_mmap.control import POISON, ControlPage
from nobroker_mmap.errors import CorruptLogError, NobrokerError
from nobroker_mmap.offsets import RowSource, Table
from nobroker_mmap.record import Scan
from nobroker_mmap.segment import Segment, open_segment

Severity = Literal["damage", "warning", "note"]
_SALVAGE = "nobroker recover --salvage"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. `advice` says what to do about it."""

    severity: Severity
    path: str
    offset: int
    message: str
    advice: str


def check_log(names: fmt.Names, source: RowSource, boot: int) -> list[Finding]:
    """Everything that is wrong with a log; an empty list when it is clean."""
    found: list[Finding] = []
    appended = _appended(names, boot, found)
    try:
        numbers = numbered_files(names)["seg"]
        notes: list[str] = []
        newest, wrong = recovery.find_newest(names, numbers, notes)
    except NobrokerError as error:
        return [*found, _from_error(error, names)]
    if wrong is not None:
        found.append(_from_error(wrong, names))
    found.extend(Finding("warning", names.directory, 0, note, "move the file away") for note in notes)
    floor = _floor(newest)
    segments = _segments(names, newest, floor, found)
    for segment in segments:
        _check_segment(names, segment, source, appended if segment is newest else None, found)
    _check_foreign(names, numbers, floor, found)
    _check_snapshot(names, segments, found)
    return found


def _appended(names: fmt.Names, boot: int, found: list[Finding]) -> int:
    """LSN up to which this boot wrote, 0 when that is not known."""
    try:
        page = ControlPage(names.lock, read_only=True)
    except OSError:
        return 0
    if not page.valid(boot):
        return 0
    if page.words[POISON]:
        advice = "close every handle and open the queue again"
        found.append(Finding("warning", names.lock, 0, "a sync failed", advice))
        return 0
    return page.promised()


def _from_error(error: NobrokerError, names: fmt.Names) -> Finding:
    path = getattr(error, "path", None) or names.directory
    return Finding("damage", path, getattr(error, "offset", 0), str(error), _SALVAGE)


def _floor(newest: Segment) -> int:
    fd = files.open_read(newest.path)
    try:
        tail = recovery.find_tail(
            recovery.file_reader(fd), newest, fmt.SEGMENT_HEADER_SIZE, newest.header.previous_checksum
        )
    except CorruptLogError:  # the check of that segment tells it
        return newest.header.floor
    finally:
        os.close(fd)
    return max(newest.header.floor, tail.floor)


def _segments(names: fmt.Names, newest: Segment, floor: int, found: list[Finding]) -> list[Segment]:
    segments: list[Segment] = []
    for number in range(floor, newest.number + 1):
        path = names.segment(number)
        try:
            segment = newest if number == newest.number else open_segment(path)
            if segments and segments[-1].number == number - 1:
                segments[-1].end = segment.header.previous_end
                check_link(segments[-1], segment)
            segments.append(segment)
        except FileNotFoundError:
            found.append(Finding("damage", path, 0, "the file is missing", _SALVAGE))
        except NobrokerError as error:
            found.append(_from_error(error, names))
    return segments


def _check_segment(
    names: fmt.Names, segment: Segment, source: RowSource, appended: int | None, found: list[Finding]
) -> None:
    """Records up to where they end, what is beyond, and the sidecar."""
    table = Table()
    fd = files.open_read(segment.path)
    try:
        read = recovery.file_reader(fd)
        at, checksum, chained = fmt.SEGMENT_HEADER_SIZE, segment.header.previous_checksum, True
        whole = at
        while True:
            scan = Scan(read, segment.place, at, segment.limit, checksum, chained=chained)
            for record in scan:
                source.add(table, record)
                pad = read(scan.offset - (-len(record.body) % 8), -len(record.body) % 8)
                if any(pad):
                    found.append(_warn(segment, record.offset, "the gap after a record is not zero"))
                if record.flags & fmt.LAST_OF_GROUP:
                    whole = scan.offset
            end = appended - segment.origin if appended else segment.end
            if scan.offset >= (segment.end or end or segment.size):
                break
            later = recovery.find_later_records(fd, segment, scan.offset, segment.limit)
            first = later[0].offset if later else segment.end
            promised = bool(end and scan.offset < end)
            promised = promised or any(r.durable > segment.origin + whole for r in later)
            if promised:
                message = f"no record verifies up to offset {first or end}"
                found.append(Finding("damage", segment.path, scan.offset, message, _SALVAGE))
            elif files.last_nonzero(fd, scan.offset, segment.limit) > whole:
                found.append(_warn(segment, whole, "an unfinished write, which the next opening cuts"))
            if not later or not promised:
                break
            at, checksum, chained = later[0].offset, 0, False
    except CorruptLogError as error:
        found.append(_from_error(error, names))
    finally:
        os.close(fd)
    _check_sidecar(names, segment, table, found)


def _warn(segment: Segment, offset: int, message: str) -> Finding:
    return Finding("warning", segment.path, offset, message, "none: no record is concerned")


def _check_sidecar(names: fmt.Names, segment: Segment, table: Table, found: list[Finding]) -> None:
    path = names.sidecar(segment.number)
    if not segment.end or files.is_regular(path) is None:
        return
    stored = offsets.read_sidecar(path, segment)
    if stored is None:
        found.append(Finding("note", path, 0, "the index does not verify", "none: it is rebuilt when needed"))
    elif stored.to_bytes() != table.to_bytes():
        found.append(
            Finding("warning", path, 0, "the index does not agree with the segment", "remove the file")
        )


def _check_snapshot(names: fmt.Names, segments: list[Segment], found: list[Finding]) -> None:
    if not segments:
        return
    snap, why = snapshot.load(names.snapshot, segments[-1].header.log_id)
    if snap is not None and snap.lsn < segments[0].base:
        return  # of segments that have left since; the next one replaces it
    if snap is not None and opening.snapshot_fits(segments, snap, (-1, 0)) is None:
        why = "the snapshot does not fit the log"
    if why is not None:
        found.append(Finding("note", names.snapshot, 0, why, "none: the log is replayed instead"))


def _check_foreign(names: fmt.Names, numbers: dict[int, str], floor: int, found: list[Finding]) -> None:
    """Files that have one of our names and cannot be ours, and segments that left."""
    for entry in files.entries(names.directory):
        if not names.belongs(entry.name) or entry.path == names.wake:
            continue
        if not files.is_regular(entry.path):
            found.append(Finding("warning", entry.path, 0, "not a regular file", "move it away"))
    for number, path in numbers.items():
        if number < floor:
            found.append(Finding("note", path, 0, "a retired segment", "none: the next opening removes it"))
