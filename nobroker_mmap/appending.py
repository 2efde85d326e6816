"""Appending a group, rotating, and making things durable.

Invariants
- Bytes are written before `appended` says so, and synced before `durable` does.
- One call appends one group with one write; it counts as a whole or not at all.
- A rotation syncs the sealed segment, then lets the next one appear, then tells the others.
- After a write that failed nothing of it can be seen, or the error says that this is not known.
"""

import logging
from collections.abc import Sequence
from typing import Any

from nobroker_mmap import commit, files, locking, manifest, rotation
from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import StorageError
from nobroker_mmap.offsets import Row
from nobroker_mmap.reading import Reading
from nobroker_mmap.record import encode
from nobroker_mmap.segment import Segment

_log = logging.getLogger("nobroker_mmap")
LINEAGE, APPENDED, DURABLE, POISON, ACTIVE = ctl.LINEAGE, ctl.APPENDED, ctl.DURABLE, ctl.POISON, ctl.ACTIVE
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
        chain, words = self._chain, self._words
        lsn = chain.cursor
        if words[APPENDED] != lsn:
            raise RuntimeError("records of others must be applied before a group is appended")
        size = 0
        for part in parts:
            size += (_HEADER + len(part[2]) + len(part[3]) + 7) & ~7
        segment = chain.reading
        if lsn + size > segment.last_lsn or segment is not chain.newest or words[ACTIVE] != segment.number:
            segment = self._make_room(size)
            lsn = chain.cursor
        if len(parts) == 1:  # most groups are: worth a path without lists
            kind, flags, head, tail, _ = parts[0]
            data, checksum = encode(
                kind, flags | _LAST, head, tail, *segment.ids, lsn, words[DURABLE], chain.checksum
            )
            lsns = [lsn]
        else:
            data, checksum, lsns = self._frame(parts, segment, lsn)
        end = lsn + size
        self._unfinished = True
        self._write(segment, data, lsn - segment.origin)
        words[APPENDED] = end
        self._unfinished = False
        chain.cursor, chain.checksum, chain.chained, chain.last_type = end, checksum, True, parts[-1][0]
        for part, at in zip(parts, lsns, strict=True):
            rows, kind = part[4], part[0]
            if rows is None and kind in self._source.indexed:
                rows = self._source.rows(segment.record_at(at - segment.origin))
            if rows:
                chain.table.add(at - segment.origin, rows, moved=kind in self._source.moved)
        if not locking.in_place(self._lock_fd, 0):
            raise self._lock_file_went()
        if end - segment.base > segment.size >> 1 and self._prepared <= segment.number:
            self._prepare(segment)
        return lsns, end

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

    def _write(self, segment: Segment, data: bytes, offset: int) -> None:
        """Write a group and the zeros that end it, as far as the segment has room for them."""
        room = segment.size - offset - len(data)
        data += _TERMINATOR if room >= 64 else bytes(room)
        fd = self._writing[1]  # type: ignore[index]
        try:
            files.write_at(fd, data, offset)
        except OSError as error:
            raise self._write_failed(error, fd, segment, offset, len(data)) from error

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
        """Make sure that nothing of a failed write can be seen, and say whether that worked."""
        outcome: Any = "not written"
        try:
            files.zero_range(fd, offset, offset + size)
        except OSError:
            outcome = "unknown"
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
            words[POISON] = 1
            raise commit.sync_failed(self.names.directory, error) from error
        end = chain.offset
        words[ACTIVE] = following.number
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
            _log.warning("%s: no space for the next segment yet (%s)", self.names.new(self._prepared), error)

    def keep_room(self, size: int) -> None:
        """Refuse a group of `size` bytes that can wait when it would take the last eighth of a segment and
        no next one can be reserved: without acknowledgements nothing could be worked off on a full disk.

        Raises:
            StorageError: the disk is full; nothing was written.
        """
        segment = self._chain.newest
        left = segment.last_lsn - self._chain.cursor - size
        if not 0 <= left < segment.size >> 3 or files.is_regular(self.names.new(segment.number + 1)):
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
                f"{self.directory}: closed before the sync", path=str(self.directory), outcome="unknown"
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
