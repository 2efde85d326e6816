"""One open log with the state that its records give: what every verb of the store works on.

The walk of a verb: thread lock -> file lock -> apply what peers appended -> queue time -> end what time has
ended -> decide -> append -> apply -> unlock -> wait until durable. `transaction` does the first five and the
unlocking, the verb the rest.

Invariants
- The state is what the records up to the log's cursor say. An exception after the state was touched and
  before the append succeeded makes it worthless; it is thrown away and loaded anew (`spoil`).
- Numbers are given out only below a durable reservation.
- Queue time never decreases along the log, and needs no wall clock but at a new boot's first record.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

from nobroker.clock import Clock
from nobroker.errors import QueueFullError, StorageError
from nobroker.state import kinds, snapshots
from nobroker.state.entries import CANCEL
from nobroker.state.machine import Head
from nobroker.state.numbers import ranges_of
from nobroker.state.replay import apply
from nobroker.stores.following import INDEXED, Following, Options
from nobroker.stores.reading import lease_expired
from nobroker.stores.rows import rows_of
from nobroker.values import pack_plain
from nobroker_mmap.errors import Restart
from nobroker_mmap.logs import logger
from nobroker_mmap.offsets import Row
from nobroker_mmap.snapshot import SnapshotWriter

RESERVED_AHEAD: Final = 65_536
CAREFUL_US: Final = 60_000_000
"""For so long after a crash of the machine leases are durable before they are handed out."""
_RECLAIM_AT_ONCE: Final = 20_000
_DURABLE: Final = (kinds.RESERVE, kinds.ANCHOR)
"""What is synced as soon as it is appended. One of them follows each CLOSE record before numbers are given
out: else a power cut could leave a clean end, and nobody would know that numbers had been seen.
"""
_SNAPSHOT_SLICE: Final = 64

Part = tuple[int, Head, bytes]


class Snapshotting(NamedTuple):
    """A snapshot under way."""

    writer: SnapshotWriter
    objects: Iterator[Any]
    pid: int


class Session(Following):
    """The log, the state, the clock."""

    def __init__(self, directory: str, name: str, options: Options, clock: Clock) -> None:
        super().__init__(directory, name, options, clock.boot_id())
        self.clock = clock
        self._boot, self._namespace = clock.boot_id(), clock.namespace()
        self._touched = False
        self.snapshotting: Snapshotting | None = None
        """The snapshot that is under way."""
        self._slicing = threading.Lock()
        self.contended = False
        """Others appended of late: it is worth looking for that before the lock is taken."""
        if not options.read_only:
            try:
                self._settle_opening()
            except BaseException:
                self.log.close(None)
                raise

    def _settle_opening(self) -> None:
        control = self.log.control
        if self.log.new_boot:
            control.careful_until = self.clock.boot_us() + CAREFUL_US
        if control.suspended == 0:
            control.suspended = self.clock.suspended_us() + 1
        if self.log.unproven:
            with self.transaction():  # its beginning does what is to be done
                pass

    def _go_on_above(self) -> None:
        """It can't be proved that nothing was lost: numbers go on above all that were reserved."""
        state = self.state
        seq, token = max(state.reserved_seq, state.next_seq), max(state.reserved_token, state.next_token)
        if (seq, token) != (1, 1):
            self._reserve(seq + RESERVED_AHEAD, token + RESERVED_AHEAD, {"S": seq, "K": token})
        self.log.proven()

    # -- transactions

    def transaction(self) -> Session:
        """`with session.transaction() as now:`: the locks are held, the state is that of the log, what time
        has ended is written down; `now` is the queue time. After an exception a touched state is not
        believed any more.
        """
        return self

    def __enter__(self) -> int:
        log = self.log
        if self.contended and self.loaded and log.lag():
            with self.reading():
                self.follow()  # what can be read before the lock is had keeps nobody waiting
        try:
            news = log.lock()
        except Restart:
            news = self._lock_again()
        try:
            if news or not self.loaded:
                self.contended = True
                self.catch_up()
                if log.unproven:
                    self._go_on_above()
            state = self.state
            anchor = state.anchors.get(self._namespace) if state.boot == self._boot else None
            if anchor is None:
                now = self._write_anchor()
            else:
                now = anchor[1] + self.clock.boot_us() - anchor[0]
                if now < state.time:
                    now = state.time
            if (state.deadlines and state.deadlines[0][0] <= now) or (
                state.expiries and state.expiries[0][0] <= now
            ):
                self._end_overdue(now)
        except BaseException:
            log.unlock()
            raise
        return now

    def _lock_again(self) -> bool:
        """The log was opened anew: after a fork, or because the lock file was replaced."""
        self._slicing = threading.Lock()  # another thread of the parent may have had it
        for _ in range(3):
            self.loaded = False
            try:
                return self.log.lock()
            except Restart:
                continue
        return self.log.lock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._touched:
            self.spoil()
        self._touched = False
        try:
            if kind is None:
                self.log.say_tip(self.state.next_seq, self.state.reserved_seq, self.state.time)
                if self.snapshotting is None and self.log.snapshot_due():
                    self._begin_snapshot()
        finally:
            self.log.unlock()
        if kind is Restart:
            self.spoil()
            where = self.log.path
            raise StorageError(
                f"{where} was changed by others in the midst of this call; try again", path=where
            )

    def _begin_snapshot(self) -> None:
        try:
            writer = self.log.begin_snapshot()
        except StorageError as error:  # a snapshot is a cache: the verb was done, and is not failed for it
            logger("nobroker.queue").warning(
                "event=queue.snapshot_failed queue=%s error=%s", self.log.path, error
            )
            return
        self.snapshotting = Snapshotting(writer, snapshots.capture(self.state), os.getpid())

    def unsettle(self) -> None:
        """Say that the state is changed ahead of its record."""
        self._touched = True

    def lock_only(self) -> bool:
        """Take the locks without catching up; the caller unlocks the log. False, and no lock, when it had to
        be opened anew.
        """
        try:
            self.log.lock()
        except Restart:
            self._lock_again()
            self.log.unlock()
            return False
        return True

    def zero_us(self) -> int | None:
        """What has to be added to the boot clock for the queue time; None while this boot has no anchor."""
        anchor = self.state.anchors.get(self._namespace) if self.state.boot == self._boot else None
        return None if anchor is None else anchor[1] - anchor[0]

    # -- time

    def now(self) -> int:
        """Queue time, without writing: where this boot has no anchor yet, what its anchor would say."""
        anchor = self.state.anchors.get(self._namespace) if self.state.boot == self._boot else None
        if anchor is None:
            return max(self.state.time, self.clock.wall_us())
        return max(self.state.time, anchor[1] + self.clock.boot_us() - anchor[0])

    def _write_anchor(self) -> int:
        """Tie this boot's clock to queue time, durably ahead of all that is measured by it."""
        now = self.now()
        head: Head = {"b": self._boot, "n": self._namespace, "c": self.clock.boot_us(), "t": now}
        if self.state.boot != self._boot and self.state.boot:
            head["x"] = True
        self.append([(kinds.ANCHOR, head, b"")])
        self.log.sync_now()
        return self.now()

    def in_grace(self) -> bool:
        """After the machine slept, holders get the time of one heartbeat before their leases are taken."""
        control = self.log.control
        suspended = self.clock.suspended_us() + 1
        boot = self.clock.boot_us()
        if suspended > control.suspended + 1_000_000:
            control.suspended = suspended
            control.grace_until = boot + max(1_000_000, self.options.visibility_us // 3)
        return boot < control.grace_until

    def _end_overdue(self, now: int) -> None:
        """Write down what time has ended: leases, and jobs that waited too long."""
        state = self.state
        parts: list[Part] = []
        for seqs, priority, attempts, expires in state.outdated(now):
            head: Head = {"t": now, "q": ranges_of(seqs), "p": priority, "m": attempts, "a": expires}
            parts.append((kinds.EXPIRE, head, b""))
        if state.next_deadline() <= now and not self.in_grace():
            parts.append(self._reclaim(now))
        if parts:
            try:
                self.append(parts)
            except BaseException:
                self.spoil()
                raise
            self.log.notify()
        state.drop_outdated(now)

    def _reclaim(self, now: int) -> Part:
        seqs: list[int] = []
        avails: list[int] = []
        dead: list[int] = []
        cancelled: list[int] = []
        texts: list[int] = []
        told: list[str | None] = []
        for index, (seq, lease) in enumerate(self.state.overdue(now)[:_RECLAIM_AT_ONCE]):
            entry = self.state.entry_of(seq, lease)
            text = None
            if entry.flags & CANCEL:
                cancelled.append(index)
            elif entry.attempts >= entry.max_attempts:
                dead.append(index)
                texts.append(index)
                text = lease_expired(entry.attempts)
            seqs += (seq, seq)
            avails.append(lease.deadline)
            told.append(text)
        head: Head = {"t": now, "q": seqs, "a": avails}
        if dead:
            head["x"], head["e"] = dead, texts
        if cancelled:
            head["c"], head["k"] = cancelled, now + self.options.keep_done_us
        return kinds.RECLAIM, head, pack_plain(told) if dead else b""

    # -- writing

    def append(self, parts: list[Part]) -> int:
        """Append one group and apply it; returns its end."""
        if len(parts) == 1:
            kind, head, tail = parts[0]
            return self.append_one(kind, head, tail, rows_of(kind, head) if kind in INDEXED else ())
        if self.log.ends_closed:
            self._reserve(0, 0, {})
        framed = [
            (kind, 0, pack_plain(head), tail, rows_of(kind, head) if kind in INDEXED else None)
            for kind, head, tail in parts
        ]
        self._touched = True
        lsns, end = self.log.append(framed)
        state = self.state
        for part, lsn in zip(parts, lsns, strict=True):
            apply(state, part[0], part[1], lsn)
        self._touched = False
        return end

    def append_one(self, kind: int, head: Head, tail: bytes, rows: Sequence[Row] = ()) -> int:
        """As `append`, for a group of one record with its rows of the index."""
        if self.log.ends_closed and kind not in _DURABLE:
            self._reserve(0, 0, {})
        self._touched = True
        lsn, end = self.log.append_one(kind, pack_plain(head), tail, rows)
        apply(self.state, kind, head, lsn)
        self._touched = False
        return end

    def notify_freed(self) -> None:
        """Leases ended, or jobs left: where there are limits, that may be what others wait for."""
        if self.state.ready.limited:
            self.log.notify()

    def settled(self) -> None:
        """Say that the state is not changed after all."""
        self._touched = False

    def reserve(self, seqs: int, tokens: int) -> bool:
        """Make sure that so many numbers may be given out now; True when a record was needed for that."""
        state = self.state
        if state.next_seq + seqs <= state.reserved_seq and state.next_token + tokens <= state.reserved_token:
            return False
        self._reserve(state.next_seq + seqs + RESERVED_AHEAD, state.next_token + tokens + RESERVED_AHEAD, {})
        return True

    def _reserve(self, seq: int, token: int, more: Head) -> None:
        seq, token = max(seq, self.state.reserved_seq), max(token, self.state.reserved_token)
        self.append([(kinds.RESERVE, {"t": self.state.time, "s": seq, "k": token, **more}, b"")])
        self.log.sync_now()

    def room_for(self, size: int) -> None:
        """Raise when the directory would grow over `max_bytes`, or the disk is full."""
        self.log.keep_room(size)
        limit = self.options.max_bytes
        if limit is not None and self.log.bytes_used() + size > limit:
            raise QueueFullError(
                f"{self.log.path} holds {self.log.bytes_used():,} bytes; {size:,} more would pass "
                f"max_bytes={limit:,}. Work jobs off, compact, or raise max_bytes"
            )

    def careful(self) -> bool:
        """Whether leases must be durable before they are handed out."""
        return self.clock.boot_us() < self.log.control.careful_until

    # -- snapshots and the end

    def step_snapshot(self) -> None:
        """Write a slice of the snapshot that is under way, outside all file locks."""
        if self.snapshotting is None or not self._slicing.acquire(blocking=False):
            return
        try:
            snapshot = self.snapshotting
            if snapshot is None:
                return
            if snapshot.pid != os.getpid():  # a forked child: the file is its parent's
                self.snapshotting = None
                return
            for _ in range(_SNAPSHOT_SLICE):
                item = next(snapshot.objects, None)
                if item is None:
                    snapshot.writer.commit()
                    self.snapshotting = None
                    return
                snapshot.writer.write(item)
        except BaseException:
            self.snapshotting = None
            raise
        finally:
            self._slicing.release()

    def close(self) -> None:
        """Close the log; the last one out leaves a snapshot and a clean end."""
        if self.snapshotting is not None:
            if self.snapshotting.pid == os.getpid():
                self.snapshotting.writer.abort()
            self.snapshotting = None
        self.log.close(None if self.options.read_only else self._write_snapshot)

    def _write_snapshot(self, writer: Any) -> None:
        if not self.loaded or self.log.behind():
            self.catch_up()
        for item in snapshots.capture(self.state):
            writer.write(item)
