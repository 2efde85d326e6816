"""The steps of an opening, in their order, under the lock (or, read-only, without one and without a change).

Invariants
- The control page is trusted only when it speaks of this boot, this file and the newest lineage; when it
  does not, everything retained is synced before the page is set anew.
- A lock file that was never used, or is a copy, beside existing segments means that somebody may still
  write under another lock: the log goes on in a new lineage.
- An opening proves that nothing was lost, or says that it cannot (`unproven`).
"""

import os

import msgpack

from nobroker_mmap import control as ctl
from nobroker_mmap import files, recovery, rotation, snapshot
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import numbered_files
from nobroker_mmap.control import ControlPage
from nobroker_mmap.errors import CorruptLogError, StorageError, because, damaged
from nobroker_mmap.record import Scan
from nobroker_mmap.recovery import Tail
from nobroker_mmap.report import RecoveryReport
from nobroker_mmap.segment import Segment, open_segment
from nobroker_mmap.snapshot import Snapshot


class Opened:
    """What an opening found: the segments that count, the tail of the newest, and a snapshot that fits."""

    def __init__(
        self,
        segments: list[Segment],
        tail: Tail,
        report: RecoveryReport,
        snapshot: Snapshot | None = None,
        known: tuple[int, int] = (0, 0),
    ) -> None:
        self.segments = segments
        self.tail = tail
        self.report = report
        self.snapshot = snapshot
        self.snapshot_used = False
        self.known = known
        """An LSN, and the checksum of the record before it, that were seen to belong together."""
        self.unproven = False
        self.new_boot = False
        self.damage: CorruptLogError | None = None
        self.lineage = segments[-1].header.lineage


def open_read_only(names: fmt.Names, page: ControlPage | None, boot: int) -> Opened:
    """Look at a log without changing a byte; what is damaged ends what can be read and is told in `damage`.

    Raises:
        StorageError: there is no such log.
        OSError: it cannot be read.
    """
    report = RecoveryReport()
    found = numbered_files(names)
    if not found["seg"]:
        raise StorageError(f"{names.directory}: there is no queue {names.name!r} here", path=names.directory)
    newest, damage = recovery.find_newest(names, found["seg"], report.notes)
    trusted, promised = False, 0
    if page is not None and page.valid(boot) and page.lineage == newest.header.lineage:
        # Read before the records: a writer at work may append while they are looked at.
        trusted, promised = True, page.promised()
    fd = files.open_read(newest.path)
    try:
        tail, snap, floor = _find_end(names, fd, newest, report)
        if not trusted or promised > newest.origin + tail.end:
            damage = recovery.find_damage(fd, newest, tail, promised) or damage
    finally:
        os.close(fd)
    segments, broken = recovery.read_chain(names, newest, floor)
    if broken is not None:
        damage = broken
        segments = [segment for segment in segments if segment.header.log_id == newest.header.log_id]
        if not segments:
            raise broken
    opened = Opened(segments, tail, report, snap, _known(newest, tail, snap))
    opened.unproven, opened.damage = True, damage
    return opened


def open_writable(names: fmt.Names, page: ControlPage, boot: int, segment_size: int) -> Opened:
    """Open, and make or repair what is needed. The caller holds the lock.

    Raises:
        CorruptLogError: promised bytes are damaged; nothing was changed.
        StorageError: the disk does not allow it.
    """
    report = RecoveryReport()
    if page.cut_short:
        page.zero()
    found = numbered_files(names)
    if not found["seg"]:
        return _create(names, page, boot, segment_size, report)
    newest, wrong = recovery.find_newest(names, found["seg"], report.notes)
    if wrong is not None:
        raise wrong
    replaced = not page.sound() or page.words[ctl.INODE] != page.inode
    trusted = page.valid(boot) and page.lineage == newest.header.lineage
    if page.valid(boot) and page.least(ctl.ACTIVE) > newest.number:
        raise damaged(names.segment(newest.number + 1), 0, "the file is missing")
    poisoned = trusted and page.words[ctl.POISON] != 0
    promised = page.promised() if trusted else 0
    fd = files.open_write(newest.path)
    try:
        tail, snap, floor = _find_end(names, fd, newest, report)
        segments, broken = recovery.read_chain(names, newest, floor)
        damage = broken or recovery.find_damage(fd, newest, tail, promised)
        if damage is not None:
            raise damage
        opened = Opened(segments, tail, report, snap, _known(newest, tail, snap))
        _judge(opened, page, fd, trusted=trusted)
        if poisoned or not trusted or page.words[ctl.ACTIVE] != newest.number:
            # Whoever made the newest segment may have failed, or died, before its name was durable.
            files.sync_directory(names.directory)
        if not poisoned:
            recovery.cut(fd, names, newest, tail, report)
        if poisoned or replaced:
            _fence(names, page, opened, poisoned, floor, segment_size)
        elif not trusted:
            page.zero()
            recovery.sync_segments(segments)
        elif len(found["seg"]) > len(segments):
            # the RETIRE record must be durable before the files it retires are removed
            files.sync_data(fd)
        opened.unproven |= report.repaired
    except OSError as error:
        raise StorageError(
            f"{newest.path}: could not be opened: {because(error)}", path=newest.path
        ) from error
    finally:
        os.close(fd)
    _set_page(page, boot, opened, floor, keep=trusted and not (poisoned or replaced))
    recovery.remove_leftovers(names, floor, report.notes)
    return opened


def _find_end(
    names: fmt.Names, fd: int, newest: Segment, report: RecoveryReport
) -> tuple[Tail, Snapshot | None, int]:
    """The tail of the newest segment, the snapshot when it fits, and the floor."""
    read = recovery.file_reader(fd)
    snap, note = snapshot.load(names.snapshot, newest.header.log_id)
    start, checksum = fmt.SEGMENT_HEADER_SIZE, newest.header.previous_checksum
    inside = snap is not None and snap.lineage == newest.header.lineage and snap.lsn >= newest.base
    tail: Tail | None = None
    if snap is not None and inside:
        at = snap.lsn - newest.origin
        tail = recovery.find_tail(read, newest, at, snap.checksum)
        if not tail.records:  # the chain does not go on from there; only a scan can say whether it led there
            before = recovery.find_tail(read, newest, start, checksum, at)
            if before.end != at or before.checksum != snap.checksum:
                snap, note, tail = None, "the snapshot does not fit the log", None
            else:
                tail = tail._replace(last_type=before.last_type, last_body=before.last_body)
    if tail is None:
        tail = recovery.find_tail(read, newest, start, checksum)
    report.bytes_scanned += tail.stop - start
    if note is not None:
        report.notes.append(note)
    floor = max(newest.header.floor, tail.floor, snap.floor if snap is not None and inside else 0)
    return tail, snap, min(floor, newest.number)


def _known(newest: Segment, tail: Tail, snap: Snapshot | None) -> tuple[int, int]:
    if snap is not None and snap.lineage == newest.header.lineage and snap.lsn >= newest.base:
        return snap.lsn, snap.checksum
    return newest.origin + tail.end, tail.checksum


def snapshot_fits(segments: list[Segment], snap: Snapshot, known: tuple[int, int]) -> Segment | None:
    """The segment in which replay goes on after a snapshot; None when it does not fit.

    `known`: an LSN and the checksum of the record before it that were verified.
    """
    for segment in reversed(segments):
        if segment.base > snap.lsn:
            continue
        header, offset = segment.header, snap.lsn - segment.origin
        if offset == fmt.SEGMENT_HEADER_SIZE and snap.checksum == header.previous_checksum:
            return segment if snap.lineage in (header.lineage, header.previous_lineage) else None
        if snap.lineage != header.lineage or offset > segment.limit:
            return None
        if segment.end and offset == segment.end:
            following = next((other for other in segments if other.number == segment.number + 1), None)
            return following if following and following.header.previous_checksum == snap.checksum else None
        if (snap.lsn, snap.checksum) == known or _continues(segment, offset, snap.checksum):
            return segment
        return None
    return None


def survey(names: fmt.Names, floor: int, newest: int) -> list[Segment]:
    """The segments from `floor` to `newest`, as they are while others work.

    Raises:
        CorruptLogError: one is missing or does not follow.
    """
    path = names.segment(newest)
    try:
        last = open_segment(path)
    except FileNotFoundError:
        raise damaged(path, 0, "the file is missing") from None
    segments, broken = recovery.read_chain(names, last, floor)
    if broken is None and not segments:
        broken = damaged(path, 0, "the control page names a first segment beyond it")
    if broken is not None:
        raise broken
    return segments


def _continues(segment: Segment, offset: int, checksum: int) -> bool:
    """Does the chain of records go on at an offset from a checksum, or lead there when nothing follows?"""
    fd = files.open_read(segment.path)
    try:
        read = recovery.file_reader(fd)
        if next(iter(Scan(read, segment.place, offset, segment.limit, checksum)), None) is not None:
            return True
        first = segment.header.previous_checksum
        before = recovery.find_tail(read, segment, fmt.SEGMENT_HEADER_SIZE, first, offset)
        return before.end == offset and before.checksum == checksum
    finally:
        os.close(fd)


def _create(
    names: fmt.Names, page: ControlPage, boot: int, segment_size: int, report: RecoveryReport
) -> Opened:
    if page.valid(boot) and page.least(ctl.ACTIVE):
        missing = names.segment(page.least(ctl.ACTIVE))
        raise CorruptLogError(
            f"{missing}: the file is missing, and so is every other segment, though processes of this"
            " boot used them;"
            f" put the files back, or remove {names.lock} to begin an empty queue",
            path=missing,
            offset=0,
        )
    page.zero()
    recovery.remove_leftovers(names, 1, report.notes)
    header = rotation.successor(
        None,
        size=rotation.next_size(segment_size, 0, 0),
        log_id=rotation.random_u64(),
        lineage=rotation.random_u64(),
        base=0,
        end=0,
        checksum=0,
        floor=1,
    )
    segment = rotation.make(names, header)
    start = fmt.SEGMENT_HEADER_SIZE
    opened = Opened([segment], Tail(start, 0, 0, b"", 0, start, 0, 0), report)
    _set_page(page, boot, opened, 1, keep=False)
    return opened


def _judge(opened: Opened, page: ControlPage, fd: int, *, trusted: bool) -> None:
    """Was anything lost, as far as can be proved?"""
    tail, newest = opened.tail, opened.segments[-1]
    end = newest.origin + tail.end
    closed = tail.last_type == fmt.CLOSE and _closed_here(tail.last_body, fd)
    if trusted:
        lost = page.words[ctl.APPENDED] != end or page.words[ctl.POISON] != 0
        opened.unproven = lost or page.words[ctl.UNPROVEN] != 0
        return
    # A page of an earlier boot proves nothing, but it can show that more had been written than is there.
    shrunk = page.sound() and page.lineage == opened.lineage and page.words[ctl.APPENDED] > end
    opened.unproven = not closed or shrunk
    opened.new_boot = tail.last_type != fmt.CLOSE


def _closed_here(body: bytes, fd: int) -> bool:
    try:
        head = msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException):
        return False
    return isinstance(head, dict) and head.get("i") == files.inode_of(fd)


def _fence(
    names: fmt.Names, page: ControlPage, opened: Opened, poisoned: bool, floor: int, segment_size: int
) -> None:
    newest, tail, report = opened.segments[-1], opened.tail, opened.report
    end = newest.origin + tail.end
    highest = max(end, page.least(ctl.APPENDED) if poisoned else 0)
    if poisoned:
        durable: int | None = page.least(ctl.DURABLE)
        report.notes.append(
            f"{newest.path}: after a failed sync, what was not known to be durable was written anew"
        )
    else:
        durable = None
        recovery.sync_segments(opened.segments)
        report.notes.append(
            f"{names.lock}: the lock file was new or a copy; the log goes on in a new segment"
        )
    segment, opened.tail = recovery.fence(names, newest, tail, durable, highest, floor, segment_size)
    opened.segments.append(segment)
    opened.lineage = segment.header.lineage
    opened.unproven = True


def _set_page(page: ControlPage, boot: int, opened: Opened, floor: int, *, keep: bool) -> None:
    """Say in the control page how things are; `keep`: it was right and only the end may have moved."""
    newest = opened.segments[-1]
    end = newest.origin + opened.tail.end
    words = page.words
    durable = min(end, page.least(ctl.DURABLE))
    if not keep:
        page.zero()
        durable = end
        if opened.snapshot is not None:
            words[ctl.SNAPSHOT] = opened.snapshot.lsn
    elif words[ctl.SNAPSHOT] > end:
        words[ctl.SNAPSHOT] = 0
    page.say(ctl.DURABLE, max(durable, newest.base))  # a segment is synced before the next one appears
    page.say(ctl.APPENDED, end)
    page.say(ctl.ACTIVE, newest.number)
    words[ctl.FLOOR] = floor
    words[ctl.HOLDER] = 0
    words[ctl.UNPROVEN] = ctl.YES if opened.unproven else 0
    if not keep:
        page.identify(boot, newest.header.lineage)
