"""Appending a group, rotating, and making things durable.

Invariants
- Bytes are written before `appended` says so, and synced before `durable` does.
- One call appends one group with one write; it counts as a whole or not at all.
- A rotation syncs the sealed segment, then lets the next one appear, then tells the others.
- After a write that failed nothing of it can be seen, whatever happens then, or the error says that this is
  not known.
"""

from collections.abc import Sequence
from typing import Any

from nobroker_mmap import commit, files, locking, manifest, rotation
from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from nobroker_mmap.control import Tip
from nobroker_mmap.errors import StorageError
from nobroker_mmap.logs import logger
from nobroker_mmap.offsets import Row
from nobroker_mmap.reading import Reading
from nobroker_mmap.record import encode
from nobroker_mmap.segment import Segment

LINEAGE, APPENDED, DURABLE, POISON, ACTIVE = ctl.LINEAGE, ctl.APPENDED, ctl.DURABLE, ctl.POISON, ctl.ACTIVE
_APPENDED_AGAIN = ctl.APPENDED_AGAIN
_HEADER, _TERMINATOR, _LAST = fmt.RECORD_HEADER_SIZE, fmt.TERMINATOR, fmt.LAST_OF_GROUP

Part = tuple[int, int, bytes, bytes, list[Row] | None]
"""(type, flags, packed head, packed tail, rows or None to have the application's function asked)"""


class Appending(Reading):
    """The part of a log's face that writes."""

    _prepared = 0
    """Highest number of a segment whose space this handle has tried to reserve."""

    # -- appending ----------------------------------------------------------------------------------

    def append(self, parts: Sequence[Part]) -> tuple[list[int], int]:
        """Append one group. The caller holds the lock and has applied all records.

        Returns:
            The LSN of each record, and the end of the group for `wait_durable`.

        Raises:
            StorageError: it was not written (or, by its outcome, may have been).
            ValueError: the group is larger than 256 MiB; write it in chunks.
        """
        size = 0
        for part in parts:
            size += (_HEADER + len(part[2]) + len(part[3]) + 7) & ~7
        segment = self._segment_for(size)
        chain = self._chain
        lsn = chain.cursor
        data, checksum, lsns = self._frame(parts, segment, lsn)
        room = segment.last_lsn - lsn - size
        data += _TERMINATOR if room >= len(_TERMINATOR) else bytes(room)
        self._land(segment, data, lsn, lsn + size, checksum, parts[-1][0])
        for part, at in zip(parts, lsns, strict=True):
            rows, kind = part[4], part[0]
            if rows is None and kind in self._source.indexed:
                rows = self._source.rows(segment.record_at(at - segment.origin))
            if rows:
                chain.table.add(at - segment.origin, rows, moved=kind in self._source.moved)
        self._landed(segment, lsn + size)
        return lsns, lsn + size

    def append_one(self, kind: int, head: bytes, tail: bytes, rows: Sequence[Row]) -> tuple[int, int]:
        """As `append`, for a group of one record whose rows are given: most groups are like that.

        Returns:
            The LSN of the record, and its end.
        """
        chain, words = self._chain, self._words
        segment, lsn = chain.reading, chain.cursor
        end = lsn + ((_HEADER + len(head) + len(tail) + 7) & ~7)
        if end > segment.roomy or words[APPENDED] != lsn or words[ACTIVE] != segment.number:
            lsns, end = self.append([(kind, 0, head, tail, list(rows))])
            return lsns[0], end
        number, lineage = segment.ids
        data, checksum = encode(
            kind, _LAST, head, tail, number, lineage, lsn, words[DURABLE], chain.checksum, _TERMINATOR
        )
        self._land(segment, data, lsn, end, checksum, kind)
        if rows:
            chain.table.add(lsn - segment.origin, rows, moved=kind in self._source.moved)
        self._landed(segment, end)
        return lsn, end

    # -- appending without having read everything ----------------------------------------------------

    def lag(self) -> int:
        """Bytes that others appended and this handle has not read; 0 also for a handle to be opened anew.

        Raises:
            StorageError: the lock file was cut short.
        """
        self.ensure_reachable()
        words = self._words
        if words is None or self.forked or words[ctl.LINEAGE] != self._lineage:
            return 0
        return int(words[APPENDED]) - self._chain.cursor

    def tip(self) -> Tip | None:
        """The end of the log, when it can be appended to by what the control page says of it. The caller
        holds the lock. Asking makes the others say it from now on.
        """
        page = self.control
        words = page.words
        tip = page.tip()
        if tip is None:
            words[ctl.TIP_WANTED] = ctl.YES
        if words[ctl.UNPROVEN] or words[ACTIVE] != self._chain.newest.number or self.ends_closed:
            return None
        return tip

    def say_tip(self, next_number: int, reserved: int, time: int) -> None:
        """Say what the log ends with, where somebody wants to know. The caller holds the lock and has applied
        all records.
        """
        page = self.control
        if page.words[ctl.TIP_WANTED]:
            chain = self._chain
            page.say_tip(Tip(chain.cursor, chain.checksum, next_number, reserved, time))

    def append_at_tip(self, kind: int, head: bytes, tail: bytes, tip: Tip, numbers: int, time: int) -> int:
        """Append a group of one record that gives out `numbers`, behind what this handle has read; it reads
        it later, as if others had written it.

        Returns:
            The end of the record; 0 when it does not fit: nothing was written.

        Raises:
            StorageError: as `append`.
        """
        segment, page = self._chain.newest, self.control
        end = tip.lsn + ((_HEADER + len(head) + len(tail) + 7) & ~7)
        if end > segment.kept:
            return 0
        self._open_writer()  # a reading that failed may have met the newest segment and no more
        number, lineage = segment.ids
        data, checksum = encode(
            kind, _LAST, head, tail, number, lineage, tip.lsn, self._words[DURABLE], tip.checksum, _TERMINATOR
        )
        self._put(segment, data, tip.lsn, end)
        page.say_tip(Tip(end, checksum, tip.next + numbers, tip.reserved, time))
        self._landed(segment, end)
        return end

    def _segment_for(self, size: int) -> Segment:
        """The newest segment, with the cursor in it and room for a group."""
        chain, words = self._chain, self._words
        cursor, segment = chain.cursor, chain.reading
        if words[APPENDED] != cursor:
            raise RuntimeError("records of others must be applied before a group is appended")
        if cursor + size > segment.last_lsn or segment is not chain.newest or words[ACTIVE] != segment.number:
            return self._make_room(size)
        return segment

    def _land(self, segment: Segment, data: bytes, lsn: int, end: int, checksum: int, kind: int) -> None:
        self._put(segment, data, lsn, end)
        chain = self._chain
        chain.cursor, chain.checksum, chain.chained, chain.last_type = end, checksum, True, kind

    def _put(self, segment: Segment, data: bytes, lsn: int, end: int) -> None:
        """Write a group with the zeros that end it, then say that it is there."""
        self._unfinished = True
        fd = self._writing[1]  # type: ignore[index]
        try:
            files.write_at(fd, data, lsn - segment.origin)
        except OSError as error:
            raise self._write_failed(error, fd, segment, lsn - segment.origin, len(data)) from error
        words = self._words
        words[APPENDED] = words[_APPENDED_AGAIN] = end
        self._unfinished = False

    def _landed(self, segment: Segment, end: int) -> None:
        """What is looked at after every group."""
        if not locking.in_place(self._lock_fd, 0):
            raise self._lock_file_went()
        if end > segment.middle and self._prepared <= segment.number:
            self._prepare(segment)

    def _frame(self, parts: Sequence[Part], segment: Segment, lsn: int) -> tuple[bytes, int, list[int]]:
        """Bytes of a group, the checksum of its last record, and the LSN of each."""
        checksum, durable = self._chain.checksum, self._words[DURABLE]
        number, lineage = segment.ids
        lsns: list[int] = []
        blobs: list[bytes] = []
        left = len(parts)
        if not left:
            raise ValueError("a group has at least one record")
        for kind, flags, head, tail, _ in parts:
            left -= 1
            blob, checksum = encode(
                kind, flags if left else flags | _LAST, head, tail, number, lineage, lsn, durable, checksum
            )
            lsns.append(lsn)
            blobs.append(blob)
            lsn += len(blob)
        return b"".join(blobs), checksum, lsns

    def _lock_file_went(self) -> StorageError:
        return StorageError(
            f"{self.names.lock}: the lock file was removed while a group was written; whether the group"
            " counts is decided by whoever made the new one. Open the queue again and look",
            path=self.names.lock,
            outcome="unknown",
        )

    def _write_failed(
        self, error: OSError, fd: int, segment: Segment, offset: int, size: int
    ) -> StorageError:
        """Make sure that nothing of a failed write can be seen, not after a power cut either, and say whether
        that worked.
        """
        outcome: Any = "not written"
        try:
            files.zero_range(fd, offset, offset + size)
        except OSError:
            outcome = "unknown"
        else:
            try:
                files.sync_data(fd)
            except OSError as failed:
                self._words[POISON] = ctl.YES
                return commit.sync_failed(segment.path, failed)
        return StorageError(
            f"{segment.path}: the write failed: {error}; free some space or look after the disk, then"
            " try again",
            path=segment.path,
            outcome=outcome,
        )

    # -- rotation -----------------------------------------------------------------------------------

    def _make_room(self, size: int) -> Segment:
        """Have a newest segment, with the cursor in it, that takes a group of `size` bytes."""
        if size > fmt.MAX_GROUP_SIZE:
            raise ValueError(
                f"a group of {size} bytes; chunk it: one call writes at most {fmt.MAX_GROUP_SIZE} bytes"
            )
        chain = self._chain
        if self._words[ACTIVE] > chain.newest.number:
            self._catch_up_segments()
        while chain.reading is not chain.newest:
            chain.step()
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
        self._unfinished = True
        header = rotation.successor(
            sealed,
            size=rotation.next_size(self.segment_size, sealed.size, group),
            log_id=sealed.header.log_id,
            lineage=self._lineage,
            base=chain.cursor,
            end=chain.offset,
            checksum=chain.checksum,
            floor=chain.floor,
        )
        try:
            following = rotation.make(self.names, header)
        except OSError as error:
            words[POISON] = ctl.YES
            raise commit.sync_failed(self.names.directory, error) from error
        end = chain.offset
        words[ACTIVE] = words[ctl.ACTIVE_AGAIN] = following.number
        sealed.end = end
        chain.write_sidecar(sealed, chain.table)
        chain.join(following)
        chain.step()
        self._open_writer()
        self._unfinished = False
        manifest.write(self.names, self._tag, chain.floor, chain.segments.values())

    def _prepare(self, segment: Segment) -> None:
        """Reserve the next segment while there is room, so that a full disk still takes acknowledgements."""
        self._prepared = segment.number + 1
        size = rotation.next_size(self.segment_size, segment.size, 0)
        try:
            if files.is_regular(self.names.new(self._prepared)) is None:
                rotation.prepare(self.names, self._prepared, size)
        except OSError as error:
            logger().warning(
                "%s: no space for the next segment yet (%s)", self.names.new(self._prepared), error
            )

    def keep_room(self, size: int) -> None:
        """Refuse a group of `size` bytes that can wait when it would take the last eighth of a segment and
        no next one can be reserved: without acknowledgements nothing could be worked off on a full disk.

        Raises:
            StorageError: the disk is full; nothing was written.
        """
        segment, end = self._chain.newest, self._chain.cursor + size
        if not segment.kept < end <= segment.last_lsn or files.is_regular(self.names.new(segment.number + 1)):
            return
        try:
            next_size = rotation.next_size(self.segment_size, segment.size, 0)
            rotation.prepare(self.names, segment.number + 1, next_size)
        except OSError as error:
            raise StorageError(
                f"{segment.path}: no space for the next segment ({error}); what is left of this one is kept"
                " for acknowledgements. Nothing was written, free some space and try again",
                path=segment.path,
            ) from error

    # -- durability ---------------------------------------------------------------------------------

    def wait_durable(self, end: int, *, force: bool = False) -> None:
        """Return when everything before `end` is on the disk. The caller does not hold the lock.

        With `fsync=False` it returns at once unless `force`.

        Raises:
            StorageError: with outcome "unknown": a sync failed.
        """
        words = self._words
        if words is None:
            self.ensure_open()
            return
        if words[DURABLE] >= end and words[LINEAGE] == self._lineage and not words[POISON]:
            return
        if not (self.fsync or force):
            return
        group_commit = self._commit
        if group_commit is None or self.forked:
            self.ensure_open()
            return
        group_commit.run(lambda: self._is_durable(end), lambda: self._sync(end))

    def _is_durable(self, end: int) -> bool:
        words = self._words
        if words is None:
            raise StorageError(
                f"{self.directory}: closed before the sync", path=self.directory, outcome="unknown"
            )
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
                path=self.directory,
                outcome="unknown",
            )
        try:
            files.sync_data(writing[1])
        except OSError as error:
            words[POISON] = ctl.YES
            raise commit.sync_failed(self.names.segment(writing[0]), error) from error
        self._is_durable(end)
        if words[DURABLE] < target:
            words[DURABLE] = words[ctl.DURABLE_AGAIN] = target

    def sync_now(self) -> None:
        """Make everything appended durable. The caller holds the lock and has applied all records."""
        self._open_writer()
        self.wait_durable(self._words[APPENDED], force=True)
