"""Salvage: give up what cannot be read, keep every other record, and say exactly what was lost.

Invariants
- Runs only under the lock and only on request. Each file is kept as it was, as `.salvaged`, before it is
  replaced.
- Every record that verifies stays where it is, with its LSN. A GAP record stands where one was that does
  not, so the LSNs and the links of all other records and segments remain true.
- Caches may know what the log does not any more, so they are removed; and a new lineage follows, so that no
  handle that remembers the lost records goes on.
"""

import os

from nobroker_mmap import control as ctl
from nobroker_mmap import files, locking, recovery
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import numbered_files
from nobroker_mmap.control import ControlPage
from nobroker_mmap.errors import LockTimeoutError, StorageError, because
from nobroker_mmap.losses import SalvageReport, write_gap
from nobroker_mmap.segment import Segment
from nobroker_mmap.survey import Survey


def salvage(
    directory: str | os.PathLike[str], name: str, *, boot_id: str, lock_timeout: float = 10.0
) -> SalvageReport:
    """Repair a log that cannot be opened, at the price of the records that do not verify.

    Raises:
        LockTimeoutError: somebody works with it.
        StorageError: there is no such log, a newer release wrote it, or the disk does not allow a repair.
        CorruptLogError: there is nothing to begin from.
    """
    names = fmt.Names(directory, fmt.validate_name(name))
    held: list[int] = []
    try:
        if not numbered_files(names)["seg"]:
            raise StorageError(f"{directory}: there is no queue {name!r} here", path=str(directory))
        for path in (names.lock, names.openers):
            fd = files.open_or_create(path)
            held.append(fd)
            _acquire(fd, lock_timeout, path)
        page = ControlPage(names.lock, read_only=False)
        return _Salvage(names, page, ctl.boot_hash(boot_id)).run()
    except LockTimeoutError:
        raise
    except OSError as error:
        raise StorageError(
            f"{directory}: the salvage failed: {because(error)}", path=str(directory)
        ) from error
    finally:
        for fd in held:
            os.close(fd)


def _acquire(fd: int, lock_timeout: float, path: str) -> None:
    try:
        locking.acquire(fd, lock_timeout, path, lambda: 0)
    except LockTimeoutError as error:
        raise LockTimeoutError(
            f"{path}: somebody has the queue open; nothing was changed: stop every process that uses it, then"
            " salvage again"
        ) from error


class _Salvage:
    def __init__(self, names: fmt.Names, page: ControlPage, boot: int) -> None:
        self._names = names
        self._page = page
        self._survey = Survey(names, page, boot)
        self._report = SalvageReport()

    def run(self) -> SalvageReport:
        survey = self._survey.run()
        self._report.losses = survey.losses
        self._report.records_kept = survey.records
        for number, reason in survey.aside.items():
            self._report.notes.append(f"{self._names.segment(number)}: {reason}; moved aside")
            self._put_aside(number)
        self._remove_caches()
        for number, pieces in sorted(survey.pieces.items()):
            self._repair(survey.segment(number), pieces)
        self._begin_lineage(survey.segment(survey.newest), survey.first)
        return self._report

    def _repair(self, segment: Segment, pieces: list[tuple[int, int]]) -> None:
        """Rewrite a segment of which something does not verify."""
        present = files.is_regular(segment.path) is not None
        fd = files.open_read(segment.path) if present else None
        try:
            self._rewrite(fd, segment, pieces)
        finally:
            if fd is not None:
                os.close(fd)

    def _rewrite(self, fd: int | None, segment: Segment, ranges: list[tuple[int, int]]) -> None:
        losses = [loss for loss in self._report.losses if loss.path == segment.path]
        path = self._names.new(segment.number)
        files.unlink(path)
        copy = files.create(path)
        try:
            files.preallocate(copy, segment.size)
            files.write_at(copy, segment.header.pack(), 0)
            if fd is not None:
                for start, stop in ranges:
                    files.copy_range(fd, copy, start, stop, start)
            for loss in losses:
                write_gap(copy, segment.place, loss.offset, loss.length)
            files.sync_file(copy)
        finally:
            os.close(copy)
        if fd is not None:  # a second name, durable: no kill or power cut between the steps loses both
            kept = self._free_name(segment.number)
            files.keep_copy(segment.path, kept)
            files.sync_directory(self._names.directory)
            self._report.kept_files.append(kept)
        files.publish(path, segment.path, self._names.directory)

    def _put_aside(self, number: int) -> None:
        kept = self._free_name(number)
        files.move(self._names.segment(number), kept)
        self._report.kept_files.append(kept)

    def _free_name(self, number: int) -> str:
        kept = self._names.salvaged(number)
        attempt = 1
        while files.is_regular(kept) is not None:
            attempt += 1
            kept = f"{self._names.salvaged(number)}{attempt}"
        return kept

    def _remove_caches(self) -> None:
        for path in (self._names.snapshot, *numbered_files(self._names)["idx"].values()):
            if files.is_regular(path):
                files.unlink(path)
        files.sync_directory(self._names.directory)

    def _begin_lineage(self, segment: Segment, floor: int) -> None:
        """Continue in a new segment of a new lineage, and make the control page worthless."""
        fd = files.open_read(segment.path)
        try:
            tail = recovery.find_tail(
                recovery.file_reader(fd), segment, fmt.SEGMENT_HEADER_SIZE, segment.header.previous_checksum
            )
        finally:
            os.close(fd)
        highest = max(self._survey.appended, segment.origin + tail.end)
        recovery.fence(self._names, segment, tail, None, highest, floor, fmt.FIRST_SEGMENT_SIZE)
        self._page.zero()
        self._report.notes.append(
            "the log goes on in a new lineage; handles that were open must be opened again"
        )
