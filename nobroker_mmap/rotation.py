"""Making segments: the next one ahead of need, and its appearance in the log.

Invariants
- A segment appears under its own name only when its header (and what a repair wrote into it) is synced; the
  directory is synced before the first record of it is acknowledged.
- Its space is reserved before its first record, so a full disk is an `OSError` at rotation, never a signal
  later.
- A `.new` file holds nothing but zeros until it is used, unless its maker died; whoever settles after a
  death removes it.
"""

import contextlib
import os

from nobroker_mmap import files
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import StorageError, because
from nobroker_mmap.record import Record, encode
from nobroker_mmap.segment import Segment


def random_u64() -> int:
    """A random number that is not 0."""
    return int.from_bytes(os.urandom(8), "little") or 1


def next_size(segment_size: int, previous: int, group: int) -> int:
    """Size of the next segment: twice the one before, up to the wanted size, and enough for a group."""
    wanted = (
        min(segment_size, max(2 * previous, fmt.MIN_SEGMENT_SIZE))
        if previous
        else min(segment_size, fmt.FIRST_SEGMENT_SIZE)
    )
    return fmt.segment_size_for(wanted, group)


def successor(
    previous: Segment | None,
    *,
    size: int,
    log_id: int,
    lineage: int,
    base: int,
    end: int,
    checksum: int,
    floor: int,
) -> fmt.SegmentHeader:
    """Header of the segment after `previous`, whose records end at offset `end` with `checksum`."""
    return fmt.SegmentHeader(
        number=previous.number + 1 if previous else 1,
        size=size,
        log_id=log_id,
        lineage=lineage,
        previous_lineage=previous.header.lineage if previous else 0,
        base=base,
        previous_end=end,
        previous_checksum=checksum,
        floor=floor,
        created=0,
    )


def prepare(names: fmt.Names, number: int, size: int) -> None:
    """Reserve the space of a segment that will be needed soon.

    Raises:
        OSError: there is none.
    """
    path = names.new(number)
    files.unlink(path)
    fd = files.create(path)
    try:
        files.preallocate(fd, size)
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):  # the first error is the one to tell
            files.unlink(path)
        raise
    os.close(fd)


def _prepared(path: str, size: int) -> int | None:
    """Descriptor of a prepared file of exactly that size whose beginning is still zero."""
    try:
        fd = files.open_write(path)
    except OSError:
        return None
    if files.size_of(fd) == size and not any(files.read_at(fd, fmt.SEGMENT_HEADER_SIZE + 64, 0)):
        return fd
    os.close(fd)
    return None


def make(names: fmt.Names, header: fmt.SegmentHeader, records: bytes = b"") -> Segment:
    """Make a segment, with `records` in it, and let it appear.

    Raises:
        StorageError: it could not be made; nothing appeared.
        OSError: from the sync of the directory, after it appeared: the log must be poisoned.
    """
    path, target = names.new(header.number), names.segment(header.number)
    if files.is_regular(target) is not None:
        raise StorageError(
            f"{target}: something stands where the next segment belongs; move it away", path=target
        )
    try:
        fd = _prepared(path, header.size)
        if fd is None:
            prepare(names, header.number, header.size)
            fd = files.open_write(path)
        try:
            header = header._replace(created=files.changed_at_us(fd))
            files.write_at(fd, header.pack() + records, 0)
            files.sync_file(fd)
        finally:
            os.close(fd)
        files.move(path, target)
    except OSError as error:
        with contextlib.suppress(OSError):  # a leftover is removed by the next opening
            files.unlink(path)
        raise StorageError(
            f"{target}: the next segment of {header.size} bytes could not be made: {because(error)}; nothing"
            " was written",
            path=target,
        ) from error
    files.sync_directory(names.directory)
    return Segment(target, header)


def reframe(header: fmt.SegmentHeader, records: list[Record]) -> tuple[bytes, int]:
    """Bytes of whole groups as they are in a new segment, and the checksum of the last."""
    lsn, checksum = header.base, header.previous_checksum
    parts: list[bytes] = []
    for record in records:
        data, checksum = encode(
            record.type,
            record.flags,
            record.body[: record.head_len],
            record.tail_bytes,
            header.number,
            header.lineage,
            lsn,
            header.base,
            checksum,
        )
        parts.append(data)
        lsn += len(data)
    return b"".join(parts), checksum
