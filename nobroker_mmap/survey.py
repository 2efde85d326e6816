"""What is left of a log, and what is lost: the look before a salvage. Changes nothing.

Invariants
- Every header that is lost is told by the segment's own records or by the next segment's header.
- A segment of another log is none of this one's, whatever its name says.
- Losses are exact to the byte; which keys they held is said only where an index that verifies says so.
"""

import dataclasses
import os
from collections import Counter

from nobroker_mmap import control as ctl
from nobroker_mmap import files, offsets, recovery, rotation, snapshot
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import numbered_files, retired_floor
from nobroker_mmap.control import ControlPage
from nobroker_mmap.errors import CorruptLogError
from nobroker_mmap.losses import SMALLEST_GAP, Loss, first_record, keys_between
from nobroker_mmap.segment import Segment, open_segment


class Survey:
    """The segments of a log as far as they can be told, and the losses in them.

    Attributes:
        headers: by number, those that had to be made up included.
        first, newest: the numbers that count.
        pieces: by number, the ranges of a file that verify; a whole file that needs no change is not there.
        losses: in the order of the log.
        aside: files under names of segments that are none, by number, with the reason.
        records: how many verify.
    """

    def __init__(self, names: fmt.Names, page: ControlPage | None, boot: int) -> None:
        self.names = names
        self.page = page
        self.headers: dict[int, fmt.SegmentHeader] = {}
        self.first = self.newest = 0
        self.pieces: dict[int, list[tuple[int, int]]] = {}
        self.losses: list[Loss] = []
        self.aside: dict[int, str] = {}
        self.records = 0
        self._invented: set[int] = set()
        self._follows: dict[int, int] = {}
        """Checksum of the record that a segment follows, by its own first record."""
        valid = page is not None and page.valid(boot) and not page.words[ctl.POISON]
        self.appended = page.promised() if page is not None and valid else 0
        self._active = page.least(ctl.ACTIVE) if page is not None and valid else 0

    def run(self) -> "Survey":
        """Look.

        Raises:
            CorruptLogError: there is nothing to begin from.
            StorageError: a file cannot be read, or a newer release wrote it.
        """
        numbers = dict(numbered_files(self.names)["seg"])
        self._tell_foreign(numbers)
        self._read_headers(numbers)
        if not self.headers:
            raise CorruptLogError(
                f"{self.names.segment(1)}: no segment of this log has a record or a header that"
                " verifies; put a copy back, or remove the files to begin an empty queue",
                path=self.names.segment(1),
                offset=0,
            )
        newest = self.newest = max(self.headers)
        for number in sorted(number for number in numbers if number > newest):
            self._give_up(number, numbers[number])
        header = self.headers[newest]
        beyond = self._active > newest
        if not beyond and self.appended > header.base + header.size:  # no such place: the page is wrong too
            self.appended = 0
        first = self.first = self._first(newest)
        for number in range(newest - 1, first - 1, -1):  # a lost header is told by the next one's
            if number not in self.headers:
                self.headers[number] = self._invent(number)
                self._invented.add(number)
        self._link(first, newest)
        for number in range(first, newest + 1):
            self._look_at(number, known_end=not beyond)
        if beyond:
            self._miss_the_end()
        self.losses = [self._with_keys(loss) for loss in sorted(self.losses, key=lambda loss: loss.first_lsn)]
        return self

    def segment(self, number: int) -> Segment:
        """A segment that counts, with the end that the next one says."""
        segment = Segment(self.names.segment(number), self.headers[number])
        if number < self.newest:
            segment.end = self.headers[number + 1].previous_end
        return segment

    # -- headers ------------------------------------------------------------------------------------

    def _tell_foreign(self, numbers: dict[int, str]) -> None:
        """Leave out what is no regular file, and segments of other logs than the one most things speak of."""
        owners: dict[int, fmt.SegmentHeader] = {}
        for number, path in list(numbers.items()):
            if not files.is_regular(path):
                self.aside[number] = "not a regular file"
                del numbers[number]
            elif (header := _own_header(path)) is not None:
                owners[number] = header
        logs = Counter(header.log_id for header in owners.values())
        if len(logs) < 2:
            return
        for log in logs:
            logs[log] += snapshot.load(self.names.snapshot, log)[0] is not None
        if self.page is not None and self.page.sound():
            logs.update({h.log_id for h in owners.values() if h.lineage == self.page.lineage})
        newest = owners[max(owners)].log_id
        ours = max(logs, key=lambda log: (logs[log], log == newest))
        for number, header in owners.items():
            if header.log_id != ours:
                self.aside[number] = "a segment of another queue"
                del numbers[number]

    def _read_headers(self, numbers: dict[int, str]) -> None:
        lost: list[tuple[int, str]] = []
        for number, path in sorted(numbers.items()):
            try:
                header = open_segment(path).header
            except CorruptLogError:
                lost.append((number, path))
                continue
            if header.number == number:
                self.headers[number] = header
            else:
                lost.append((number, path))
        for number, path in lost:
            header_found = self._reconstruct(number, path)
            if header_found is not None:
                self.headers[number] = header_found

    def _first(self, newest: int) -> int:
        header = self.headers[newest]
        floor = header.floor
        path = self.names.segment(newest)
        fd = files.open_read(path)
        try:
            segment = Segment(path, header)
            for record in recovery.find_later_records(
                fd, segment, fmt.SEGMENT_HEADER_SIZE, files.size_of(fd)
            ):
                if record.type == fmt.RETIRE:
                    floor = max(floor, retired_floor(record))
        finally:
            os.close(fd)
        return floor

    def _reconstruct(self, number: int, path: str) -> fmt.SegmentHeader | None:
        """A header from what the records and the neighbours say; None when there is no record to go by."""
        fd = files.open_read(path)
        try:
            size = files.size_of(fd)
            raw = files.read_at(fd, fmt.SEGMENT_HEADER_SIZE, 0)
            try:
                return (
                    fmt.parse_segment_header(raw) if fmt.parse_segment_header(raw).number == number else None
                )
            except fmt.HeaderError:
                pass
            found = first_record(fd, size, number)
        finally:
            os.close(fd)
        if found is None:
            return None
        lineage, origin, previous = found
        if previous is not None:
            self._follows[number] = previous
        known = next(iter(self.headers.values()), None)
        return fmt.SegmentHeader(
            number=number,
            size=max(fmt.MIN_SEGMENT_SIZE, 1 << (size - 1).bit_length()),
            log_id=known.log_id if known else rotation.random_u64(),
            lineage=lineage,
            previous_lineage=0,
            base=origin + fmt.SEGMENT_HEADER_SIZE,
            previous_end=0,
            previous_checksum=previous or 0,
            floor=min(known.floor, number) if known else 1,
            created=0,
        )

    def _invent(self, number: int) -> fmt.SegmentHeader:
        """The header of a segment of which nothing is left, from the one after it."""
        after = self.headers[number + 1]
        end = after.previous_end or fmt.SEGMENT_HEADER_SIZE  # unknown: nothing of it is left
        return fmt.SegmentHeader(
            number=number,
            size=fmt.segment_size_for(fmt.MIN_SEGMENT_SIZE, end),
            log_id=after.log_id,
            lineage=after.previous_lineage or after.lineage,
            previous_lineage=0,
            base=after.base - end + fmt.SEGMENT_HEADER_SIZE,
            previous_end=0,
            previous_checksum=0,
            floor=min(after.floor, number),
            created=0,
        )

    def _link(self, first: int, newest: int) -> None:
        """Make headers that had to be made up follow from the segments before them."""
        for number in range(first, newest + 1):
            header = self.headers[number]
            before = self.headers.get(number - 1)
            if header.created or before is None or number == first:
                continue
            end, checksum = self._last_record(number - 1, self._follows.get(number))
            if self._free_to_begin(number) and before.lineage == header.lineage:
                base = (
                    before.base + end - fmt.SEGMENT_HEADER_SIZE
                )  # so that it can stand for all that is lost
                size = fmt.segment_size_for(fmt.MIN_SEGMENT_SIZE, self.headers[number + 1].base - base)
                header = header._replace(base=base, size=size)
            elif before.lineage == header.lineage:
                end = min(before.size, header.base - before.base + fmt.SEGMENT_HEADER_SIZE)
            self.headers[number] = header._replace(
                previous_lineage=before.lineage,
                previous_end=end,
                previous_checksum=self._follows.get(number, checksum),
            )

    def _free_to_begin(self, number: int) -> bool:
        """Is a segment the first of a row of which nothing is left, where nothing says where it began?"""
        return (
            number in self._invented
            and number - 1 not in self._invented
            and self.headers[number + 1].created == 0
        )

    def _last_record(self, number: int, follows: int | None = None) -> tuple[int, int]:
        """(end, checksum) of the last record of a segment that verifies. `follows`: the checksum that the
        next segment knows; what stands behind that record was written anew there.
        """
        path = self.names.segment(number)
        header = self.headers[number]
        nothing = fmt.SEGMENT_HEADER_SIZE, header.previous_checksum
        if files.is_regular(path) is None:
            return nothing
        fd = files.open_read(path)
        try:
            segment = Segment(path, header)
            found = recovery.find_later_records(fd, segment, fmt.SEGMENT_HEADER_SIZE, files.size_of(fd))
        finally:
            os.close(fd)
        if follows == header.previous_checksum:
            return nothing
        known = [record for record in found if record.checksum == follows] or found
        return (known[-1].end - segment.origin, known[-1].checksum) if known else nothing

    # -- segments -----------------------------------------------------------------------------------

    def _give_up(self, number: int, path: str) -> None:
        """A file that has neither a header nor a record that verifies, and that none needs."""
        reason = "neither its header nor any record verifies"
        self.aside[number] = reason
        self.losses.append(Loss(path, 0, os.stat(path).st_size, 0, 0, reason))

    def _miss_the_end(self) -> None:
        """The control page knows of a newest segment that is not there."""
        end = self.segment(self.newest).origin + self._last_record(self.newest)[0]
        path = self.names.segment(self._active)
        self.losses = [loss for loss in self.losses if loss.end_lsn or loss.path != path]
        if self.appended > end:
            reason = self.aside.get(self._active, "the file is missing")
            self.losses.append(Loss(path, 0, self.appended - end, end, self.appended, reason))

    def _with_keys(self, loss: Loss) -> Loss:
        """With the keys whose records were there, as far as an index that is left can tell."""
        split = fmt.split_segment_name(os.path.basename(loss.path))
        number = split[1] if split is not None else 0
        if number == self.newest + 1 == self._active:
            return self._by_snapshot(loss, number, fmt.SEGMENT_HEADER_SIZE - loss.first_lsn)
        if number not in self.headers:
            return loss
        segment = self.segment(number)
        table = offsets.read_sidecar(self.names.sidecar(number), segment) if segment.end else None
        if table is None:
            return self._by_snapshot(loss, number, -segment.origin)
        keys = keys_between(table, loss.offset, loss.offset + loss.length)
        return dataclasses.replace(loss, keys=keys, keys_known=True)

    def _by_snapshot(self, loss: Loss, number: int, shift: int) -> Loss:
        """A snapshot has the rows of the segment that was the newest then. `shift`: from LSN to offset."""
        snap, _ = snapshot.load(self.names.snapshot, self.headers[self.newest].log_id)
        if snap is None or snap.segment != number or snap.lsn <= loss.first_lsn:
            return loss
        keys = keys_between(snap.table, loss.first_lsn + shift, loss.end_lsn + shift)
        return dataclasses.replace(loss, keys=keys, keys_known=snap.lsn >= loss.end_lsn)

    def _look_at(self, number: int, *, known_end: bool) -> None:
        """Note what of a segment verifies, unless all of it does."""
        segment = self.segment(number)
        present = number not in self.aside and files.is_regular(segment.path) is not None
        fd = files.open_read(segment.path) if present else None
        try:
            pieces, losses, sound = self._survey(fd, segment, known_end)
        finally:
            if fd is not None:
                os.close(fd)
        self.losses += losses
        if not sound or losses:
            self.pieces[number] = pieces

    def _survey(
        self, fd: int | None, segment: Segment, known_end: bool
    ) -> tuple[list[tuple[int, int]], list[Loss], bool]:
        """Ranges that verify, what is lost between them, and whether the file's own header and size are
        sound.
        """
        end = segment.end
        ranges: list[tuple[int, int]] = []
        sound = False
        if fd is not None:
            size = files.size_of(fd)
            sound = (
                size >= segment.size
                and files.read_at(fd, fmt.SEGMENT_HEADER_SIZE, 0) == segment.header.pack()
            )
            stop = min(size, end or max(size, segment.size))
            found = recovery.find_later_records(fd, segment, fmt.SEGMENT_HEADER_SIZE, stop)
            ranges = [(record.offset, record.end - segment.origin) for record in found]
        if not end:
            known = self.appended - segment.origin if known_end and self.appended > segment.base else 0
            end = max(known, ranges[-1][1] if ranges else fmt.SEGMENT_HEADER_SIZE)
        ranges = _framable(ranges, end)
        self.records += len(ranges)
        losses: list[Loss] = []
        at = fmt.SEGMENT_HEADER_SIZE
        for start, stop in [*ranges, (end, end)]:
            if at < start:
                missing = self.aside.get(segment.number, "the file is missing")
                reason = "no record verifies here" if fd is not None else missing
                losses.append(
                    Loss(segment.path, at, start - at, segment.origin + at, segment.origin + start, reason)
                )
            at = stop
        return ranges, losses, sound


def _own_header(path: str) -> fmt.SegmentHeader | None:
    """The header of a segment file, whatever became of the rest; None when it does not verify."""
    fd = files.open_read(path)
    try:
        return fmt.parse_segment_header(files.read_at(fd, fmt.SEGMENT_HEADER_SIZE, 0))
    except fmt.HeaderError:
        return None
    finally:
        os.close(fd)


def _framable(ranges: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """The records between which every hole, also the one before `end`, has room for a GAP record.

    Smaller holes only come from records that stand where the log never put them; those are given up too.
    """
    kept: list[tuple[int, int]] = []
    at = fmt.SEGMENT_HEADER_SIZE
    for start, stop in ranges:
        if stop <= end and (start == at or start - at >= SMALLEST_GAP):
            kept.append((start, stop))
            at = stop
    while kept and 0 < end - kept[-1][1] < SMALLEST_GAP:
        kept.pop()
    return kept
