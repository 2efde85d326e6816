"""Bytes to record and back. No I/O, no clock.

Invariants
- A record is believed only when magic, segment number, lineage, position and checksum all fit, so a stale,
  copied, moved or foreign record never passes. Its bytes are copied once and the copy is checked.
- Every record verifies alone; the chain of checksums is the reader's business, so one bad record hides none
  after it.
- Lengths are bounded before anything is decoded, and only a head whose record verified is decoded.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack
from xxhash import xxh3_64, xxh3_64_intdigest

from nobroker_mmap import format as fmt
from nobroker_mmap.errors import CorruptLogError

_pack_checked = fmt.CHECKED_HEADER.pack
_unpack_header = fmt.RECORD_HEADER.unpack_from
_HEADER = fmt.RECORD_HEADER_SIZE
_CHECKED = fmt.CHECKED_SIZE
_MAGIC = fmt.RECORD_MAGIC
_PADDING = fmt.PADDING
_new = tuple.__new__
_SMALL = 16 * fmt.KIB
"""Up to this size one more copy is cheaper than a streaming checksum."""


class _Fields(NamedTuple):
    lsn: int
    end: int
    type: int
    flags: int
    head_len: int
    body: bytes
    segment: int
    offset: int
    checksum: int
    durable: int
    previous: int


class Record(_Fields):
    """One verified record.

    `lsn` is where it begins and `end` where the next may; `offset` is its place in the file of segment
    `segment`; `previous` is the checksum of the record before it; `durable` the LSN up to which all was
    known to be on the disk.
    """

    _head: dict[str, Any] | None = None
    fits = False
    """For the layer above: its own check of the head was passed."""

    def head(self) -> dict[str, Any]:
        """The decoded head: for all who ask the same object, to be read only.

        Raises:
            CorruptLogError: the record verified but its head is not a map of the kind that is written here.
        """
        if self._head is not None:
            return self._head
        try:
            head = msgpack.unpackb(
                self.body[: self.head_len],
                strict_map_key=False,
                unicode_errors="surrogatepass",
                max_array_len=len(self.body),
                max_map_len=len(self.body),
                max_ext_len=len(self.body),
            )
        except (ValueError, msgpack.UnpackException, RecursionError) as error:
            raise self._bad(f"its head does not decode ({error})") from error
        if type(head) is not dict:
            raise self._bad("its head is not a map")
        self._head = head
        return head

    @property
    def tail_bytes(self) -> bytes:
        """What follows the head in the body, packed."""
        return self.body[self.head_len :]

    def _bad(self, why: str) -> CorruptLogError:
        where = f"segment {self.segment:06d}"
        return CorruptLogError(
            f"{where}: the record at offset {self.offset} verifies but {why}; it was not written by"
            " this library",
            path=where,
            offset=self.offset,
        )


class Place(NamedTuple):
    """What a record must name to belong to a segment."""

    number: int
    lineage: int
    origin: int
    """Base of the segment less the size of its header: LSN = origin + offset."""


def _checksum_of(header: bytes, head: bytes, tail: bytes) -> int:
    """Checksum over the first 56 bytes of a header and a large body, which is not copied for it."""
    digest = xxh3_64(header)
    digest.update(head)
    digest.update(tail)
    return int(digest.intdigest())


def encode(
    type: int,
    flags: int,
    head: bytes,
    tail: bytes,
    segno: int,
    lineage: int,
    lsn: int,
    durable: int,
    prev: int,
    after: bytes = b"",
) -> tuple[bytes, int]:
    """Frame one record; returns its bytes, padding and what comes `after` included, and its checksum."""
    head_size = len(head)
    size = head_size + len(tail)
    header = _pack_checked(_MAGIC, type, flags, 0, size, head_size, segno, 0, lineage, lsn, durable, prev)
    checksum: int
    if size <= _SMALL:
        checksum = xxh3_64_intdigest(header + head + tail)
    else:
        checksum = _checksum_of(header, head, tail)
    framed = (header, checksum.to_bytes(8, "little"), head, tail, _PADDING[size & 7], after)
    return b"".join(framed), checksum


def size_at(buffer: bytes, at: int) -> int:
    """Size of the record that begins at `at`, padding included, by its header alone; 0 when there is none."""
    if buffer[at : at + 4] != _MAGIC or len(buffer) - at < _HEADER:
        return 0
    size = int.from_bytes(buffer[at + 8 : at + 12], "little")
    return (_HEADER + size + 7) & ~7 if size <= fmt.MAX_BODY_SIZE else 0


def parse(buffer: bytes, at: int, place: Place, offset: int) -> Record | None:
    """The record at `at` of a buffer, which is at `offset` of the file; None when nothing verifies there."""
    if len(buffer) - at < _HEADER:
        return None
    magic, kind, flags, zero, size, head_len, number, zero2, lineage, lsn, durable, previous, checksum = (
        _unpack_header(buffer, at)
    )
    if (
        magic != _MAGIC
        or number != place.number
        or lineage != place.lineage
        or lsn != place.origin + offset
        or head_len > size
        or zero
        or zero2
    ):
        return None
    start = at + _HEADER
    body = buffer[start : start + size]
    if len(body) != size:
        return None
    header = buffer[at : at + _CHECKED]
    if size <= _SMALL:
        if xxh3_64_intdigest(header + body) != checksum:
            return None
    elif _checksum_of(header, body, b"") != checksum:
        return None
    end = lsn + ((size + _HEADER + 7) & ~7)
    return _new(Record, (lsn, end, kind, flags, head_len, body, number, offset, checksum, durable, previous))


Reader = Callable[[int, int], bytes]
"""(offset, length) -> bytes of a segment; fewer than asked for only at its end."""

_BLOCK = 256 * fmt.KIB


class Scan:
    """Iterates the records of one segment that follow each other from an offset and verify.

    Stops before the first position that holds none. `offset` and `checksum` then say where, and after what.
    """

    def __init__(
        self, read: Reader, place: Place, start: int, stop: int, checksum: int, *, chained: bool = True
    ) -> None:
        self.offset = start
        self.checksum = checksum
        self._chained = chained
        self._read = read
        self._place = place
        self._stop = stop

    def __iter__(self) -> Iterator[Record]:
        """The loop of every replay: kept to locals, because a million records come through here."""
        number, lineage, origin = self._place
        offset, checksum, chained = self.offset, self.checksum, self._chained
        block, block_at, length = b"", offset, 0
        while True:
            at = offset - block_at
            if length - at < _HEADER:
                block, block_at, at = self._fetch(offset), offset, 0
                length = len(block)
                if length < _HEADER:
                    return
            magic, kind, flags, zero, size, head_len, segno, zero2, owner, lsn, durable, previous, check = (
                _unpack_header(block, at)
            )
            start = at + _HEADER
            if magic != _MAGIC or segno != number or owner != lineage or lsn != origin + offset:
                return
            if start + size > length:
                block, block_at, at = self._fetch(offset), offset, 0
                length, start = len(block), _HEADER
                if start + size > length:
                    return
            body = block[start : start + size]
            if size <= _SMALL:
                if xxh3_64_intdigest(block[at : at + _CHECKED] + body) != check:
                    return
            elif _checksum_of(block[at : at + _CHECKED], body, b"") != check:
                return
            if head_len > size or zero or zero2 or (previous != checksum and chained and kind != fmt.GAP):
                return
            step = (size + _HEADER + 7) & ~7
            if offset + step > self._stop:
                return
            record = _new(
                Record,
                (lsn, lsn + step, kind, flags, head_len, body, number, offset, check, durable, previous),
            )
            self.offset = offset = offset + step
            self.checksum = checksum = check
            chained = kind != fmt.GAP
            yield record

    def _fetch(self, offset: int) -> bytes:
        """A block that begins with a record, and holds all of it when it says a possible size."""
        room = self._stop - offset
        block = self._read(offset, min(_BLOCK, room)) if room >= _HEADER else b""
        size = size_at(block, 0)
        if len(block) < size <= room:
            block = self._read(offset, size)
        return block
