"""The log and the state that its records give, for readers: following what is appended, by whomever.

Invariants
- The state is what the records up to the log's cursor say, or it is not believed (`loaded`).
- A record that does not fit is never passed: a writer stops with an error, a reader shows what stands before
  it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from nobroker.errors import CorruptLogError
from nobroker.state import codes, kinds, snapshots
from nobroker.state.machine import State
from nobroker.state.replay import MISFITS, apply
from nobroker.stores.reading import Reader
from nobroker.stores.rows import fitting_head, index_rows
from nobroker_mmap.errors import Restart
from nobroker_mmap.log import Log
from nobroker_mmap.offsets import Piece
from nobroker_mmap.record import Record

INDEXED: Final = frozenset({kinds.ENQUEUE, *kinds.WHOLE})
MOVED: Final = kinds.WHOLE
_TRIM_AFTER: Final = 1000
"""Records of others."""


class Options(NamedTuple):
    """How a queue was opened; see `nobroker.queue.Queue`."""

    fsync: bool = True
    visibility_us: int = 30_000_000
    lock_timeout: float = 10.0
    segment_size: int = 16 * 2**20
    max_bytes: int | None = None
    auto_compact: bool = True
    keep_done_us: int = 3_600_000_000
    read_only: bool = False


class Following:
    """An open log, its state, and the reader of its values."""

    def __init__(self, directory: str, name: str, options: Options, boot_id: str) -> None:
        self.options = options
        self.log = Log(
            directory,
            name,
            segment_size=options.segment_size,
            fsync=options.fsync,
            lock_timeout=options.lock_timeout,
            read_only=options.read_only,
            boot_id=boot_id,
            rows=index_rows,
            indexed_types=INDEXED,
            moved_types=MOVED,
        )
        self.state = State()
        self.reader = Reader(self.log)
        self.loaded = False
        self._halted = False
        self._untrimmed = 0

    def spoil(self) -> None:
        """Throw the state away; the next use loads it from the log."""
        self.loaded = False

    def reading(self) -> AbstractContextManager[bool]:
        """For reads: the state is not changed by other threads meanwhile."""
        return self.log.mutex

    def follow(self) -> None:
        """Under the mutex, without the file lock: apply what has been appended."""
        log = self.log
        log.ensure_open()
        log.ensure_reachable()
        if self._halted:
            return
        if not self.loaded or log.forked or log.behind():
            self.catch_up()

    def lost(self, seq: int) -> CorruptLogError:
        """The error for a job that the state knows and the log does not hold."""
        return CorruptLogError(
            f"job number {seq} is known but stands in no segment of {self.log.path}. "
            "Run `nobroker check`, then `nobroker recover --salvage`",
            path=self.log.path,
            offset=0,
        )

    def refuse_losses(self, pieces: list[Piece], first: int, last: int) -> None:
        """See that each known job of `first`...`last` is in one of the pieces that the log found for them.

        Raises:
            CorruptLogError: one is not.
        """
        pages = self.state.pages
        gap = first
        for upto, following in [(piece.first - 1, piece.last + 1) for piece in pieces] + [(last, last + 1)]:
            if gap <= upto and pages.count_in(gap, upto, codes.NONE) != upto - gap + 1:
                raise self.lost(next(seq for seq in range(gap, upto + 1) if pages.code(seq)))
            gap = max(gap, following)

    def catch_up(self) -> None:
        """Apply what peers appended; load the state when there is none, or when it can't be followed."""
        for _ in range(100):
            try:
                if not self.loaded:
                    self._load()
                self._replay()
                return
            except Restart:
                self.loaded = False
            except BaseException:
                self.loaded = False  # the cursor may be past what was not applied
                raise
        raise CorruptLogError(
            "the log changes faster than it can be read; try again", path=self.log.path, offset=0
        )

    def _load(self) -> None:
        self.reader.forget()
        objects = self.log.load_snapshot()
        state = None
        if objects is not None:
            try:
                state = snapshots.restore(objects)
            except (*MISFITS, StopIteration):
                state = None  # a snapshot is a cache: the log itself is read instead
            if state is None:
                self.log.rewind()
        self.state = State() if state is None else state
        self.loaded = True

    def _replay(self) -> None:
        for record in self.log.records():
            self._untrimmed += 1
            try:
                apply(self.state, record.type, fitting_head(record), record.lsn)
            except (*MISFITS, CorruptLogError) as error:
                self._stop_at(record, error)
                return
        if self._untrimmed > _TRIM_AFTER:
            self._untrimmed = 0
            self.state.ready.trim()

    def _stop_at(self, record: Record, cause: Exception) -> None:
        """A record that verifies and still is none of ours. Reading only, what stands before it is shown."""
        error = CorruptLogError(
            f"record at offset {record.offset} of segment {record.segment} in {self.log.path} does not fit: "
            f"{cause!r}. Run `nobroker check`, then `nobroker recover --salvage`",
            path=self.log.path,
            offset=record.offset,
        )
        if not self.options.read_only:
            raise error from cause
        self._halted = True
        self.log.note_damage(error)
