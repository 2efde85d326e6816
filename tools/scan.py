"""The records of a log read from its files, past any damage. Changes nothing, takes no lock.

The engine stops at damage, as it must not guess; a dump is for looking at what is there, so this reader goes
on
behind it and says what it left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nobroker.errors import CorruptLogError, StorageError
from nobroker_mmap import files, recovery
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import numbered_files
from nobroker_mmap.record import Reader, Record, Scan
from nobroker_mmap.segment import Segment

Say = Callable[[str], None]

_PATIENCE = 5
"""How often a tail is looked at again that a writer may be just about to complete."""
_PAUSE_S = 0.02


class LogScan:
    """One log of a directory, for reading.

    Attributes:
        log_id: of the log; 0 when no segment's header could be read.
        segments: those that count and whose header could be read, by number.
        skipped: how many pieces had to be left out so far.

    Raises:
        StorageError: there is no such log, or the directory cannot be read.
    """

    def __init__(self, directory: str | Path, name: str, say: Say) -> None:
        self._names = fmt.Names(Path(directory), fmt.validate_name(name))
        self._say = say
        self.skipped = 0
        try:
            found = numbered_files(self._names)["seg"]
        except OSError as error:
            raise StorageError(f"{directory}: cannot be read: {error}", path=str(directory)) from error
        if not found:
            raise StorageError(f"{directory}: there is no queue {name!r} here", path=str(directory))
        headers = {
            number: header for number in sorted(found) if (header := self._header(number, found[number]))
        }
        self.log_id = next(iter(headers.values())).log_id if headers else 0
        floor = max((header.floor for header in headers.values()), default=1)
        newest = max(headers, default=0)
        if newest:
            floor = max(floor, self._retired(newest, headers[newest], found[newest]))
        self.segments: dict[int, Segment] = {}
        for number in range(floor, max(found) + 1):
            if number in headers:
                self.segments[number] = Segment(found[number], headers[number])
            elif number not in found:
                self._skip(f"{self._names.segment(number)}: the file is missing")
            else:
                self._skip(f"{found[number]}: left out whole: {self._reason(found[number])}")
        for number, segment in self.segments.items():
            if number + 1 in self.segments:
                segment.end = self.segments[number + 1].header.previous_end

    def records(self, wanted: frozenset[int] | None = None) -> Iterator[Record]:
        """All records of whole groups, in order; of the `wanted` types only, if given.

        What does not verify is told and stepped over.
        """
        for segment in self.segments.values():
            try:
                with _open(segment.path) as fd:
                    for record in self._of_segment(segment, fd):
                        if wanted is None or record.type in wanted:
                            yield record
            except FileNotFoundError:
                self._skip(f"{segment.path}: a compaction removed it while it was being read")

    def _of_segment(self, segment: Segment, fd: int) -> Iterator[Record]:
        stop = segment.end
        size = files.size_of(fd)
        if size < (stop or segment.size):
            self._skip(f"{segment.path}: the file is cut short, at {size} of {segment.size} bytes")
        stop = min(stop or self._find_end(segment, fd), size)
        offset = fmt.SEGMENT_HEADER_SIZE
        read = recovery.file_reader(fd)
        while offset < stop:
            scan = Scan(read, segment.place, offset, stop, 0, chained=False)
            yield from scan
            offset = scan.offset
            if offset < stop:
                offset = self._resume(segment, fd, offset, stop)

    def _resume(self, segment: Segment, fd: int, offset: int, stop: int) -> int:
        """Offset of the next record that verifies behind a bad place."""
        try:
            later = recovery.find_later_records(fd, segment, offset, stop)
        except CorruptLogError as error:
            self._skip(str(error))
            return stop
        found = later[0].offset if later else stop
        if found == offset:
            self._skip(f"{segment.path}: the record at offset {offset} does not follow the one before it")
        else:
            self._skip(
                f"{segment.path}: {found - offset} bytes at offset {offset} do not verify; they were left out"
            )
        return found

    def _find_end(self, segment: Segment, fd: int) -> int:
        """Where the records of the newest segment end.

        A tail that nothing follows was promised to nobody and does not count.
        """
        written = files.last_nonzero(fd, fmt.SEGMENT_HEADER_SIZE, files.size_of(fd))
        read = recovery.file_reader(fd)
        tail = self._tail(segment, read)
        for _ in range(_PATIENCE):
            if tail.end >= written:
                return tail.end
            # What was there before the scan and did not verify may be what a writer was in the middle of.
            time.sleep(_PAUSE_S)
            tail = self._tail(segment, read)
        try:
            later = recovery.find_later_records(fd, segment, tail.stop, written)
        except CorruptLogError:
            return written
        if later:
            return written
        self._skip(f"{segment.path}: {written - tail.end} bytes at offset {tail.end} are a torn tail")
        return tail.end

    def _tail(self, segment: Segment, read: Reader) -> recovery.Tail:
        return recovery.find_tail(read, segment, fmt.SEGMENT_HEADER_SIZE, 0, chained=False)

    def _retired(self, number: int, header: fmt.SegmentHeader, path: str) -> int:
        """First segment that counts, by the RETIRE records of the newest one."""
        try:
            with _open(path) as fd:
                return self._tail(Segment(path, header), recovery.file_reader(fd)).floor
        except (FileNotFoundError, CorruptLogError) as error:
            self._skip(f"{path}: {error}")
            return 1

    def _header(self, number: int, path: str) -> fmt.SegmentHeader | None:
        try:
            with _open(path) as fd:
                header = fmt.parse_segment_header(files.read_at(fd, fmt.SEGMENT_HEADER_SIZE, 0))
        except (OSError, StorageError, fmt.HeaderError):
            return None
        return header if header.number == number else None

    def _reason(self, path: str) -> str:
        try:
            with _open(path) as fd:
                header = fmt.parse_segment_header(files.read_at(fd, fmt.SEGMENT_HEADER_SIZE, 0))
        except (OSError, StorageError, fmt.HeaderError) as error:
            return str(error)
        return f"its header says that it is segment {header.number}"

    def _skip(self, text: str) -> None:
        self.skipped += 1
        self._say(text)


@contextmanager
def _open(path: str) -> Iterator[int]:
    try:
        fd = files.open_read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened: {error}", path=path) from error
    try:
        yield fd
    finally:
        files.close(fd)
