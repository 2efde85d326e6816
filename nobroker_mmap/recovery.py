"""Opening: which segments count, where the log ends, and what to do with what lies beyond.

Invariants
- Nothing that was promised is removed. A tail that does not verify is *torn*, and cut, only when no later
  record, no control page of this boot and no later segment says that it had been acknowledged; else it is
  *damage* and stays.
- What is cut is copied aside first. What may not be durable after a failed sync is written anew into a new
  lineage.
- Segment files are read here with positioned reads: a file of unknown state is never touched through a map.
- Functions whose name begins with `find` or `read` change nothing; those that repair run under the lock.
"""

import contextlib
import os
from typing import NamedTuple

from nobroker_mmap import files, locking, rotation
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import check_link, numbered_files, retired_floor
from nobroker_mmap.errors import CorruptLogError, StorageError, damaged
from nobroker_mmap.record import Reader, Record, Scan, parse, size_at
from nobroker_mmap.report import RecoveryReport
from nobroker_mmap.segment import Segment, open_segment

_BLOCK = 1 << 20


class Tail(NamedTuple):
    """How the records of the newest segment end."""

    end: int
    """Offset after the last whole group."""
    checksum: int
    last_type: int
    """Type of the last record, 0 when none was seen."""
    last_body: bytes
    floor: int
    stop: int
    """First offset at which nothing verifies; beyond `end` when a group is not whole."""
    records: int
    orphans: int


def file_reader(fd: int) -> Reader:
    """Positioned reads of an open file as a record reader."""
    return lambda offset, length: files.read_at(fd, length, offset)


def find_tail(
    read: Reader,
    segment: Segment,
    start: int,
    checksum: int,
    stop: int | None = None,
    *,
    chained: bool = True,
) -> Tail:
    """Follow the records from a known group end to where they end."""
    scan = Scan(
        read, segment.place, start, segment.limit if stop is None else stop, checksum, chained=chained
    )
    end, floor, records, orphans = start, 0, 0, 0
    last: Record | None = None
    floors: list[Record] = []
    for record in scan:
        orphans += 1
        if record.type == fmt.RETIRE:
            floors.append(record)
        if record.flags & fmt.LAST_OF_GROUP:
            end, checksum, last = scan.offset, record.checksum, record
            records += orphans
            orphans = 0
            for retire in floors:
                floor = max(floor, retired_floor(retire))
            floors.clear()
    kind, body = (
        (last.type, last.body) if last is not None and last.type < fmt.FIRST_APPLICATION_TYPE else (0, b"")
    )
    if last is not None and not kind:
        kind = last.type
    return Tail(end, checksum, kind, body, floor, scan.offset, records, orphans)


def find_later_records(fd: int, segment: Segment, start: int, stop: int) -> list[Record]:
    """Every record that verifies by itself at any place from `start` on; only the log's own with their body.

    Bytes made to look like many huge records could cost hours of checksums; the work is bounded, and beyond
    the bound the answer is as if a record with the highest durable-up-to had been found, which keeps
    everything.
    """
    found: list[Record] = []
    budget = 16 * segment.size + (64 << 20)
    covered = start
    for first, last in files.data_ranges(fd, start, stop):
        at = max(first - first % 8, covered)
        while at < last:
            block = files.read_at(fd, min(_BLOCK + fmt.RECORD_HEADER_SIZE, stop - at), at)
            hit = _next_magic(block, 0)
            while 0 <= hit < _BLOCK:
                offset = at + hit
                size = size_at(block, hit)
                if size and offset + size <= stop and _header_fits(block, hit, segment, offset):
                    budget -= size
                    if budget < 0:
                        raise damaged(
                            segment.path, start, "what follows looks like too many records to be told apart"
                        )
                    whole = block[hit : hit + size]
                    if len(whole) < size:
                        whole = files.read_at(fd, size, offset)
                    record = parse(whole, 0, segment.place, offset)
                    if record is not None:
                        own = record.type < fmt.FIRST_APPLICATION_TYPE
                        found.append(record if own else record._replace(body=b""))
                        covered = max(covered, offset + size)
                        if hit + size >= len(block):
                            break
                        hit = _next_magic(block, hit + size)
                        continue
                hit = _next_magic(block, hit + 8)
            at = max(at + _BLOCK, covered)
    return found


def _next_magic(block: bytes, at: int) -> int:
    """Place of the next record magic at a multiple of 8 from `at` on, or -1."""
    hit = block.find(fmt.RECORD_MAGIC, at)
    while hit >= 0 and hit & 7:
        hit = block.find(fmt.RECORD_MAGIC, hit + 1)
    return hit


def _header_fits(block: bytes, at: int, segment: Segment, offset: int) -> bool:
    """Do the fields that cost nothing to compare say that a record of this segment is here?"""
    fields = fmt.RECORD_HEADER.unpack_from(block, at)
    return (fields[6], fields[8], fields[9]) == (*segment.ids, segment.origin + offset)


def find_damage(fd: int, segment: Segment, tail: Tail, promised: int) -> CorruptLogError | None:
    """Why what lies beyond the tail's end was promised; None when nothing says so."""
    end_lsn = segment.origin + tail.end
    if promised > end_lsn:
        return damaged(
            segment.path, tail.stop, f"the log was written up to {promised - segment.origin} by this boot"
        )
    if files.size_of(fd) <= tail.stop:
        return None
    try:
        later = find_later_records(fd, segment, tail.stop, files.size_of(fd))
    except CorruptLogError as error:
        return error
    for record in later:
        if record.durable > end_lsn:
            return damaged(
                segment.path, tail.stop, f"the record at {record.offset} says that this was durable"
            )
    return None


def cut(fd: int, names: fmt.Names, segment: Segment, tail: Tail, report: RecoveryReport) -> None:
    """Copy what lies beyond the end aside, then overwrite it with zeros, durably. The caller holds the
    lock.
    """
    last = files.last_nonzero(fd, tail.end, files.size_of(fd))
    if last <= tail.end:
        return
    path = names.torn(segment.number, tail.end)
    try:
        files.unlink(path)
        copy = files.create(path)
        try:
            files.copy_range(fd, copy, tail.end, last, 0)
        finally:
            os.close(copy)
        report.torn_file = path
    except OSError as error:
        report.notes.append(f"{path}: the torn tail could not be kept ({error})")
    try:
        files.zero_range(fd, tail.end, last)
        files.sync_data(fd)
    except OSError as error:
        raise StorageError(
            f"{segment.path}: the torn tail could not be cut: {error}; open the queue again",
            path=segment.path,
        ) from error
    report.bytes_discarded += last - tail.end
    report.orphan_records += tail.orphans
    report.notes.append(
        f"{segment.path}: cut {last - tail.end} bytes of an unfinished write at offset {tail.end};"
        " nobody was told"
        " that they were written"
    )


def find_newest(
    names: fmt.Names, numbers: dict[int, str], notes: list[str]
) -> tuple[Segment, CorruptLogError | None]:
    """The newest segment with a sound header, and the error of a file right after it, where a segment
    belongs.

    Raises:
        CorruptLogError: there are files but not one segment.
        StorageError: a newer release wrote one.
    """
    bad: dict[int, CorruptLogError] = {}
    for number in sorted(numbers, reverse=True):
        try:
            segment = open_segment(numbers[number])
            if segment.number != number:
                raise damaged(segment.path, 16, f"the header says that this is segment {segment.number}")
        except FileNotFoundError:
            continue
        except CorruptLogError as error:
            bad[number] = error
            continue
        notes += [f"ignored: {e.path}: {e.reason}" for other, e in bad.items() if other != number + 1]
        return segment, bad.get(number + 1)
    raise (
        bad[min(bad)] if bad else damaged(names.segment(1), 0, "the segments went away while they were read")
    )


def read_chain(names: fmt.Names, newest: Segment, floor: int) -> tuple[list[Segment], CorruptLogError | None]:
    """The segments from `floor` to the newest, each following from the one before.

    When one is missing or wrong, those before it and the reason.
    """
    segments: list[Segment] = []
    for number in range(floor, newest.number + 1):
        path = names.segment(number)
        try:
            segment = newest if number == newest.number else open_segment(path)
            if segments:
                check_link(segments[-1], segment)
            elif segment.number != number:
                raise damaged(path, 16, f"the header says that this is segment {segment.number}")
        except FileNotFoundError:
            return segments, damaged(path, 0, "the file is missing")
        except CorruptLogError as error:
            return segments, error
        if segments:
            segments[-1].end = segment.header.previous_end
        segments.append(segment)
    return segments, None


def remove_leftovers(names: fmt.Names, floor: int, notes: list[str]) -> None:
    """Remove what a killed writer or a compaction left: half-made segments, retired ones, caches of retired
    ones.
    """
    doomed = [path for _, path in sorted(numbered_files(names)["new"].items())]
    doomed += [
        entry.path
        for entry in files.entries(names.directory)
        if names.is_temporary(entry.name) and _abandoned(entry.path)
    ]
    _remove(names, doomed, notes)
    remove_retired(names, floor, notes)


def remove_half_made(names: fmt.Names, number: int) -> None:
    """Remove a segment that a killed process was making. What is no file is left for `rotation` to refuse."""
    path = names.new(number)
    if files.is_regular(path):
        files.unlink(path)


def remove_retired(names: fmt.Names, floor: int, notes: list[str]) -> None:
    """Remove the files of segments below a number, the oldest first, and make that durable."""
    found = numbered_files(names)
    doomed = sorted(
        (number, path) for kind in ("seg", "idx") for number, path in found[kind].items() if number < floor
    )
    _remove(names, [path for _, path in doomed], notes)


def _remove(names: fmt.Names, doomed: list[str], notes: list[str]) -> None:
    removed = False
    for path in doomed:
        if not files.is_regular(path):
            continue
        try:
            removed |= files.unlink(path)
        except OSError as error:
            notes.append(f"{path}: a leftover that could not be removed ({error})")
    if removed:
        files.sync_directory(names.directory)


def _abandoned(path: str) -> bool:
    """Has the writer of a temporary file gone?"""
    with contextlib.suppress(OSError):
        fd = files.open_write(path)
        try:
            return locking.try_lock(fd)
        finally:
            os.close(fd)
    return False


def sync_segments(segments: list[Segment]) -> None:
    """Make everything retained durable, whoever wrote it.

    Raises:
        StorageError: a sync failed.
    """
    for segment in segments:
        try:
            fd = files.open_write(segment.path)
            try:
                files.sync_file(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StorageError(f"{segment.path}: could not be synced: {error}", path=segment.path) from error


def fence(
    names: fmt.Names, newest: Segment, tail: Tail, durable: int | None, highest: int, floor: int, size: int
) -> tuple[Segment, Tail]:
    """Seal the newest segment and go on in a new lineage, so that whoever still writes to the old one is
    not heard.

    `durable`: the LSN up to which the old segment can be trusted to be on the disk; the groups after it
    that verify are written again. None: all of it can be synced. `highest`: no LSN at or above it was ever
    used. Returns the new segment, and the tail of it.
    """
    fd = files.open_read(newest.path)
    try:
        read = file_reader(fd)
        seal, copied = tail, []
        if durable is not None:
            stop = min(max(durable - newest.origin, fmt.SEGMENT_HEADER_SIZE), tail.end)
            seal = find_tail(read, newest, fmt.SEGMENT_HEADER_SIZE, newest.header.previous_checksum, stop)
            rest = Scan(read, newest.place, seal.end, tail.end, seal.checksum, chained=False)
            copied = list(rest)
    finally:
        os.close(fd)
    size_of_copied = sum(record.end - record.lsn for record in copied)
    lineage = rotation.random_u64()
    header = rotation.successor(
        newest,
        size=rotation.next_size(size, newest.size, size_of_copied),
        log_id=newest.header.log_id,
        lineage=lineage,
        base=max(highest, newest.origin + tail.end),
        end=seal.end,
        checksum=seal.checksum,
        floor=floor,
    )
    records, checksum = rotation.reframe(header, copied)
    remove_half_made(names, header.number)
    segment = rotation.make(names, header, records)
    newest.end = seal.end
    end = fmt.SEGMENT_HEADER_SIZE + len(records)
    return segment, Tail(end, checksum, copied[-1].type if copied else 0, b"", 0, end, len(copied), 0)
