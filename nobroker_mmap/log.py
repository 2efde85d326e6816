"""The face of the log: open, lock, append, read, wait until durable, rotate, retire, close. Owns the order
of steps.

Invariant: a retirement is durable before the first file leaves.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgpack

from nobroker_mmap import control as ctl
from nobroker_mmap import files, locking, manifest, recovery
from nobroker_mmap import format as fmt
from nobroker_mmap.appending import Appending
from nobroker_mmap.chain import SegmentInfo
from nobroker_mmap.errors import LockTimeoutError, NobrokerError, Restart, StorageError, damaged
from nobroker_mmap.logs import logger
from nobroker_mmap.offsets import Piece, Row, RowsOf, RowSource
from nobroker_mmap.record import Record
from nobroker_mmap.segment import Segment
from nobroker_mmap.snapshot import Point, SnapshotWriter, write_at_close

if TYPE_CHECKING:
    from nobroker_mmap.check import Finding

LINEAGE, APPENDED, DURABLE, POISON, WAITERS = ctl.LINEAGE, ctl.APPENDED, ctl.DURABLE, ctl.POISON, ctl.WAITERS
ACTIVE, SNAPSHOT, FLOOR = ctl.ACTIVE, ctl.SNAPSHOT, ctl.FLOOR


class Log(Appending):
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
        indexed_types: record types that `rows` is asked for.
        moved_types: those of them that hold newer copies of existing keys.

    Raises:
        CorruptLogError, StorageError, LockTimeoutError, ValueError: see the methods of `Handle`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        name: str,
        *,
        segment_size: int = 16 * fmt.MIB,
        fsync: bool = True,
        lock_timeout: float = 10.0,
        read_only: bool = False,
        boot_id: str,
        rows: RowsOf,
        indexed_types: frozenset[int] = frozenset(),
        moved_types: frozenset[int] = frozenset(),
    ) -> None:
        self._snapshots = 0
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

    # -- facts --------------------------------------------------------------------------------------

    @property
    def log_id(self) -> int:
        """Random number of the log, the same in its copies."""
        return self._chain.newest.header.log_id

    @property
    def position(self) -> int:
        """LSN of the cursor: everything before it was given out or appended by this handle."""
        return self._chain.cursor

    @property
    def durable(self) -> int:
        """LSN up to which the log is known to be on the disk."""
        return int(self._words[DURABLE]) if self._words is not None else 0

    @property
    def path(self) -> str:
        """Directory and name, for messages."""
        return os.path.join(self.directory, self.name)

    @property
    def front_number(self) -> int:
        """Number of the first segment that counts."""
        return self._chain.floor

    @property
    def active_number(self) -> int:
        """Number of the segment that is written to now."""
        return self._chain.newest.number

    def bytes_used(self) -> int:
        """Bytes in use up to the cursor: headers and records of the segments that count."""
        segments = self._chain.segments
        front = segments[self._chain.floor]
        return self._chain.cursor - front.base + fmt.SEGMENT_HEADER_SIZE * len(segments)

    # -- reading by key -----------------------------------------------------------------------------

    def find(self, first_key: int, last_key: int) -> list[Piece]:
        """Where the newest copies of a range of keys (both inclusive) are, by key; keys nobody wrote are
        left out.

        Raises, as the other calls here, `Restart` when segments were retired under a reader without the
        lock.
        """
        try:
            return self._chain.find(first_key, last_key)
        except FileNotFoundError as error:
            raise self._gone(error) from None

    def find_one(self, key: int) -> Piece | None:
        """Where the newest copy of one key is; None when nobody wrote it. Raises as `find`."""
        try:
            return self._chain.find_one(key)
        except FileNotFoundError as error:
            raise self._gone(error) from None

    def read(self, where: Piece | tuple[Segment, int]) -> Record:
        """The verified record of a piece, or at (segment, offset).

        Raises:
            CorruptLogError: it does not verify.
        """
        try:
            return self._chain.record_at(where[0], where[1])
        except FileNotFoundError as error:
            raise self._gone(error) from None

    def read_at(self, lsn: int) -> Record:
        """The verified record at an LSN.

        Raises:
            CorruptLogError: there is none.
        """
        segment = self._chain.segment_of(lsn)
        if segment is None:
            if self.behind():
                raise Restart
            raise damaged(self.names.segment(self._chain.newest.number), 0, f"no segment holds LSN {lsn}")
        return self.read((segment, lsn - segment.origin))

    def segments(self) -> list[SegmentInfo]:
        """The segments that count, up to the cursor."""
        try:
            return self._chain.info()
        except FileNotFoundError as error:
            raise self._gone(error) from None

    def keys_of(self, number: int) -> tuple[tuple[int, int], list[Row]]:
        """Bounds of the keys that are new in a segment, (0, -1) for none; and the rows of its moved keys."""
        try:
            return self._chain.keys_of(number)
        except FileNotFoundError as error:
            raise self._gone(error) from None

    def moved_since(self, number: int, first: int, last: int) -> bool:
        """Has a segment after this one a copy of one of the keys `first`…`last`?"""
        try:
            return self._chain.moved_since(number, first, last)
        except FileNotFoundError as error:
            raise self._gone(error) from None

    def _gone(self, error: FileNotFoundError) -> Exception:
        """A segment's file is not there: it was retired meanwhile, or somebody removed it."""
        words = self._words
        if self.behind() or (words is not None and words[FLOOR] > self._chain.floor):
            return Restart()
        return damaged(str(error.filename), 0, "the file has gone")

    # -- compaction ---------------------------------------------------------------------------------

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
            logger().warning("%s", note)
        if self._words[SNAPSHOT] < chain.segments[first_counting].base:
            self._words[SNAPSHOT] = 0  # it speaks of segments that have left: the next one is due soon
        manifest.write(self.names, self._tag, first_counting, chain.segments.values())
        return end

    # -- snapshots ----------------------------------------------------------------------------------

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
        try:
            return self._snapshot_writer()
        except OSError as error:
            raise StorageError(
                f"{self.names.snapshot}: cannot be written: {error}", path=self.names.snapshot
            ) from error

    def _snapshot_writer(self) -> SnapshotWriter:
        chain = self._chain
        header = chain.reading.header
        self._snapshots += 1
        return SnapshotWriter(
            self.names,
            f"{self._tag}-{self._snapshots}",
            Point(self.log_id, header.lineage, chain.cursor, chain.checksum, chain.floor, header.number),
            chain.table_of(chain.reading),
            settle=lambda end: self.wait_durable(end, force=True),
            done=self._snapshot_written,
        )

    def _snapshot_written(self, lsn: int) -> bool:
        """Does a snapshot of this LSN still have a use? Called when it is about to get its name."""
        words = self._words
        if words is None or words[LINEAGE] != self._lineage or words[SNAPSHOT] > lsn:
            return False
        words[SNAPSHOT] = lsn
        return True

    # -- closing ------------------------------------------------------------------------------------

    def close(self, snapshot: Callable[[SnapshotWriter], None] | None = None) -> None:
        """Close the handle. The last one, when the lock is free within 1 s, leaves a snapshot and a CLOSE
        record.

        Idempotent; everything is released whatever happens. A failure to close cleanly is logged: it costs
        the next opening the proof that nothing was lost, no more.
        """
        if self.closed:
            return
        try:
            if not self.read_only and not self.forked:
                self._try_to_close_cleanly(snapshot)
        finally:
            if not self.mutex.acquire(timeout=max(1.0, self.lock_timeout)):
                raise LockTimeoutError(
                    f"{self.directory}: a thread is still working with the queue", pid=os.getpid()
                )
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
            logger().warning("%s: closed without a CLOSE record: %s", self.directory, error)
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
            write_at_close(self._snapshot_writer, snapshot)
        self._make_room(fmt.RECORD_HEADER_SIZE + 128)
        self.sync_now()
        head = {"b": self.boot_id, "i": files.inode_of(self._writing[1])} if self._writing else {}
        self.append(
            [(fmt.CLOSE, fmt.SKIPPABLE, msgpack.packb(head, unicode_errors="surrogatepass"), b"", [])]
        )
        self.sync_now()

    def _last_type(self) -> int:
        chain, opened = self._chain, self._opened
        if not chain.last_type and chain.cursor == opened.segments[-1].origin + opened.tail.end:
            return opened.tail.last_type
        return chain.last_type

    # -- waiting ------------------------------------------------------------------------------------

    def announce(self) -> int:
        """Say that somebody is about to wait; then look once more, then `wait` with the ticket this gives."""
        self.ensure_reachable()
        ticket = self._waiters.ticket()  # before the flag: whoever sees that must find somebody to wake
        if self._words is not None and not self.read_only:
            self._words[WAITERS] = 1
        return ticket

    def has_waiters(self) -> bool:
        """Does somebody, perhaps, wait?"""
        return self._words is not None and self._words[WAITERS] != 0

    def wait(self, timeout_s: float, ticket: int | None = None) -> bool:
        """Sleep until woken, or for a time; True when woken. Read-only handles poll.

        With a ticket, a `wake_local` since `announce` counts.
        """
        woken = self._waiters.wait(timeout_s, ticket)
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

    # -- looking after ------------------------------------------------------------------------------

    def check(self) -> "list[Finding]":
        """Read the whole log from the files and say what is wrong; changes nothing."""
        from nobroker_mmap.check import check_log  # here, with what it needs: opening a log must be quick

        return check_log(self.names, self._source, self.boot)

    def backup(self, target: str | os.PathLike[str]) -> str:
        """Copy the log, as it is at one moment, into an empty or new directory, while others work.

        Returns the directory.


        Raises:
            ValueError: the target is not empty.
            StorageError: it cannot be copied.
        """
        from nobroker_mmap.backup import copy_log

        return copy_log(self.names, os.fspath(target), self._words, self._chain.newest.number)
