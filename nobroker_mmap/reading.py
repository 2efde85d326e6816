"""Following the log: the records after the cursor, with or without the lock.

Invariants
- Only whole groups are given out, and the cursor and the index are past a group before its first record is.
- With a control page of this boot, every byte up to its appended-up-to was completely written: what does
  not verify there, after a few looks, is damage. Without one, reading ends where nothing verifies.
- Segments that were retired under the reader mean `Restart`, never an error and never a gap.
"""

from collections.abc import Iterator

from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from nobroker_mmap import opening, snapshot
from nobroker_mmap.errors import CorruptLogError, QueueClosedError, Restart, StorageError, damaged
from nobroker_mmap.handle import Handle
from nobroker_mmap.record import Record, Scan
from nobroker_mmap.segment import Segment

_LOOKS = 5
_LAST = fmt.LAST_OF_GROUP
_OWN = frozenset({fmt.CLOSE, fmt.GAP})
"""Types that say nothing to the application."""


class Reading(Handle):
    """The part of a log's face that follows records."""

    _stopped_at = -1
    """Cursor at which a read-only handle met damage; nothing beyond is read."""

    def behind(self) -> bool:
        """Is there something that this handle has not read? Costs no system call."""
        words = self._words
        if words is None or self.forked:
            return not self.closed
        return bool(words[ctl.APPENDED] != self._chain.cursor or words[ctl.LINEAGE] != self._lineage)

    def ensure_reachable(self) -> None:
        """Look whether the control page may be touched: somebody may have cut the lock file short.

        Raises:
            StorageError: it was. A reader goes on without it.
        """
        if self._page is None or self.forked or self._page.reachable():
            return
        if not self.read_only:
            raise self._refusal("its lock file was cut short")
        self._page = self._words = None

    def load_snapshot(self) -> Iterator[object] | None:
        """Begin anew: the objects of the newest snapshot that fits, and the cursor set to its LSN.

        None when there is none; the cursor is then at the first record that counts. The caller holds the
        mutex.
        """
        self.ensure_open()
        if self.forked:
            self._become_usable_quietly()
        opened = self._opened
        self._stopped_at = -1
        words = self._words
        if not self.read_only and words is not None and words[ctl.FLOOR] > self._chain.floor:
            self._skip_retired()  # others compacted since this handle opened
            opened.snapshot_used = True
        if opened.snapshot_used and self.read_only and self._goal() is None:
            self._open_read_only()
            opened = self._opened
        snap = opened.snapshot
        if opened.snapshot_used:
            snap, _ = snapshot.load(self.names.snapshot, self._chain.newest.header.log_id)
            self._catch_up_segments()
        opened.snapshot_used, opened.snapshot = True, None
        segments = list(self._chain.segments.values())
        try:
            segment = opening.snapshot_fits(segments, snap, opened.known) if snap else None
        except FileNotFoundError:  # its segment is leaving at this moment; reading on says `Restart`
            segment = None
        if snap is not None and segment is not None:
            lsn = max(snap.lsn, segment.base)
            if lsn == segment.base or snap.segment == segment.number:
                self._chain.place(segment, lsn, snap.checksum, snap.table if lsn > segment.base else None)
                return snap.objects()
        if snap is not None:
            self.recovery.notes.append("the snapshot does not fit the log")
        self.rewind()
        return None

    def records(self, limit_bytes: int | None = None) -> Iterator[Record]:
        """Whole groups from the cursor to the end that is known now, of types that the application has to
        see.

        Args:
            limit_bytes: stop after the group with which this many bytes were read.

        The caller holds the mutex (as `lock` takes it). The cursor moves as it goes.

        Raises:
            CorruptLogError: with file and offset; in a read-only handle reading ends there instead
            (`damage`). Restart: segments left under the reader, or the process was forked; load the
            snapshot again. StorageError: the log went on in a new lineage; open it again.
        """
        chain = self._chain
        start = chain.cursor
        while True:
            self.ensure_open()
            if self.forked:
                raise Restart
            goal = self._goal()
            if goal is not None and chain.cursor >= goal:
                return
            if chain.cursor == self._stopped_at:
                return
            before, segment = chain.cursor, chain.reading
            try:
                if goal is not None and self._said(ctl.ACTIVE) > chain.newest.number:
                    goal = self._goal_after_catching_up(goal)
                group: list[Record] = []
                for record in self._scan(goal):
                    group.append(record)
                    if not record.flags & _LAST:
                        continue
                    chain.accept(group)
                    self.recovery.records_applied += len(group)
                    for record in group:
                        if record.type >= fmt.FIRST_APPLICATION_TYPE or self._concerns(record):
                            yield record
                    group = []
                    if limit_bytes is not None and chain.cursor - start >= limit_bytes:
                        return
                if segment is not chain.reading:
                    raise Restart
                if segment.end and chain.offset >= segment.end:
                    chain.step()
                    continue
            except CorruptLogError as error:
                if not self.read_only:
                    raise
                self.note_damage(error)
                return
            if goal is None and not segment.end:
                return
            if chain.cursor == before:
                self._stuck(goal)

    @property
    def ends_closed(self) -> bool:
        """Is a CLOSE record the last thing that is known to be durable? After a power cut an opening would
        take it for the end, and miss nothing of what has been appended since.
        """
        return bool(self._words[ctl.DURABLE] <= self._chain.closed_at)

    def _goal(self) -> int | None:
        """LSN up to which everything was written, by a control page of this boot; None without one."""
        words = self._words
        if words is None:
            return None
        if words[ctl.LINEAGE] != self._lineage or words[ctl.POISON]:
            if not self.read_only:
                self._refuse_stale()
            if self._page is None or not self._page.valid(self.boot):
                return None
            if words[ctl.LINEAGE] != self._lineage:
                raise self._refusal("it was repaired")
        if self.read_only and self._page is not None and not self._page.valid(self.boot):
            return None
        return self._said(ctl.APPENDED)

    def _said(self, field: int) -> int:
        """A field of the control page; a reader, which cannot mend it, believes what is said twice."""
        if self.read_only and self._page is not None:
            return self._page.least(field)
        return int(self._words[field])

    def _scan(self, goal: int | None) -> Scan:
        """The records after the cursor in its segment."""
        chain = self._chain
        segment = chain.reading
        stop = segment.limit
        if goal is not None and not segment.end:
            stop = min(stop, max(chain.offset, goal - segment.origin))
        try:
            chain.maps.use(segment).map()
        except FileNotFoundError:
            self._refuse_retired(segment)
            raise damaged(segment.path, 0, "the file is missing") from None
        return Scan(segment.read, segment.place, chain.offset, stop, chain.checksum, chained=chain.chained)

    def _stuck(self, goal: int | None) -> None:
        """At the cursor nothing verifies though it should. Look again, or say what is wrong."""
        chain = self._chain
        segment = chain.reading
        for _ in range(_LOOKS):
            self._refuse_retired(segment)
            if not self.read_only:
                self._refuse_stale()
            if any(record.flags & _LAST for record in self._scan(goal)):
                return
        scan = Scan(
            segment.read, segment.place, chain.offset, segment.limit, chain.checksum, chained=chain.chained
        )
        for _record in scan:
            continue
        error = damaged(segment.path, scan.offset, "no record verifies here, and there was one")
        if not self.read_only:
            raise error
        self.note_damage(error)

    def _goal_after_catching_up(self, goal: int) -> int | None:
        """The same goal; reading only, None where a segment is missing: what stands before it is read."""
        try:
            self._catch_up_segments()
        except CorruptLogError as error:
            if not self.read_only:
                raise
            self.damage = error
            self.recovery.damage = str(error)
            return None
        return goal

    def _catch_up_segments(self) -> None:
        """Let segments join that others made, and leave those that others retired."""
        words = self._words
        chain = self._chain
        if words is None:
            return
        while chain.newest.number < self._said(ctl.ACTIVE):
            if not chain.learn_next():
                self._refuse_retired(chain.newest)
                raise damaged(self.names.segment(chain.newest.number + 1), 0, "the file is missing")
        self._open_writer()
        if chain.reading is not chain.newest:
            return
        chain.drop_before(min(int(words[ctl.FLOOR]), chain.reading.number))

    def _refuse_retired(self, segment: Segment) -> None:
        if self._words is not None and self._words[ctl.FLOOR] > segment.number:
            self._skip_retired()
            raise Restart

    def _skip_retired(self) -> None:
        """The cursor's segment has left: know only what is there now."""
        opened = opening.survey(self.names, int(self._words[ctl.FLOOR]), self._said(ctl.ACTIVE))
        self._chain.attach(opened)
        self._open_writer()
        self.rewind()

    def _concerns(self, record: Record) -> bool:
        """Has the application to see a record of the log's own?

        Raises:
            StorageError: a newer release wrote it and it must not be passed over.
        """
        if record.type == fmt.RETIRE:
            return True
        if record.type in _OWN or record.flags & fmt.SKIPPABLE:
            return False
        path = self.names.segment(record.segment)
        raise StorageError(
            f"{path}: the record at offset {record.offset} has the type {record.type}, which this release"
            " does not know; update nobroker to use this queue",
            path=path,
        )

    def note_damage(self, error: CorruptLogError) -> None:
        """Reading only: say what the reading stopped at."""
        self.damage = error
        self.recovery.damage = str(error)
        self._stopped_at = self._chain.cursor

    def ensure_open(self) -> None:
        """Raise `QueueClosedError` after `close`."""
        if self.closed:
            raise QueueClosedError(
                f"{self.directory}: the handle on queue {self.name!r} was closed; open it again"
            )

    def _become_usable_quietly(self) -> None:
        try:
            self._become_usable()
        except Restart:
            return
