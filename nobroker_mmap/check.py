"""Reading a whole log from its files and saying what is wrong. Changes nothing, takes no lock.

Invariants
- Everything is read with positioned reads, so damaged and truncated files are findings, never signals.
- What a writer at work may be in the middle of is not reported: the end of the log is taken first.
- What a finding says is lost is what a salvage would give up, no more and no less.
"""

import contextlib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nobroker_mmap import directories, files, locking, offsets, opening, recovery, snapshot
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import check_link, numbered_files, retired_floor
from nobroker_mmap.control import ACTIVE, HOLDER, POISON, ControlPage
from nobroker_mmap.errors import CorruptLogError, NobrokerError
from nobroker_mmap.offsets import RowSource, Table
from nobroker_mmap.record import Scan
from nobroker_mmap.segment import Segment, open_segment
from nobroker_mmap.survey import Survey

Severity = Literal["damage", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. `advice` says what to do about it.

    `length`: bytes of the log that are lost there. `keys`: ranges (first, last) of the sequence numbers of
    jobs that had a record there, as far as an index that is left tells; `keys_known`: these are all.
    """

    severity: Severity
    path: str
    offset: int
    message: str
    advice: str
    length: int = 0
    keys: tuple[tuple[int, int], ...] = ()
    keys_known: bool = False


def check_log(names: fmt.Names, source: RowSource, boot: int) -> list[Finding]:
    """Everything that is wrong with a log; an empty list when it is clean."""
    found: list[Finding] = []
    page = _page(names)
    appended, active = _written(names, page, boot, found)
    try:
        numbers = numbered_files(names)["seg"]
        newest, wrong = recovery.find_newest(names, numbers, [])
    except NobrokerError as error:
        return [*found, _from_error(error, names)]
    if wrong is not None:
        found.append(_from_error(wrong, names))
    message = "no segment of this queue, and ignored"
    ignored = [path for number, path in numbers.items() if number > newest.number + 1]
    found.extend(Finding("warning", path, 0, message, "move it away") for path in ignored)
    told = wrong.path if wrong is not None else ""
    absent = [n for n in range(newest.number + 1, active + 1) if names.segment(n) != told]
    found.extend(_missing(names, number) for number in absent)
    floor = _floor(newest)
    segments = _segments(names, newest, floor, found)
    for segment in segments:
        end = appended if segment is newest and active <= newest.number else None
        _check_segment(names, segment, source, end, lambda: _idle(page, appended), found)
    _check_foreign(names, numbers, floor, found)
    _check_snapshot(names, segments, found)
    if any(finding.severity == "damage" for finding in found):
        found = _with_losses(names, page, boot, found)
    return found


def _page(names: fmt.Names) -> ControlPage | None:
    try:
        return ControlPage(names.lock, read_only=True)
    except OSError:  # none, or none worth reading: an opening makes it anew
        return None


def _written(names: fmt.Names, page: ControlPage | None, boot: int, found: list[Finding]) -> tuple[int, int]:
    """LSN up to which this boot wrote, and the segment it wrote to last; zeros when that is not known."""
    if page is None or not page.valid(boot):
        return 0, 0
    if page.words[POISON]:
        message = "a sync failed; what was written after the last good one may not be on the disk"
        advice = (
            "look at the disk (kernel log, free space), stop every process that has the queue open, then"
            " start them again: the next opening writes what is not known to be on the disk once more"
        )
        found.append(Finding("warning", names.lock, 0, message, advice))
        return 0, 0
    return page.promised(), page.least(ACTIVE)


def _idle(page: ControlPage | None, appended: int) -> bool:
    """Is nobody in the middle of a write, and has there been none since `appended` was read?"""
    if page is None or page.promised() != appended:
        return False
    holder = int(page.words[HOLDER])
    return holder == 0 or not locking.is_running(holder)


def _salvage(names: fmt.Names) -> str:
    """What to type."""
    return f"nobroker --dir {shlex.quote(names.directory)} -q {names.name} recover --salvage"


def _from_error(error: NobrokerError, names: fmt.Names) -> Finding:
    if isinstance(error, CorruptLogError):
        return Finding("damage", error.path, error.offset, error.reason, _salvage(names))
    path = getattr(error, "path", None) or names.directory
    message = str(error).removeprefix(f"{path}: ")
    return Finding("warning", path, 0, message, "as it says; the queue cannot be looked at before")


def _missing(names: fmt.Names, number: int) -> Finding:
    return Finding("damage", names.segment(number), 0, "the file is missing", _salvage(names))


def _with_losses(
    names: fmt.Names, page: ControlPage | None, boot: int, found: list[Finding]
) -> list[Finding]:
    """The same with what a salvage would give up, in place of findings that say less."""
    survey = Survey(names, page, boot)
    with contextlib.suppress(NobrokerError, OSError):  # nothing to begin from: that is among the findings
        survey.run()
        exact = [
            Finding(
                "damage", loss.path, loss.offset, loss.reason, _salvage(names),
                loss.length, loss.keys, loss.keys_known,
            )
            for loss in survey.losses
        ]  # fmt: skip
        told = {(finding.path, finding.offset) for finding in exact}
        told |= {(finding.path, 0) for finding in exact if finding.message == "the file is missing"}
        for number, reason in survey.aside.items():
            path = names.segment(number)
            told |= {(path, 0), (names.segment(number + 1), 0)}
            if not any(finding.path == path for finding in exact):
                exact.append(Finding("damage", path, 0, reason, _salvage(names)))
        found = [f for f in found if f.severity != "damage" or (f.path, f.offset) not in told]
        found = sorted(exact, key=lambda f: (f.path, f.offset)) + found
    return found


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
            found.append(_missing(names, number))
        except NobrokerError as error:
            found.append(_from_error(error, names))
    return segments


def _check_segment(
    names: fmt.Names,
    segment: Segment,
    source: RowSource,
    appended: int | None,
    idle: Callable[[], bool],
    found: list[Finding],
) -> None:
    """Records up to where they end, what is beyond, and the sidecar."""
    table = Table()
    known = len(found)
    fd = files.open_read(segment.path)
    try:
        read = recovery.file_reader(fd)
        at, checksum, chained = fmt.SEGMENT_HEADER_SIZE, segment.header.previous_checksum, True
        whole = at
        while True:
            scan = Scan(read, segment.place, at, segment.limit, checksum, chained=chained)
            for record in scan:
                source.add(table, record)
                if record.type == fmt.RETIRE:
                    retired_floor(record)
                pad = read(scan.offset - (-len(record.body) % 8), -len(record.body) % 8)
                if any(pad):
                    found.append(_warn(segment, record.offset, "the gap after a record is not zero"))
                if record.flags & fmt.LAST_OF_GROUP:
                    whole = scan.offset
            end = appended - segment.origin if appended else segment.end
            if end and scan.offset == end and not segment.end and idle():
                end = 0  # nobody is writing, so what stands beyond is not on its way
            if scan.offset >= (segment.end or end or segment.size):
                break
            later = recovery.find_later_records(fd, segment, scan.offset, segment.limit)
            first = later[0].offset if later else segment.end
            promised = bool(end and scan.offset < end)
            promised = promised or any(r.durable > segment.origin + whole for r in later)
            if promised:
                message = f"no record verifies up to offset {first or end}"
                found.append(Finding("damage", segment.path, scan.offset, message, _salvage(names)))
            elif files.last_nonzero(fd, scan.offset, segment.limit) > whole:
                message = "an unfinished write that nobody was told of"
                advice = "nothing: the next opening cuts it and keeps a copy (.torn)"
                found.append(Finding("warning", segment.path, whole, message, advice))
            if not later or not promised:
                break
            at, checksum, chained = later[0].offset, 0, False
    except CorruptLogError as error:  # of a record, which does not know in which directory it is
        found.append(Finding("damage", segment.path, error.offset, error.reason, _salvage(names)))
    finally:
        os.close(fd)
    if not any(finding.severity == "damage" for finding in found[known:]):
        _check_sidecar(names, segment, table, found)


def _warn(segment: Segment, offset: int, message: str) -> Finding:
    return Finding("warning", segment.path, offset, message, "nothing: no record is concerned")


def _check_sidecar(names: fmt.Names, segment: Segment, table: Table, found: list[Finding]) -> None:
    path = names.sidecar(segment.number)
    if not segment.end or files.is_regular(path) is None:
        return
    stored = offsets.read_sidecar(path, segment)
    if stored is None:
        found.append(
            Finding("note", path, 0, "the index does not verify", "nothing: it is built anew when needed")
        )
    elif stored.to_bytes() != table.to_bytes():
        found.append(
            Finding(
                "warning", path, 0, "the index does not agree with the segment", f"rm {shlex.quote(path)}"
            )
        )


def _check_snapshot(names: fmt.Names, segments: list[Segment], found: list[Finding]) -> None:
    if files.is_regular(names.snapshot) is False:
        return  # told with the files that are not ours
    snap, why = snapshot.load(names.snapshot, segments[-1].header.log_id)
    if snap is not None and snap.lsn < segments[0].base:
        return  # of segments that have left since; the next one replaces it
    if snap is not None and opening.snapshot_fits(segments, snap, (-1, 0)) is None:
        why = "the snapshot does not fit the log"
    if why is not None:
        found.append(
            Finding(
                "note",
                names.snapshot,
                0,
                why,
                "nothing: the log is read instead, and the next clean close writes a new one",
            )
        )


def _check_foreign(names: fmt.Names, numbers: dict[int, str], floor: int, found: list[Finding]) -> None:
    """Files that have one of our names and cannot be ours, and segments that left."""
    for entry in files.entries(names.directory):
        if entry.path == names.processes and not directories.exists(entry.path):
            advice = "move it away: until then nobody sees which processes work on the queue"
            found.append(Finding("note", entry.path, 0, "not a directory; it is not touched", advice))
        if not names.belongs(entry.name) or names.is_kept(entry.name):
            continue
        if entry.path == names.wake:
            if not files.is_fifo(entry.path):
                advice = "remove it: the next worker that waits makes a FIFO; until then waiting polls"
                found.append(Finding("note", entry.path, 0, "not a FIFO", advice))
        elif not files.is_regular(entry.path) and not any(f.path == entry.path for f in found):
            message = "a symbolic link, directory or special file under a name of ours; it is not touched"
            found.append(Finding("warning", entry.path, 0, message, "move it away"))
    for number, path in numbers.items():
        if number < floor:
            found.append(
                Finding("note", path, 0, "a retired segment", "nothing: the next opening removes it")
            )
