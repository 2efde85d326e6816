"""One segment: its header's facts, where its records end, and reading it through a map.

Invariants
- The size of the file is looked at right before a map is touched: a file that others truncated is a
  `CorruptLogError`, never a signal.
- Reading never depends on a descriptor: the map keeps the file, also after it was unlinked.
- At most 128 segments are mapped at once.
"""

import mmap
from collections import OrderedDict

from nobroker_mmap import files
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import CorruptLogError, StorageError, because, damaged, not_opened
from nobroker_mmap.record import Place, Record, parse, size_at

_FIRST_LOOK = 512
"""Most records of one job are not longer."""


class Segment:
    """A segment of the log.

    `end` is the offset at which its records end once that is settled (a next segment exists), else 0.
    """

    __slots__ = (
        "_map",
        "base",
        "end",
        "header",
        "ids",
        "kept",
        "last_lsn",
        "middle",
        "number",
        "origin",
        "path",
        "place",
        "roomy",
        "size",
    )

    def __init__(self, path: str, header: fmt.SegmentHeader) -> None:
        self.path = path
        self.header = header
        self.number = header.number
        self.base = header.base
        self.size = header.size
        self.origin = header.base - fmt.SEGMENT_HEADER_SIZE
        self.place = Place(header.number, header.lineage, self.origin)
        self.ids = header.number, header.lineage
        self.last_lsn = self.origin + header.size
        self.middle = header.base + (header.size >> 1)
        self.kept = self.last_lsn - (header.size >> 3)
        self.roomy = self.last_lsn - len(fmt.TERMINATOR)
        self.end = 0
        self._map: mmap.mmap | None = None

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, base={self.base}, end={self.end})"

    @property
    def limit(self) -> int:
        """Offset that no record of it goes beyond."""
        return self.end or self.size

    @property
    def mapped(self) -> bool:
        """Is it mapped now?"""
        return self._map is not None

    def map(self) -> mmap.mmap:
        """Its map, made when needed.

        Raises:
            FileNotFoundError: the file has gone.
            CorruptLogError: the file is shorter than its header says.
        """
        if self._map is None:
            try:
                fd = files.open_read(self.path)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise not_opened(self.path, error) from error
            try:
                if files.size_of(fd) < self.size:
                    raise self._short(files.size_of(fd))
                if files.read_at(fd, fmt.SEGMENT_HEADER_SIZE, 0) != self.header.pack():
                    raise damaged(self.path, 0, "the header is not the one this segment had")
                self._map = files.map_read(fd, self.size)
            finally:
                files.close(fd)
        return self._map

    def unmap(self) -> None:
        """Let go of the map; it goes when nobody reads from it any more."""
        self._map = None

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from the map; fewer than asked for only at the end of the file."""
        view = self._map or self.map()
        size = view.size()
        if size < self.size:
            raise self._short(size)
        return view[offset : offset + length]

    def record_at(self, offset: int) -> Record:
        """The verified record at an offset.

        Raises:
            CorruptLogError: nothing verifies there.
        """
        room = (self.end or self.size) - offset
        if offset < fmt.SEGMENT_HEADER_SIZE or room < fmt.RECORD_HEADER_SIZE or offset & 7:
            raise damaged(self.path, max(0, min(offset, self.size)), "no record can be there")
        data = self.read(offset, _FIRST_LOOK if room > _FIRST_LOOK else room)
        record = parse(data, 0, self.place, offset)
        if record is None and len(data) < size_at(data, 0) <= room:
            record = parse(self.read(offset, size_at(data, 0)), 0, self.place, offset)
        if record is not None and record.end - record.lsn <= room:
            return record
        raise damaged(self.path, offset, "no record verifies here")

    def _short(self, size: int) -> CorruptLogError:
        return damaged(self.path, size, f"the file has {size} bytes and should have {self.size}")


def open_segment(path: str) -> Segment:
    """The segment in an existing file, its header verified and its size too.

    Raises:
        FileNotFoundError: there is none.
        CorruptLogError: it is not the segment that its name promises.
        StorageError: it cannot be read, or a newer release wrote it.
    """
    try:
        fd = files.open_read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        if files.is_regular(path) is False:
            raise damaged(path, 0, "what stands here is not a regular file") from error
        raise not_opened(path, error) from error
    try:
        raw = files.read_at(fd, fmt.SEGMENT_HEADER_SIZE, 0)
        size = files.size_of(fd)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {because(error)}", path=path) from error
    finally:
        files.close(fd)
    try:
        header = fmt.parse_segment_header(raw)
    except fmt.NewerVersionError as error:
        raise StorageError(f"{path}: {error}; update nobroker to use this queue", path=path) from error
    except fmt.HeaderError as error:
        raise damaged(path, 0, str(error)) from error
    if size < header.size:
        raise damaged(path, size, f"the file has {size} bytes and its header says {header.size}")
    return Segment(path, header)


class MapCache:
    """Keeps the number of mapped segments below a bound; the one used longest ago goes."""

    def __init__(self, limit: int = fmt.MAX_MAPPED_SEGMENTS) -> None:
        self._limit = limit
        self._used: OrderedDict[int, Segment] = OrderedDict()
        self._last: Segment | None = None

    def use(self, segment: Segment) -> Segment:
        """Say that a segment is about to be read."""
        if segment is self._last:
            return segment
        used = self._used
        number = segment.number
        if used.get(number) is segment:
            used.move_to_end(number)
        else:
            self.forget(number)
            used[number] = segment
            if len(used) > self._limit:
                used.popitem(last=False)[1].unmap()
        self._last = segment
        return segment

    def forget(self, number: int) -> None:
        """Unmap a segment that leaves."""
        self._last = None
        segment = self._used.pop(number, None)
        if segment is not None:
            segment.unmap()

    def clear(self) -> None:
        """Unmap all."""
        self._last = None
        while self._used:
            self._used.popitem()[1].unmap()

    def __len__(self) -> int:
        return len(self._used)
