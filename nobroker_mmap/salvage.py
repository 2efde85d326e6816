"""Salvage: give up what cannot be read, keep every other record, and say exactly what was lost.

Invariants
- Runs only under the lock and only on request. Each file is kept as it was, as `.salvaged`, before it is
  replaced.
- Every record that verifies stays where it is, with its LSN. A GAP record stands where one was that does
  not, so the LSNs and the links of all other records and segments remain true.
- Caches may know what the log does not any more, so they are removed; and a new lineage follows, so that no
  handle that remembers the lost records goes on.
"""

import os

from nobroker_mmap import control as ctl
from nobroker_mmap import files, locking, recovery, rotation
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import numbered_files, retired_floor
from nobroker_mmap.control import ControlPage
from nobroker_mmap.errors import CorruptLogError, LockTimeoutError, StorageError
from nobroker_mmap.losses import SMALLEST_GAP, Loss, SalvageReport, first_record, write_gap
from nobroker_mmap.segment import Segment, open_segment


def salvage(
    directory: str | os.PathLike[str], name: str, *, boot_id: str, lock_timeout: float = 10.0
) -> SalvageReport:
    """Repair a log that cannot be opened, at the price of the records that do not verify.

    Raises:
        LockTimeoutError: somebody works with it.
        StorageError: there is no such log, a newer release wrote it, or the disk does not allow a repair.
        CorruptLogError: there is nothing to begin from.
    """
    names = fmt.Names(directory, fmt.validate_name(name))
    if not numbered_files(names)["seg"]:
        raise StorageError(f"{directory}: there is no queue {name!r} here", path=str(directory))
    held: list[int] = []
    try:
        for path in (names.lock, names.openers):
            fd = files.open_or_create(path)
            held.append(fd)
            locking.acquire(fd, lock_timeout, path, lambda: 0)
        page = ControlPage(names.lock, read_only=False)
        return _Salvage(names, page, ctl.boot_hash(boot_id)).run()
    except LockTimeoutError:
        raise
    except OSError as error:
        raise StorageError(f"{directory}: the salvage failed: {error}", path=str(directory)) from error
    finally:
        for fd in held:
            os.close(fd)


class _Salvage:
    def __init__(self, names: fmt.Names, page: ControlPage, boot: int) -> None:
        self._names = names
        self._page = page
        self._appended = page.promised() if page.valid(boot) and not page.words[ctl.POISON] else 0
        self._report = SalvageReport()
        self._headers: dict[int, fmt.SegmentHeader] = {}
        self._invented: set[int] = set()

    def run(self) -> SalvageReport:
        numbers = dict(numbered_files(self._names)["seg"])
        self._set_foreign_aside(numbers)
        self._read_headers(numbers)
        if not self._headers:
            raise CorruptLogError(
                f"{self._names.segment(1)}: no segment of this log has a record or a header that"
                " verifies; put a copy"
                " back, or remove the files to begin an empty queue",
                path=self._names.segment(1),
                offset=0,
            )
        newest = max(self._headers)
        for number in sorted(number for number in numbers if number > newest):
            self._give_up(number)
        header = self._headers[newest]
        if self._appended > header.base + header.size:  # no such place: the page is damaged too
            self._appended = 0
        first = self._first(newest)
        for number in range(newest - 1, first - 1, -1):  # a lost header is told by the next one's
            if number not in self._headers:
                self._headers[number] = self._invent(number)
                self._invented.add(number)
        self._link(first, newest)
        self._remove_caches()
        for number in range(first, newest + 1):
            self._repair(number, newest)
        self._begin_lineage(newest, first)
        return self._report

    # -- headers ------------------------------------------------------------------------------------

    def _set_foreign_aside(self, numbers: dict[int, str]) -> None:
        for number, path in list(numbers.items()):
            if not files.is_regular(path):
                self._put_aside(number)
                self._report.notes.append(f"{path}: not a regular file; moved aside")
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
                self._headers[number] = header
            else:
                lost.append((number, path))
        for number, path in lost:
            header_found = self._reconstruct(number, path)
            if header_found is not None:
                self._headers[number] = header_found

    def _first(self, newest: int) -> int:
        header = self._headers[newest]
        floor = header.floor
        path = self._names.segment(newest)
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
        known = next(iter(self._headers.values()), None)
        return fmt.SegmentHeader(
            number=number,
            size=max(fmt.MIN_SEGMENT_SIZE, 1 << (size - 1).bit_length()),
            log_id=known.log_id if known else rotation.random_u64(),
            lineage=lineage,
            previous_lineage=0,
            base=origin + fmt.SEGMENT_HEADER_SIZE,
            previous_end=0,
            previous_checksum=previous,
            floor=min(known.floor, number) if known else 1,
            created=0,
        )

    def _invent(self, number: int) -> fmt.SegmentHeader:
        """The header of a segment of which nothing is left, from the one after it."""
        after = self._headers[number + 1]
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

    # -- segments -----------------------------------------------------------------------------------

    def _repair(self, number: int, newest: int) -> None:
        """Rewrite a segment when anything of it does not verify."""
        path = self._names.segment(number)
        header = self._headers[number]
        segment = Segment(path, header)
        if number < newest:
            segment.end = self._headers[number + 1].previous_end
        present = files.is_regular(path) is not None
        fd = files.open_read(path) if present else None
        try:
            pieces, losses, sound = self._survey(fd, segment, newest)
            self._report.losses += losses
            if sound and not losses:
                return
            self._rewrite(fd, segment, pieces)
        finally:
            if fd is not None:
                os.close(fd)

    def _link(self, first: int, newest: int) -> None:
        """Make headers that had to be made up follow from the segments before them."""
        for number in range(first, newest + 1):
            header = self._headers[number]
            before = self._headers.get(number - 1)
            if header.created or before is None or number == first:
                continue
            end, checksum = self._last_record(number - 1)
            if self._free_to_begin(number) and before.lineage == header.lineage:
                base = (
                    before.base + end - fmt.SEGMENT_HEADER_SIZE
                )  # so that it can stand for all that is lost
                size = fmt.segment_size_for(fmt.MIN_SEGMENT_SIZE, self._headers[number + 1].base - base)
                header = header._replace(base=base, size=size)
            elif before.lineage == header.lineage:
                end = min(before.size, header.base - before.base + fmt.SEGMENT_HEADER_SIZE)
            self._headers[number] = header._replace(
                previous_lineage=before.lineage,
                previous_end=end,
                previous_checksum=header.previous_checksum or checksum,
            )

    def _free_to_begin(self, number: int) -> bool:
        """Is a segment the first of a row of which nothing is left, where nothing says where it began?"""
        return (
            number in self._invented
            and number - 1 not in self._invented
            and self._headers[number + 1].created == 0
        )

    def _last_record(self, number: int) -> tuple[int, int]:
        """(end, checksum) of the last record of a segment that verifies."""
        path = self._names.segment(number)
        header = self._headers[number]
        nothing = fmt.SEGMENT_HEADER_SIZE, header.previous_checksum
        if files.is_regular(path) is None:
            return nothing
        fd = files.open_read(path)
        try:
            segment = Segment(path, header)
            found = recovery.find_later_records(fd, segment, fmt.SEGMENT_HEADER_SIZE, files.size_of(fd))
        finally:
            os.close(fd)
        return (found[-1].end - segment.origin, found[-1].checksum) if found else nothing

    def _survey(
        self, fd: int | None, segment: Segment, newest: int
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
            known = self._appended - segment.origin if self._appended > segment.base else 0
            end = max(known, ranges[-1][1] if ranges else fmt.SEGMENT_HEADER_SIZE)
        ranges = _framable(ranges, end)
        self._report.records_kept += len(ranges)
        losses: list[Loss] = []
        at = fmt.SEGMENT_HEADER_SIZE
        for start, stop in [*ranges, (end, end)]:
            if at < start:
                reason = "no record verifies here" if fd is not None else "the file is missing"
                losses.append(
                    Loss(segment.path, at, start - at, segment.origin + at, segment.origin + start, reason)
                )
            at = stop
        return ranges, losses, sound

    def _rewrite(self, fd: int | None, segment: Segment, ranges: list[tuple[int, int]]) -> None:
        losses = [loss for loss in self._report.losses if loss.path == segment.path]
        path = self._names.new(segment.number)
        files.unlink(path)
        copy = files.create(path)
        try:
            files.preallocate(copy, segment.size)
            files.write_at(copy, segment.header.pack(), 0)
            for start, stop in ranges:
                if fd is not None:
                    files.copy_range(fd, copy, start, stop, start)
            for loss in losses:
                write_gap(copy, segment.place, loss.offset, loss.length)
            files.sync_file(copy)
        finally:
            os.close(copy)
        if fd is not None:  # a second name, durable: no kill or power cut between the steps loses both
            kept = self._free_name(segment.number)
            files.keep_copy(segment.path, kept)
            files.sync_directory(self._names.directory)
            self._report.kept_files.append(kept)
        files.publish(path, segment.path, self._names.directory)

    def _give_up(self, number: int) -> None:
        """Put a file aside that has neither a header nor a record that verifies, and that none needs."""
        path = self._names.segment(number)
        size = os.stat(path).st_size
        self._put_aside(number)
        self._report.losses.append(Loss(path, 0, size, 0, 0, "neither its header nor any record verifies"))

    def _put_aside(self, number: int) -> None:
        kept = self._free_name(number)
        files.move(self._names.segment(number), kept)
        self._report.kept_files.append(kept)

    def _free_name(self, number: int) -> str:
        kept = self._names.salvaged(number)
        attempt = 1
        while files.is_regular(kept) is not None:
            attempt += 1
            kept = f"{self._names.salvaged(number)}{attempt}"
        return kept

    def _remove_caches(self) -> None:
        files.unlink(self._names.snapshot)
        for path in numbered_files(self._names)["idx"].values():
            files.unlink(path)
        files.sync_directory(self._names.directory)

    def _begin_lineage(self, newest: int, floor: int) -> None:
        """Continue in a new segment of a new lineage, and make the control page worthless."""
        path = self._names.segment(newest)
        segment = Segment(path, self._headers[newest])
        fd = files.open_read(path)
        try:
            tail = recovery.find_tail(
                recovery.file_reader(fd), segment, fmt.SEGMENT_HEADER_SIZE, segment.header.previous_checksum
            )
        finally:
            os.close(fd)
        highest = max(self._appended, segment.origin + tail.end)
        recovery.fence(self._names, segment, tail, None, highest, floor, fmt.FIRST_SEGMENT_SIZE)
        self._page.zero()
        self._report.notes.append(
            "the log goes on in a new lineage; handles that were open must be opened again"
        )


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
