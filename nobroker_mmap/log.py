"""The face of the log: open, lock, append, read, wait until durable, rotate, retire, close. Owns the order of steps.

Invariants
- Bytes are written before `appended` says so, and synced before `durable` does.
- One call appends one group with one write; it counts as a whole or not at all.
- A rotation syncs the sealed segment, then lets the next one appear, then tells the others.
- A retirement is durable before the first file leaves.
"""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgpack

from nobroker_mmap import backup as _backup
from nobroker_mmap import check as _check
from nobroker_mmap import control as ctl
from nobroker_mmap import commit, files, locking, manifest, recovery, rotation
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import SegmentInfo
from nobroker_mmap.check import Finding
from nobroker_mmap.control import ControlPage
from nobroker_mmap.errors import LockTimeoutError, NobrokerError, Restart, StorageError, damaged
from nobroker_mmap.offsets import Piece, Row, RowSource, RowsOf
from nobroker_mmap.reading import Reading
from nobroker_mmap.record import Record, encode
from nobroker_mmap.segment import Segment
from nobroker_mmap.snapshot import Point, SnapshotWriter

_log = logging.getLogger("nobroker_mmap")
LINEAGE, APPENDED, DURABLE, POISON, WAITERS = ctl.LINEAGE, ctl.APPENDED, ctl.DURABLE, ctl.POISON, ctl.WAITERS
ACTIVE, SNAPSHOT, FLOOR = ctl.ACTIVE, ctl.SNAPSHOT, ctl.FLOOR
_HEADER, _TERMINATOR, _LAST = fmt.RECORD_HEADER_SIZE, fmt.TERMINATOR, fmt.LAST_OF_GROUP

Part = tuple[int, int, bytes, bytes, list[Row] | None]
"""(type, flags, packed head, packed tail, rows or None to have the application's function asked)"""


class Log(Reading):
    """One named log in a directory.

    Args:
        directory: where its files are; made when missing.
        name: letters, digits, ".", "_", "-"; at most 100.
        segment_size: bytes of a full-grown segment, a power of two from 64 KiB to 256 MiB.
        fsync: whether `wait_durable` waits for the disk.
        lock_timeout: seconds to wait for the lock.
        read_only: change no byte and take no lock.
        boot_id: what tells this boot of the machine from others.
        rows: pure function of a record: its rows (first key, index in the record, count).
        max_bytes: for the caller's own check against `bytes_used()`.
        indexed_types, moved_types: record types that `rows` is asked for; the second, those that move existing keys.

    Raises:
        CorruptLogError, StorageError, LockTimeoutError, ValueError: see the methods of `Handle`.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        segment_size: int = 16 * fmt.MIB,
        fsync: bool = True,
        lock_timeout: float = 10.0,
        read_only: bool = False,
        boot_id: str,
        rows: RowsOf,
        max_bytes: int | None = None,
        indexed_types: frozenset[int] = frozenset(),
        moved_types: frozenset[int] = frozenset(),
    ) -> None:
        self.max_bytes = max_bytes
        self._prepared = 0
        self._snapshot_known = (0, fmt.MIN_SNAPSHOT_GROWTH)
        super().__init__(
            directory,
            name,
            segment_size=segment_size,
            fsync=fsync,
            lock_timeout=lock_timeout,
            read_only=read_only,
            boot_id=boot_id,
            source=RowSource(rows, indexed_types, moved_types),
        )

    # -- facts --------------------------------------------------------------------------------------------------

    @property
    def log_id(self) -> int:
        """Random number of the log, the same in its copies."""
        return self._chain.newest.header.log_id

    @property
    def control(self) -> ControlPage:
        """The control page, for the fields that are the layer above's."""
        if self._page is None:
            raise StorageError(f"{self.names.lock}: there is no control page", path=self.names.lock)
        return self._page

    @property
    def position(self) -> int:
        """LSN of the cursor: everything before it was given out or appended by this handle."""
        return self._chain.cursor

    @property
    def durable(self) -> int:
        """LSN up to which the log is known to be on the disk."""
        return int(self._words[DURABLE]) if self._words is not None else 0

    def bytes_used(self) -> int:
        """Size of the segment files that count, in bytes."""
        return sum(segment.size for segment in self._chain.segments.values())

    # -- appending ----------------------------------------------------------------------------------------------

    def append(self, parts: Sequence[Part]) -> tuple[list[int], int]:
        """Append one group. The caller holds the lock and has applied all records.

        Returns:
            The LSN of each record, and the end of the group for `wait_durable`.

        Raises:
            StorageError: it was not written (or, by its outcome, may have been).
            ValueError: the group is larger than 256 MiB; write it in chunks.
        """
        chain, words = self._chain, self._words
        lsn = chain.cursor
        if words[APPENDED] != lsn:
            raise RuntimeError("records of others must be applied before a group is appended")
        size = 0
        for part in parts:
            size += (_HEADER + len(part[2]) + len(part[3]) + 7) & ~7
        segment = chain.reading
        offset = lsn - segment.origin
        if offset + size > segment.size or segment is not chain.newest or words[ACTIVE] != segment.number:
            segment = self._make_room(size)
            lsn = chain.cursor
            offset = lsn - segment.origin
        data, lsns, checksum, rows = self._frame(parts, segment, lsn)
        room = segment.size - offset - size
        fd = self._writing[1]  # type: ignore[index]
        try:
            files.write_at(fd, data + _TERMINATOR if room >= 64 else data + bytes(room), offset)
        except OSError as error:
            raise self._write_failed(error, fd, segment, offset, len(data) + min(64, room)) from error
        end = lsn + size
        words[APPENDED] = end
        chain.cursor, chain.checksum, chain.chained = end, checksum, True
        chain.last_type = parts[-1][0]
        for at, found, moved in rows:
            chain.table.add(at, found, moved=moved)
        if not locking.in_place(self._lock_fd, 0):  # type: ignore[arg-type]
            raise StorageError(
                f"{self.names.lock}: the lock file was removed while a group was written; whether it counts is decided"
                " by whoever made the new one",
                path=self.names.lock,
                outcome="unknown",
            )
        if offset + size > segment.size >> 1 and self._prepared <= segment.number:
            self._prepare(segment)
        return lsns, end

    def _frame(
        self, parts: Sequence[Part], segment: Segment, lsn: int
    ) -> tuple[bytes, list[int], int, list[tuple[int, list[Row], bool]]]:
        """Bytes of a group, the LSNs of its records, the last checksum, and the rows."""
        source, checksum, durable = self._source, self._chain.checksum, self._words[DURABLE]
        number, lineage, origin = segment.place
        lsns: list[int] = []
        rows: list[tuple[int, list[Row], bool]] = []
        blobs: list[bytes] = []
        left = len(parts)
        if not left:
            raise ValueError("a group has at least one record")
        for kind, flags, head, tail, found in parts:
            left -= 1
            previous = checksum
            if not left:
                flags |= _LAST
            blob, checksum = encode(kind, flags, head, tail, number, lineage, lsn, durable, previous)
            if found is None and kind in source.indexed:
                found = source.rows(
                    Record(lsn, lsn + len(blob), kind, flags, len(head), head + tail, number, lsn - origin, checksum,
                           durable, previous)
                )  # fmt: skip
            if found:
                rows.append((lsn - origin, found, kind in source.moved))
            lsns.append(lsn)
            blobs.append(blob)
            lsn += len(blob)
        return blobs[0] if len(blobs) == 1 else b"".join(blobs), lsns, checksum, rows

    def _write_failed(self, error: OSError, fd: int, segment: Segment, offset: int, size: int) -> StorageError:
        """Make sure that nothing of a failed write can be seen, and say whether that worked."""
        outcome: Any = "not written"
        try:
            files.zero_range(fd, offset, offset + size)
        except OSError:
            outcome = "unknown"
        return StorageError(
            f"{segment.path}: the write failed: {error}; free some space or look after the disk, then try again",
            path=segment.path,
            outcome=outcome,
        )

    # -- rotation -----------------------------------------------------------------------------------------------

    def _make_room(self, size: int) -> Segment:
        """Have a newest segment, with the cursor in it, that takes a group of `size` bytes."""
        if size > fmt.MAX_GROUP_SIZE:
            raise ValueError(f"a group of {size} bytes; chunk it: one call writes at most {fmt.MAX_GROUP_SIZE} bytes")
        chain = self._chain
        if self._words[ACTIVE] > chain.newest.number:
            self._catch_up_segments()
        while chain.reading is not chain.newest and chain.step():
            pass
        self._open_writer()
        if chain.offset + size > chain.reading.size:
            self._rotate(size)
        return chain.reading

    def seal(self) -> None:
        """Begin a new segment now. The caller holds the lock and has applied all records."""
        self._make_room(0)
        self._rotate(0)

    def _rotate(self, group: int) -> None:
        chain, words = self._chain, self._words
        sealed = chain.reading
        self.sync_now()
        header = rotation.successor(
            sealed, size=rotation.next_size(self.segment_size, sealed.size, group), log_id=sealed.header.log_id,
            lineage=self._lineage, base=chain.cursor, end=chain.offset, checksum=chain.checksum, floor=chain.floor,
        )  # fmt: skip
        try:
            following = rotation.make(self.names, header)
        except OSError as error:
            words[POISON] = 1
            raise commit.sync_failed(self.names.directory, error) from error
        end = chain.offset
        words[ACTIVE] = following.number
        sealed.end = end
        chain.write_sidecar(sealed, chain.table)
        chain.join(following)
        chain.step()
        self._open_writer()
        manifest.write(self.names, self._tag, chain.floor, chain.segments.values())

    def _prepare(self, segment: Segment) -> None:
        """Reserve the next segment while there is room, so that a full disk still takes acknowledgements."""
        self._prepared = segment.number + 1
        size = rotation.next_size(self.segment_size, segment.size, 0)
        try:
            if files.is_regular(self.names.new(self._prepared)) is None:
                rotation.prepare(self.names, self._prepared, size)
        except OSError as error:
            _log.warning("%s: no space for the next segment yet (%s)", self.names.new(self._prepared), error)

    # -- durability ---------------------------------------------------------------------------------------------

    def wait_durable(self, end: int, *, force: bool = False) -> None:
        """Return when everything before `end` is on the disk. The caller does not hold the lock.

        With `fsync=False` it returns at once unless `force`.

        Raises:
            StorageError: with outcome "unknown": a sync failed.
        """
        words = self._words
        if words is None:
            self._refuse_closed()
            return
        if words[DURABLE] >= end and words[LINEAGE] == self._lineage and not words[POISON]:
            return
        if not (self.fsync or force):
            return
        group_commit = self._commit
        if group_commit is None or self.forked:
            self._refuse_closed()
            return
        group_commit.run(lambda: self._is_durable(end), lambda: self._sync(end))

    def _is_durable(self, end: int) -> bool:
        words = self._words
        if words is None:
            raise StorageError(f"{self.directory}: closed before the sync", path=str(self.directory), outcome="unknown")
        if words[POISON] or words[LINEAGE] != self._lineage:
            error = self._refusal("a sync of it failed, or it was repaired, before this was durable")
            error.outcome = "unknown"
            raise error
        return bool(words[DURABLE] >= end)

    def _sync(self, end: int) -> None:
        """Sync the newest segment and publish what that made durable."""
        words, writing = self._words, self._writing
        target = words[APPENDED]
        if writing is None or words[ACTIVE] != writing[0]:
            # Others rotated since: what this handle appended is in a segment that was synced before.
            if self._is_durable(end):
                return
            raise StorageError(
                f"{self.directory}: the log moved on before this was durable",
                path=str(self.directory),
                outcome="unknown",
            )
        try:
            files.sync_data(writing[1])
        except OSError as error:
            words[POISON] = 1
            raise commit.sync_failed(self.names.segment(writing[0]), error) from error
        self._is_durable(end)
        if words[DURABLE] < target:
            words[DURABLE] = target

    def sync_now(self) -> None:
        """Make everything appended durable. The caller holds the lock and has applied all records."""
        self._open_writer()
        self.wait_durable(self._words[APPENDED], force=True)

    # -- reading by key -----------------------------------------------------------------------------------------

    def find(self, first_key: int, last_key: int) -> list[Piece]:
        """Where the newest copies of a range of keys (both inclusive) are, by key; keys nobody wrote are left out."""
        return self._chain.find(first_key, last_key)

    def read(self, where: Piece | tuple[Segment | int, int]) -> Record:
        """The verified record of a piece, or at (segment, offset).

        Raises:
            CorruptLogError: it does not verify.
        """
        segment = where[0]
        if isinstance(segment, int):
            known = self._chain.segments.get(segment)
            if known is None:
                path = self.names.segment(segment)
                raise damaged(path, where[1], "the segment does not count, but something points to it")
            segment = known
        return self._chain.record_at(segment, where[1])

    def read_at(self, lsn: int) -> Record:
        """The verified record at an LSN.

        Raises:
            CorruptLogError: there is none.
        """
        segment = self._chain.segment_of(lsn)
        if segment is None:
            raise damaged(self.names.segment(self._chain.newest.number), 0, f"no segment holds LSN {lsn}")
        return self._chain.record_at(segment, lsn - segment.origin)

    def segments(self) -> list[SegmentInfo]:
        """The segments that count, up to the cursor."""
        return self._chain.info()

    def rows_of(self, number: int) -> tuple[list[Row], list[Row]]:
        """(rows of new keys, rows of moved keys) of a segment, each (first key, index, count), by key."""
        return self._chain.rows_of(number)

    # -- compaction ---------------------------------------------------------------------------------------------

    def retire(self, first_counting: int, head: dict[str, Any]) -> int:
        """Let all segments below `first_counting` leave. What must be kept of them was appended before.

        The caller holds the lock and has applied all records. Returns the end LSN of the RETIRE record.

        Raises:
            ValueError: the number is not that of a segment that counts.
            StorageError: nothing left.
        """
        chain = self._chain
        if first_counting not in chain.segments:
            raise ValueError(f"segment {first_counting} is not one of {list(chain.segments)}")
        self.sync_now()
        packed = msgpack.packb({**head, "f": first_counting}, unicode_errors="surrogatepass")
        _, end = self.append([(fmt.RETIRE, 0, packed, b"", [])])
        self.sync_now()
        self._words[FLOOR] = first_counting
        chain.drop_before(first_counting)
        notes: list[str] = []
        try:
            recovery.remove_retired(self.names, first_counting, notes)
        except OSError as error:
            notes.append(f"{self.directory}: retired segments may come back as leftovers ({error})")
        for note in notes:
            _log.warning("%s", note)
        manifest.write(self.names, self._tag, first_counting, chain.segments.values())
        return end

    # -- snapshots ----------------------------------------------------------------------------------------------

    def snapshot_due(self) -> bool:
        """Did the log grow, since the last snapshot, by its size and at least 4 MiB?"""
        words = self._words
        if words is None or self.read_only:
            return False
        last = words[SNAPSHOT]
        grown = words[APPENDED] - last
        if grown <= fmt.MIN_SNAPSHOT_GROWTH:
            return False
        if self._snapshot_known[0] != last:
            size = os.stat(self.names.snapshot).st_size if files.is_regular(self.names.snapshot) else 0
            self._snapshot_known = (last, size)
        return bool(grown > self._snapshot_known[1])

    def begin_snapshot(self) -> SnapshotWriter:
        """Write a snapshot of the state at the cursor. The caller holds the mutex; writing needs no lock.

        Raises:
            StorageError: the temporary file cannot be made.
        """
        chain = self._chain
        lsn = chain.cursor
        segment = chain.reading
        point = Point(self.log_id, segment.header.lineage, lsn, chain.checksum, chain.floor, segment.number)
        self._snapshots = getattr(self, "_snapshots", 0) + 1
        try:
            return SnapshotWriter(
                self.names, f"{self._tag}-{self._snapshots}", point, chain.table_of(segment),
                settle=lambda end: self.wait_durable(end, force=True), done=self._snapshot_written,
            )  # fmt: skip
        except OSError as error:
            raise StorageError(f"{self.names.snapshot}: cannot be written: {error}", path=self.names.snapshot) from error

    def _snapshot_written(self, lsn: int) -> bool:
        """Does a snapshot of this LSN still have a use? Called when it is about to get its name."""
        words = self._words
        if words is None or words[LINEAGE] != self._lineage or words[SNAPSHOT] > lsn:
            return False
        words[SNAPSHOT] = lsn
        return True

    # -- closing ------------------------------------------------------------------------------------------------

    def close(self, snapshot: Callable[[SnapshotWriter], None] | None = None) -> None:
        """Close the handle. The last one, when the lock is free within 1 s, leaves a snapshot and a CLOSE record.

        Idempotent; everything is released whatever happens. A failure to close cleanly is logged: it costs the next
        opening the proof that nothing was lost, no more.
        """
        if self.closed:
            return
        try:
            if not self.read_only and not self.forked:
                self._try_to_close_cleanly(snapshot)
        finally:
            if not self.mutex.acquire(timeout=max(1.0, self.lock_timeout)):
                raise LockTimeoutError(f"{self.directory}: a thread is still working with the queue", pid=os.getpid())
            try:
                self._release_files()
            finally:
                self.mutex.release()

    def _try_to_close_cleanly(self, snapshot: Callable[[SnapshotWriter], None] | None) -> None:
        timeout, self.lock_timeout = self.lock_timeout, min(1.0, self.lock_timeout)
        try:
            self.lock()
            try:
                self._close_cleanly(snapshot)
            finally:
                self.unlock()
        except (NobrokerError, Restart, OSError) as error:
            _log.warning("%s: closed without a CLOSE record: %s", self.directory, error)
        finally:
            self.lock_timeout = timeout

    def _close_cleanly(self, snapshot: Callable[[SnapshotWriter], None] | None) -> None:
        if self._open_fd is None or not locking.try_lock(self._open_fd):
            return
        current = not self.behind()
        for _ in self.records():
            continue
        chain, words = self._chain, self._words
        if self._last_type() == fmt.CLOSE:
            return
        if current and snapshot is not None and words[SNAPSHOT] != chain.cursor:
            writer = self.begin_snapshot()
            try:
                snapshot(writer)
                writer.commit()
            finally:
                writer.abort()
        self._make_room(_HEADER + 128)
        self.sync_now()
        head = {"b": self.boot_id, "i": files.inode_of(self._writing[1])} if self._writing else {}
        self.append([(fmt.CLOSE, fmt.SKIPPABLE, msgpack.packb(head, unicode_errors="surrogatepass"), b"", [])])
        self.sync_now()

    def _last_type(self) -> int:
        chain, opened = self._chain, self._opened
        if not chain.last_type and chain.cursor == opened.segments[-1].origin + opened.tail.end:
            return opened.tail.last_type
        return chain.last_type

    # -- waiting ------------------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Say that somebody is about to wait; then look once more, then `wait`."""
        if self._words is not None and not self.read_only:
            self._words[WAITERS] = 1

    def wait(self, timeout_s: float) -> bool:
        """Sleep until woken, or for a time; True when woken. Read-only handles poll."""
        woken = self._waiters.wait(timeout_s)
        self.announce()  # others may still be waiting, and one wake-up cleared the flag for all
        return woken

    def notify(self) -> None:
        """Wake one waiter, when there is any: something became available."""
        words = self._words
        if words is not None and words[WAITERS]:
            words[WAITERS] = 0
            self._waiters.send()

    def wake_local(self) -> None:
        """Wake all waiters of this handle."""
        self._waiters.wake_local()

    # -- looking after ------------------------------------------------------------------------------------------

    def check(self) -> list[Finding]:
        """Read the whole log from the files and say what is wrong; changes nothing."""
        return _check.check_log(self.names, self._source, self.boot)

    def backup(self, target: Path) -> Path:
        """Copy the log, as it is at one moment, into an empty or new directory, while others work.

        Raises:
            ValueError: the target is not empty.
            StorageError: it cannot be copied.
        """
        return _backup.copy_log(self.names, Path(target), self._words, self._chain.newest.number)


