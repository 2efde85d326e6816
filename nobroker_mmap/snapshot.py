"""Snapshots: the state machine's memory at one LSN, so that an opening replays little.

Invariants
- A snapshot speaks only of what is durable: it gets its name after the log was synced up to its LSN.
- It counts only when log id, lineage, its own checksum and the checksum of the last record before its LSN
  fit the log; else it is as if it were not there.
- It is written beside the old one, in slices, and replaces it at once.
"""

import io
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack
from xxhash import xxh3_64

from nobroker_mmap import files, locking
from nobroker_mmap import format as fmt
from nobroker_mmap.logs import logger
from nobroker_mmap.offsets import Table, table_of_bytes

_SLICE = 256 * fmt.KIB
_KIND = "nobroker"


class Snapshot(NamedTuple):
    """A snapshot whose own bytes verified; whether it fits the log is for the reader of the log to say."""

    lsn: int
    checksum: int
    lineage: int
    floor: int
    segment: int
    table: Table
    raw: bytes
    skip: int
    """Where the state machine's objects begin in it, behind the engine's own."""

    def objects(self) -> Iterator[Any]:
        """The state machine's objects."""
        yield from _unpacker(self.raw, self.skip)


def load(path: str, log_id: int) -> tuple[Snapshot | None, str | None]:
    """The snapshot in a file, or None and, when there is a file, why it does not count."""
    try:
        raw = files.read_file(path, fmt.MAX_SNAPSHOT_SIZE)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"the snapshot cannot be read ({error})"
    if len(raw) < fmt.CACHE_HEADER_SIZE:
        return None, "the snapshot is too short"
    magic, version, owner, lineage, lsn, checksum, size, _ = fmt.SNAPSHOT_HEADER.unpack_from(raw)
    if magic != fmt.SNAPSHOT_MAGIC or version != fmt.SNAPSHOT_VERSION:
        return None, "the snapshot is of another kind or version"
    if owner != log_id:
        return None, "the snapshot is of another log"
    body = memoryview(raw)[fmt.CACHE_HEADER_SIZE :]
    digest = xxh3_64(body)
    fields = (magic, version, owner, lineage, lsn, checksum, size)
    if size != len(body) or _seal(fields, digest) != raw[: fmt.CACHE_HEADER_SIZE]:
        return None, "the snapshot does not verify"
    unpacker = _unpacker(raw, fmt.CACHE_HEADER_SIZE)
    try:
        first = unpacker.unpack()
        table = table_of_bytes(first["rows"], first["e"], first["m"])
        floor, segment = int(first["floor"]), int(first["segment"])
    except (msgpack.UnpackException, ValueError, TypeError, KeyError):
        return None, "the snapshot does not begin with what it should"
    if table is None:
        return None, "the rows in the snapshot are not the number it says"
    skip = fmt.CACHE_HEADER_SIZE + unpacker.tell()
    return Snapshot(lsn, checksum, lineage, floor, segment, table, raw, skip), None


def _unpacker(raw: bytes, start: int) -> msgpack.Unpacker:
    """The objects from an offset on. It reads piece by piece: a snapshot may be large, one copy is enough."""
    stream = io.BytesIO(raw)
    stream.seek(start)
    return msgpack.Unpacker(stream, strict_map_key=False, unicode_errors="surrogatepass", max_buffer_size=0)


def _seal(fields: tuple[bytes, int, int, int, int, int, int], digest: xxh3_64) -> bytes:
    digest = digest.copy()
    digest.update(fmt.SNAPSHOT_HEADER.pack(*fields, 0)[:56])
    return fmt.SNAPSHOT_HEADER.pack(*fields, digest.intdigest())


def write_at_close(begin: "Callable[[], SnapshotWriter]", fill: "Callable[[SnapshotWriter], None]") -> None:
    """Write a snapshot in one go. That its file can't be written is logged: the log itself can do without."""
    try:
        writer = begin()
        try:
            fill(writer)
            writer.commit()
        finally:
            writer.abort()
    except OSError as error:
        logger().warning("the snapshot was not written (%s); the next opening reads more of the log", error)


class Point(NamedTuple):
    """The place in the log that a snapshot speaks of."""

    log_id: int
    lineage: int
    lsn: int
    checksum: int
    floor: int
    segment: int


class SnapshotWriter:
    """Writes one snapshot. `write` as often as needed, then `commit` or `abort`.

    The temporary file is locked while it is written, so an opening knows leftovers from work in progress.
    """

    def __init__(
        self,
        names: fmt.Names,
        tag: str,
        point: Point,
        table: Table,
        *,
        settle: Callable[[int], None],
        done: Callable[[int], bool],
    ) -> None:
        self._names = names
        self._point = point
        self._settle = settle
        self._done = done
        self._path = names.temporary(names.snapshot, tag)
        self._packer = msgpack.Packer(unicode_errors="surrogatepass", autoreset=True)
        self._digest = xxh3_64()
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._offset = fmt.CACHE_HEADER_SIZE
        self._fd: int | None = files.create(self._path)
        locking.try_lock(self._fd)
        rows = table.to_bytes()
        own = {
            "kind": _KIND,
            "floor": point.floor,
            "segment": point.segment,
            "e": len(table.enqueued),
            "m": len(table.moved),
            "rows": rows,
        }
        self.write(own)

    @property
    def lsn(self) -> int:
        """LSN up to which the snapshot speaks."""
        return self._point.lsn

    def write(self, obj: object) -> None:
        """Add one object that msgpack can pack.

        Raises:
            OSError: it cannot be written; call `abort`.
        """
        data = self._packer.pack(obj)
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size >= _SLICE:
            self._flush()

    def _flush(self) -> int:
        """Write what is pending; returns the descriptor."""
        fd = self._fd
        if fd is None:
            raise ValueError("this snapshot was finished before")
        data = b"".join(self._pending)
        self._pending, self._pending_size = [], 0
        self._digest.update(data)
        files.write_at(fd, data, self._offset)
        self._offset += len(data)
        return fd

    def commit(self) -> bool:
        """Put the snapshot in place. False when a newer one, or the end of its log, made it useless.

        Raises:
            OSError: it cannot be written; nothing changed.
            StorageError: the log cannot be synced.
        """
        point = self._point
        try:
            fd = self._flush()
            fields = (
                fmt.SNAPSHOT_MAGIC,
                fmt.SNAPSHOT_VERSION,
                point.log_id,
                point.lineage,
                point.lsn,
                point.checksum,
                self._offset - fmt.CACHE_HEADER_SIZE,
            )
            files.write_at(fd, _seal(fields, self._digest), 0)
            files.sync_file(fd)
            self._settle(point.lsn)
            if not self._done(point.lsn):
                return False
            try:
                files.publish(self._path, self._names.snapshot, self._names.directory)
            except (
                FileNotFoundError
            ):  # an opening took it for a leftover, where locks do not show that it is not
                return False
        finally:
            self.abort()
        return True

    def abort(self) -> None:
        """Leave everything as it was before. Harmless after `commit`."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
            if files.is_regular(self._path):
                files.unlink(self._path)
