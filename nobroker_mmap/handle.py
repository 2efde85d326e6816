"""A handle on a log: its descriptors, its turn under the lock, and what happens when others die, fork or
interfere.

Invariants
- Nothing of the log is written unless this handle has the mutex, then the file lock on a lock file that
  still has its name, and the control page has this handle's lineage and no poison.
- A holder leaves its pid in the control page while it works. Whoever finds one there settles the tail
  first: whole groups are adopted, unfinished ones are cut.
- A forked child closes what it inherited before anything else runs, and opens anew on first use.
- Every descriptor of a handle is in one place here, so that closing, forking and failing openings free the
  same ones.
"""

import itertools
import os
import threading
from typing import Any

from nobroker_mmap import catalog, files, locking, manifest, opening, recovery
from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import Chain
from nobroker_mmap.commit import GroupCommit
from nobroker_mmap.control import ControlPage
from nobroker_mmap.errors import (
    CorruptLogError,
    LockTimeoutError,
    QueueClosedError,
    Restart,
    StorageError,
    because,
    not_opened,
)
from nobroker_mmap.logs import logger
from nobroker_mmap.offsets import RowSource
from nobroker_mmap.opening import Opened
from nobroker_mmap.report import RecoveryReport
from nobroker_mmap.wake import Waiters

_handles = itertools.count()

LINEAGE, APPENDED, DURABLE, POISON = ctl.LINEAGE, ctl.APPENDED, ctl.DURABLE, ctl.POISON
HOLDER, ACTIVE, FLOOR, UNPROVEN = ctl.HOLDER, ctl.ACTIVE, ctl.FLOOR, ctl.UNPROVEN


class Handle:
    """Opening, locking and closing; `Log` adds what the lock is taken for."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        name: str,
        *,
        segment_size: int,
        fsync: bool,
        lock_timeout: float,
        read_only: bool,
        boot_id: str,
        source: RowSource,
    ) -> None:
        self.directory = os.fspath(directory)
        self.name = fmt.validate_name(name)
        self.names = fmt.Names(self.directory, name)
        self.segment_size = fmt.check_segment_size(segment_size)
        self.fsync = fsync
        self.read_only = read_only
        self.boot_id = boot_id
        self.boot = ctl.boot_hash(boot_id)
        self.lock_timeout = lock_timeout
        self.mutex = threading.Lock()
        self.damage: CorruptLogError | None = None
        self.forked = False
        self.closed = False
        self._usable = True
        self._unfinished = False
        """A write or a rotation was begun and not ended: whoever locks next settles it, as after a death."""
        self._pid = os.getpid()
        self._tag = f"{self._pid}-{next(_handles)}"
        self._source = source
        self._chain = Chain(self.names, source, writable=not read_only, tag=self._tag)
        self._lock_fd: Any = None
        self._open_fd: int | None = None
        self._writing: tuple[int, int] | None = None
        self._page: ControlPage | None = None
        self._words: Any = None
        self._commit: GroupCommit | None = None
        self._waiters = Waiters(self.names.wake, poll_only=read_only)
        self._lineage = 0
        self._opened: Opened
        self.recovery = RecoveryReport()
        self.new_boot = False
        catalog.refuse_other_case(self.directory, self.name, read_only=read_only)
        try:
            self._open()
        except BaseException:
            self._release_files()
            raise
        locking.watch_forks(self)

    # -- opening ------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.read_only:
            self._open_read_only()
            return
        try:
            os.makedirs(self.names.directory, exist_ok=True)
            fd, page = self._take_lock_file()
        except OSError as error:
            raise not_opened(self.names.lock, error) from error
        try:
            if self._open_fd is None:
                self._open_fd = files.open_or_create(self.names.openers)
                locking.try_lock(self._open_fd, locking.SHARED | locking.NON_BLOCKING)
            if self._commit is None:
                self._commit = GroupCommit(self.names.sync)
            opened = opening.open_writable(self.names, page, self.boot, self.segment_size)
            self._settle_into(opened)
            manifest.write(self.names, self._tag, self._chain.floor, self._chain.segments.values())
        except OSError as error:
            raise not_opened(self.names.directory, error) from error
        finally:
            locking.unlock(fd)

    def _take_lock_file(self) -> tuple[int, ControlPage]:
        """Open, lock and map the lock file that has its name now."""
        deadline = locking.Deadline(self.lock_timeout)
        while True:
            self._drop_lock_file()
            fd = self._lock_fd = files.open_or_create(self.names.lock)
            try:
                page = self._page = ControlPage(self.names.lock, read_only=False)
            except FileNotFoundError:
                continue
            if page.inode != files.inode_of(fd):
                continue
            self._words = page.words
            locking.acquire(fd, deadline.left(), self.names.lock, self._holder)
            if locking.in_place(fd, fmt.CONTROL_SIZE):
                return fd, page

    def _open_read_only(self) -> None:
        try:
            self._page = ControlPage(self.names.lock, read_only=True)
            self._words = self._page.words
        except OSError:  # no lock file, or none worth reading: the log is read as far as it verifies
            self._page = self._words = None
        try:
            self._settle_into(opening.open_read_only(self.names, self._page, self.boot))
        except OSError as error:
            raise not_opened(self.names.directory, error) from error

    def _settle_into(self, opened: Opened) -> None:
        self._opened = opened
        self._lineage = opened.lineage
        self.recovery = opened.report
        self.new_boot = opened.new_boot
        self.damage = opened.damage
        if self.damage is not None:
            self.recovery.damage = str(self.damage)
        self._chain.attach(opened.segments)
        self._usable = True
        if not self.read_only:
            self._open_writer()
        self.rewind()

    @property
    def control(self) -> ControlPage:
        """The control page, for the fields that are the layer above's, too."""
        if self._page is None:
            raise StorageError(f"{self.names.lock}: there is no control page", path=self.names.lock)
        return self._page

    @property
    def unproven(self) -> bool:
        """May numbers that somebody saw be missing from the log? True, for every handle, until `proven`."""
        if self._words is None or self.read_only:
            return self._opened.unproven
        return bool(self._words[UNPROVEN])

    def proven(self) -> None:
        """The layer above has seen to it that no number is given out again. The caller holds the lock."""
        self._words[UNPROVEN] = 0

    def rewind(self) -> None:
        """Put the cursor before the first record that counts: what a snapshot said is of no use."""
        first = next(iter(self._chain.segments.values()))
        self._chain.place(first, first.base, first.header.previous_checksum, None)

    def _open_writer(self) -> None:
        """Have the descriptor through which the newest segment is written.

        Without the lock, what is the newest here may have left already: then there is nothing to write in it,
        and catching up opens the one that is.
        """
        newest = self._chain.newest
        if self.read_only or (self._writing is not None and self._writing[0] == newest.number):
            return
        before, self._writing = self._writing, None
        if before is not None and self._commit is not None:
            self._commit.close_later(before[1])
        try:
            self._writing = newest.number, files.open_write(newest.path)
        except FileNotFoundError as error:
            if self._words is None or self._words[ACTIVE] <= newest.number:
                raise not_opened(newest.path, error) from error
        except OSError as error:
            raise not_opened(newest.path, error) from error

    # -- the lock -----------------------------------------------------------------------------------

    def lock(self) -> bool:
        """Take the mutex and the file lock, and see to it that the log can be appended to.

        Returns:
            Whether there is news: records that this handle has not read, or numbers that are `unproven`.

        Raises:
            LockTimeoutError: others had it for the whole timeout.
            StorageError: the handle must be opened anew (poison, a repair, a replaced lock file).
            QueueClosedError: it was closed.
            Restart: it was opened anew, after a fork or under a new lock file; load the state again.
        """
        mutex = self.mutex
        if not mutex.acquire(False) and not mutex.acquire(timeout=self.lock_timeout):
            raise LockTimeoutError(
                f"{self.names.lock}: another thread of this process held the handle for"
                f" {self.lock_timeout:g} s",
                pid=os.getpid(),
            )
        try:
            if not self._usable or self.read_only:
                self._become_usable()
            fd = self._lock_fd
            if fd is not None and not locking.try_lock(fd):
                locking.acquire(fd, self.lock_timeout, self.names.lock, self._holder)
        except BaseException:
            self._let_go()
            raise
        try:
            if fd is None or not locking.in_place(fd, fmt.CONTROL_SIZE):
                self._lock_file_changed()
            words = self._words
            if words[LINEAGE] != self._lineage or words[POISON] or words[HOLDER]:
                self._inspect()
            words[HOLDER] = self._pid
            return bool(words[APPENDED] != self._chain.cursor or words[UNPROVEN])
        except BaseException:
            if self._lock_fd is not None:
                locking.unlock(self._lock_fd)
            self._let_go()
            raise

    def unlock(self) -> None:
        """Give the lock back. Harmless in a child that was forked while it was held."""
        if self.forked:
            return
        if not self._unfinished:
            self._words[HOLDER] = 0
        locking.unlock(self._lock_fd)
        self.mutex.release()

    def _let_go(self) -> None:
        self.mutex.release()

    def _holder(self) -> int:
        return int(self._words[HOLDER]) if self._words is not None else 0

    def _become_usable(self) -> None:
        """Refuse when closed; open anew in a forked child."""
        if self.closed:
            raise QueueClosedError(
                f"{self.directory}: the handle on queue {self.name!r} was closed; open it again"
            )
        if self.read_only:
            raise StorageError(f"{self.directory}: opened read-only", path=self.directory)
        self._pid = os.getpid()
        self._tag = f"{self._pid}-{next(_handles)}"
        self._open()
        self.forked = False
        raise Restart

    def _lock_file_changed(self) -> None:
        """Under the lock: its file was removed, replaced or cut short; or it could not be opened before."""
        fd = self._lock_fd
        if fd is not None and files.size_of(fd) < fmt.CONTROL_SIZE and locking.in_place(fd, 0):
            files.preallocate(fd, fmt.CONTROL_SIZE)
            self.control.zero()  # what is left of it is not to be believed: no handle's lineage
            return
        self._take_lock_file_again()

    def _take_lock_file_again(self) -> None:
        try:
            _, page = self._take_lock_file()
        except OSError as error:
            raise not_opened(self.names.lock, error) from error
        if page.sound():
            raise self._refusal("its lock file was replaced")
        self._settle_into(opening.open_writable(self.names, page, self.boot, self.segment_size))
        raise Restart

    def _refusal(self, why: str) -> StorageError:
        return StorageError(
            f"{self.directory}: {why}; this handle on queue {self.name!r} can do nothing more: close it"
            " and open the"
            " queue again",
            path=self.directory,
        )

    def _refuse_stale(self) -> None:
        """Raise when the log went on without this handle."""
        if self._words[POISON]:
            raise self._refusal("a sync of it failed, in this or another process")
        if self._words[LINEAGE] != self._lineage:
            raise self._refusal("it was repaired, or its control page was lost")

    def _inspect(self) -> None:
        """Under the lock: why is the control page not as usual?"""
        self._refuse_stale()
        logger().info("%s: process %d did not end what it did", self.names.lock, self._words[HOLDER])
        try:
            self._settle()
        except OSError as error:
            raise StorageError(
                f"{self.directory}: cannot be repaired: {because(error)}", path=self.directory
            ) from error

    def _settle(self) -> None:
        """Under the lock, after its holder died: adopt what is whole, cut what is not."""
        chain, words, page = self._chain, self._words, self.control
        while chain.learn_next():
            pass
        newest = chain.newest
        self._open_writer()
        recovery.remove_half_made(self.names, newest.number + 1)
        if words[ACTIVE] != newest.number:
            # Its maker may not have come to the sync of its name; what it follows was synced before.
            files.sync_directory(self.names.directory)
            page.say(DURABLE, max(page.least(DURABLE), newest.base))
        start, checksum, chained = fmt.SEGMENT_HEADER_SIZE, newest.header.previous_checksum, True
        if chain.reading is newest:
            start, checksum, chained = chain.offset, chain.checksum, chain.chained
        fd = self._writing[1] if self._writing is not None else -1
        tail = recovery.find_tail(recovery.file_reader(fd), newest, start, checksum, chained=chained)
        damage = recovery.find_damage(fd, newest, tail, page.least(APPENDED))
        if damage is not None:
            raise damage
        before = self.recovery.bytes_discarded
        recovery.cut(fd, self.names, newest, tail, self.recovery)
        if self.recovery.bytes_discarded != before:
            words[UNPROVEN] = ctl.YES
        page.say(APPENDED, newest.origin + tail.end)
        page.say(ACTIVE, newest.number)
        words[FLOOR] = max(words[FLOOR], tail.floor)
        self._unfinished = False

    # -- forks, closing -----------------------------------------------------------------------------

    def after_fork(self) -> None:
        """In a forked child: close inherited descriptors, renew mutexes. Takes no lock."""
        if self.closed:
            return
        self.mutex = threading.Lock()
        self._waiters = self._waiters.after_fork()
        if self.read_only:
            return
        self.forked = True
        self._usable = False
        for fd in (self._lock_fd, self._open_fd, self._writing[1] if self._writing else None):
            if fd is not None:
                os.close(fd)
        self._lock_fd = self._open_fd = self._writing = None
        if self._commit is not None:
            self._commit.abandon()
            self._commit = None

    def _drop_lock_file(self) -> None:
        self._words = self._page = None
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _release_files(self) -> None:
        """Close everything; the kernel frees the locks with it."""
        self._usable = False
        self.closed = True
        self._chain.release()
        self._waiters.close()
        if self._commit is not None:
            self._commit.close()
            self._commit = None
        if self._writing is not None:
            os.close(self._writing[1])
            self._writing = None
        self._drop_lock_file()
        if self._open_fd is not None:
            os.close(self._open_fd)
            self._open_fd = None
