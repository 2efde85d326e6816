"""Compaction: segments leave from the front of the log, the jobs in them that are still needed move to the
tail first.

Invariants
- A segment leaves only after each job whose newest copy it holds was moved or may be forgotten, and after
  all that was moved is durable.
- Whether a job may be forgotten never changes back; so one pass over a segment, in steps, under the lock at
  each step only, is enough.
- A step does a bounded piece of work. Any number of processes may compact at once: each finds done what
  another did.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from nobroker.errors import CompactionError, StorageError
from nobroker.reports import CompactionResult
from nobroker.state import codes, kinds
from nobroker.state.machine import Head
from nobroker.state.numbers import pack_words
from nobroker.state.owned import id_digest
from nobroker.state.pages import SIZE
from nobroker.state.replay import apply
from nobroker.stores.decoded import Decoded
from nobroker.stores.session import Part, Session
from nobroker.stores.whole import Bundle, whole_job
from nobroker.values import BATCH_BYTES
from nobroker_mmap.log import Log

_STEP_JOBS: Final = 512
_BREATH_S: Final = 0.002
"""Between two steps of `compact`: longer than those sleep who wait for the lock, so that they get it."""
_STEP_LOOKS: Final = 4096
AUTO_BYTES: Final = 64 * 2**20
"""Logs below this size are left alone unless somebody asks."""


class Pass:
    """What one compactor has found out about the front segment."""

    def __init__(self, number: int, rows: Iterable[tuple[int, int]]) -> None:
        self.number = number
        self.rows = iter(rows)
        self.rest: tuple[int, int] | None = None
        self.forgotten: list[int] = []
        """Flat ranges, not in order."""
        self.digests: dict[int, int] = {}
        self.looked_through = False


class Mover:
    """Compacts a log."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pass: Pass | None = None
        self._last: int | None = None
        self._checked = 0

    def compact(self) -> CompactionResult:
        """All of it, now.

        Raises:
            CompactionError: the disk refused; the queue works on as it is.
        """
        session = self._session
        self._flush()
        with session.transaction():
            before = session.log.bytes_used()
            last = session.log.active_number
            try:
                session.log.seal()
            except StorageError as error:
                raise self._stopped(error) from error
            total = sum(sum(counts) for counts in session.state.pages.counts)
            done = session.state.pages.total(codes.DONE)
        try:
            while self.step(last):
                time.sleep(_BREATH_S)
            with session.transaction():
                after = session.log.bytes_used()
                state = session.state
                dropped = max(0, done - state.pages.total(codes.DONE))
        except StorageError as error:
            raise self._stopped(error) from error
        return CompactionResult(before, after, max(0, total - dropped), dropped)

    def _stopped(self, error: StorageError) -> CompactionError:
        where = self._session.log.path
        return CompactionError(f"compaction of {where} stopped: {error}. The queue is unharmed")

    def rests(self) -> bool:
        """Whether there is nothing to do, and no new segment to think about: the cheap look at every call."""
        return self._last is None and self._session.log.active_number == self._checked

    def step_if_due(self) -> None:
        """A bounded piece, when the log is due for it: called after an append, outside the lock."""
        session = self._session
        if self._last is None:
            newest = session.log.active_number
            if newest == self._checked:
                return
            self._checked = newest
            if not self._due():
                return
            self._last = newest - 1
        if not self.step(self._last):
            self._last = None

    def _due(self) -> bool:
        """Whether more than half of a log over 64 MiB is dead, judging by the average size of a job."""
        session = self._session
        with session.reading():
            size = session.log.bytes_used()
            if size <= AUTO_BYTES:
                return False
            state = session.state
            counts = [sum(lane[code] for lane in state.pages.counts) for code in range(codes.COUNT)]
            live = sum(counts) - counts[codes.DONE]
            held = _jobs_held(session.log)
        return live * (size / max(held, 1)) < size / 2

    def step(self, last: int) -> bool:
        """One piece of work on the front segment; False when segments up to `last` have left."""
        session = self._session
        if self._pass is not None and self._pass.looked_through:
            self._flush()
        with session.transaction() as now:
            front = session.log.front_number
            if front > last or front >= session.log.active_number:
                self._pass = None
                return False
            work = self._pass
            if work is None or work.number != front:
                work = self._pass = Pass(front, _key_ranges(session.log, front))
            if work.looked_through:
                self._retire(work)
                self._pass = None
                return True
            moved = self._gather(work, now)
            if moved:
                session.append(moved)
            work.looked_through = not moved and work.rest is None
        return True

    def _flush(self) -> None:
        """Have everything on the disk before the lock is taken: nobody shall wait for it behind the lock."""
        log = self._session.log
        log.ensure_reachable()
        log.wait_durable(log.position, force=True)

    def _gather(self, work: Pass, now: int) -> list[Part]:
        """Go on through the segment's keys until there is enough to move, or enough was looked at."""
        bundle = Bundle(now)
        looked = 0
        while looked < _STEP_LOOKS and bundle.jobs < _STEP_JOBS and bundle.size < BATCH_BYTES:
            span = work.rest
            work.rest = None
            if span is None:
                span = next(work.rows, None)
            if span is None:
                return bundle.parts()
            first, last = self._session.state.pages.skip_unknown(span[0]), span[1]
            looked += 1
            if first > last:
                continue
            stop = min(last, first + SIZE - 1)
            if self._forget_whole(work, first, stop):
                looked += 1
            else:
                stop = min(last, first + _STEP_JOBS - 1)
                looked += _STEP_JOBS
                self._sort_out(work, bundle, first, stop, now)
            if stop < last:
                work.rest = (stop + 1, last)
        if work.rest is None:
            work.rest = next(work.rows, None)
        return bundle.parts()

    def _forget_whole(self, work: Pass, first: int, last: int) -> bool:
        """Jobs that are all unknown, or all finished with nothing to remember and no later copy: as one
        range.
        """
        pages = self._session.state.pages
        if pages.count_in(first, last, codes.NONE) == last - first + 1:
            return True
        if not pages.plain(first, last, codes.DONE) or self._session.log.moved_since(
            work.number, first, last
        ):
            return False
        work.forgotten += (first, last)
        return True

    def _sort_out(self, work: Pass, bundle: Bundle, first: int, last: int, now: int) -> None:
        session = self._session
        state = session.state
        pieces = session.log.find(first, last)
        session.refuse_losses(pieces, first, last)  # retiring their segment would hide them
        for piece in pieces:
            if piece.segment.number != work.number:
                continue
            decoded: Decoded | None = None
            for seq in range(piece.first, piece.last + 1):
                code = state.pages.code(seq)
                if code == codes.NONE:
                    continue
                if self._may_go(seq, code, now):
                    work.forgotten += (seq, seq)
                    if state.pages.has_own_id(seq):
                        decoded = decoded or session.reader.of(piece)
                        work.digests[seq] = id_digest(decoded.head["i"][piece.index + seq - piece.first])
                else:
                    decoded = decoded or session.reader.of(piece)
                    bundle.add(whole_job(session, seq, decoded, piece))

    def _may_go(self, seq: int, code: int, now: int) -> bool:
        if code != codes.DONE:
            return False
        ref = self._session.state.pages.ref(seq)
        return not ref or self._session.reader.keep_until(ref, seq) <= now

    def _retire(self, work: Pass) -> None:
        session = self._session
        state = session.state
        head: Head = {
            "g": _merged(work.forgotten),
            "B": {
                "s": state.next_seq,
                "k": state.next_token,
                "S": state.reserved_seq,
                "K": state.reserved_token,
                "t": state.time,
                "p": list(state.paused),
                **{key: value for key, value in state.ready.lasting().items() if value},
                "c": {"b": state.boot, "a": [[name, *anchor] for name, anchor in state.anchors.items()]},
            },
        }
        digests = [digest for seq, digest in work.digests.items() if state.pages.code(seq) == codes.DONE]
        if digests:
            head["h"] = pack_words("Q", digests)
        session.unsettle()
        lsn = session.log.retire(work.number + 1, head)
        apply(state, kinds.RETIRE, head, lsn)


def _jobs_held(log: Log) -> int:
    """About how many jobs a log holds, finished ones included."""
    return sum(max(0, info.last_key - info.first_key + 1) + info.moved_rows for info in log.segments())


def _key_ranges(log: Log, number: int) -> list[tuple[int, int]]:
    """Ranges of sequence numbers of which a segment may have a copy, ascending."""
    (low, high), moved = log.keys_of(number)
    found = [(first, first + count - 1) for first, _, count in moved]
    if low <= high:
        found.append((low, high))
    spans = _merged([number for span in sorted(found) for number in span])
    return list(zip(spans[::2], spans[1::2], strict=True))


def _merged(spans: list[int]) -> list[int]:
    """Flat ranges in order, neighbours and overlaps as one."""
    merged: list[int] = []
    for first, last in sorted(zip(spans[::2], spans[1::2], strict=True)):
        if merged and first <= merged[-1] + 1:
            merged[-1] = max(merged[-1], last)
        else:
            merged += (first, last)
    return merged
