"""The ready index: who is delivered next.

Two kinds of rows stand in it: runs (see `runs`) and single jobs that have an entry of their own (retried,
released, requeued). Per lane one sorted list holds what is due, by delivery key; two more, for all lanes,
hold what is not due yet, by queue time and by wall clock.

Invariants
- A row never stands behind its true key: taking jobs off a run's front makes its key grow, and the row is
  put back when it is met (`_front`). So the first row of a list is the next job, or shows at once that it is
  not.
- Rows are hints. A job that was leased, cancelled or finished elsewhere is skipped by its byte in the
  census; so nobody has to search rows.
- No two rows say the same, so that none is taken twice.
- Rows overlap freely: taking from a run stops where the next row's key begins.

Jobs with limits stand in groups (see `parking`): a group is a row of its lane, by the key of its first job.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from sortedcontainers import SortedList

from nobroker.state.codes import DELAYED, READY, RETRY, RETRY_LATER
from nobroker.state.entries import Entries
from nobroker.state.gates import Gate, Group
from nobroker.state.numbers import each, ranges_of
from nobroker.state.pages import Pages
from nobroker.state.parking import Parking
from nobroker.state.runs import SMALL, Key, Run
from nobroker.state.waiting import Row


class Piece(NamedTuple):
    """Jobs taken together: they share everything but, perhaps, their time."""

    spans: list[int]
    size: int
    lane: str
    priority: int
    max_attempts: int
    expires: int
    avail: int | list[int]


class ReadyIndex(Parking):
    """Waiting jobs of all lanes: putting in and taking out."""

    def __init__(self, pages: Pages, entries: Entries) -> None:
        super().__init__(pages, entries)
        self._tails: dict[tuple[str | Group, int, int], Run] = {}

    # -- putting in

    def add_batch(
        self,
        lane: str,
        priority: int,
        max_attempts: int,
        expires: int,
        seq: int,
        count: int,
        avail: int,
        group: Group | None = None,
    ) -> None:
        """Jobs that are due, with adjacent sequence numbers and one time."""
        if count < SMALL and not expires:
            key = (group or lane, priority, max_attempts)
            tail = self._tails.get(key)
            if tail is not None and tail.low < tail.high and tail.append(seq, count, avail):
                return
            avails = array("q", [avail]) * count
            run = Run(lane, -priority, max_attempts, 0, seq, count, 0, avails=avails, group=group)
            self._tails[key] = run
        else:
            run = Run(lane, -priority, max_attempts, expires, seq, count, avail, group=group)
        self.add_run(run)

    def add_run(self, run: Run) -> None:
        if run.group is None:
            self._lane(run.lane).add((*run.key(), run))
        else:
            self.add_to_group(run.group, (*run.key(), run))

    def add_later(self, run: Run) -> None:
        queue = self.later_wall if run.wall else self.later
        queue.add((run.avail_at(run.low), run.seq_at(run.low), run))

    def add_own(self, seq: int, later: bool) -> None:
        """A job with an entry of its own.

        One that was leased in another handle and released has its old row still, which is true again.
        """
        entry = self._entries[seq]
        if later:
            queue = self.later_wall if entry.wall else self.later
            due = (entry.avail, seq, None)
            if due not in queue:
                queue.add(due)
            return
        group = self.of.get(seq)
        rows = self._lane(entry.lane) if group is None else group.rows
        row = (-entry.priority, entry.avail, seq, None)
        if row in rows:
            return
        if group is None:
            rows.add(row)
        else:
            self.add_to_group(group, row)

    # -- time

    def next_due(self) -> tuple[int | None, int | None]:
        """When the next waiting job becomes due: by queue time and by wall clock, None for never."""
        return (
            self.later[0][0] if self.later else None,
            self.later_wall[0][0] if self.later_wall else None,
        )

    def promote(self, now: int, wall: int) -> None:
        """Move what is due by now from the later lists to the lanes."""
        if self.later and self.later[0][0] <= now:
            self._promote(self.later, now)
        if self.later_wall and self.later_wall[0][0] <= wall:
            self._promote(self.later_wall, wall)

    def _promote(self, queue: SortedList[tuple[int, int, Run | None]], now: int) -> None:
        while queue and queue[0][0] <= now:
            avail, seq, run = queue.pop(0)
            if run is None:
                entry = self._entries.get(seq)
                if entry is not None and entry.avail == avail and self._pages.code(seq) == RETRY_LATER:
                    self._pages.put(seq, RETRY)
                    self.add_own(seq, later=False)
                continue
            due = run.cut(run.due_before(now))
            self._mark_ready(due)
            self.add_run(due)
            if run.low < run.high:
                self.add_later(run)

    def _mark_ready(self, run: Run) -> None:
        pages = self._pages
        if (
            run.seqs is None
            and pages.count_in(run.seq_at(run.low), run.seq_at(run.high - 1), DELAYED) == run.high - run.low
        ):
            pages.fill(run.seq_at(run.low), run.seq_at(run.high - 1), READY)
            return
        for index in range(run.low, run.high):
            seq = run.seq_at(index)
            if pages.code(seq) == DELAYED:
                pages.put(seq, READY)

    # -- taking out

    def take(self, count: int, lanes: Iterable[str] | None, paused: frozenset[str | None]) -> list[Piece]:
        """Take up to `count` jobs off the front, in the order of delivery.

        A job on its last try whose lease expired before is taken alone.
        """
        if count == 1 and lanes is None and not paused and len(self.lanes) == 1:
            first = self._take_first()
            if first is not None:
                return [first]
        pieces: list[Piece] = []
        chosen: list[Gate] = []
        while count > 0:
            rows, limit = self._front(lanes, paused)
            if rows is None:
                break
            group, most = None, count
            if isinstance(rows[0][3], Group):
                group = rows[0][3]
                rows, most = group.rows, min(count, group.room())
                if len(rows) > 1 and (limit is None or rows[1][:3] < limit):
                    limit = rows[1][:3]
            _, _, seq, run = rows[0]
            alone = run is None and self._entries[seq].last_chance
            if alone and pieces:
                break
            piece = self._take_row(rows, most, limit)
            pieces.append(piece)
            count -= piece.size
            if group is not None:
                for gate in group.gates:
                    gate.taking += piece.size
                    chosen.append(gate)
                self._again(group)
            if alone:
                break
        for gate in chosen:
            gate.taking = 0
        return pieces

    def _take_row(self, rows: SortedList[Row], count: int, limit: Key | None) -> Piece:
        """Take from the first row, which is true."""
        _, _, seq, run = rows[0]
        if not isinstance(run, Run):
            rows.pop(0)
            return self._own_piece(seq)
        piece = self._take_run(run, count, limit)
        if run.low >= run.high:
            self._drop_first(rows)
        return piece

    def _take_first(self) -> Piece | None:
        """Take the front of the only lane where that is a job of a run without gaps, and it is sure to be
        next: the commonest lease. None says to look properly.
        """
        (rows,) = self.lanes.values()
        if not rows:
            return None
        run = rows[0][3]
        if not isinstance(run, Run) or run.seqs is not None:
            return None
        low, avails = run.low, run.avails
        seq = run.base + low
        avail = run.avail if avails is None or low >= run.high else avails[low]
        if (
            low >= run.high
            or self._pages.code(seq) != READY
            or (len(rows) > 1 and rows[1][:3] <= (run.nprio, avail, seq))
        ):
            return None
        run.low = low + 1
        if run.low == run.high:
            self._drop_first(rows)
        return Piece([seq, seq], 1, run.lane, -run.nprio, run.max_attempts, run.expires, avail)

    def put_back(self, pieces: Iterable[Piece]) -> None:
        """Undo a `take` that came to nothing."""
        for piece in pieces:
            avails = iter(piece.avail if isinstance(piece.avail, list) else repeat(piece.avail))
            for seq in each(piece.spans):
                if self._pages.code(seq) == RETRY:
                    self.add_own(seq, later=False)
                else:
                    own = (
                        piece.lane,
                        -piece.priority,
                        piece.max_attempts,
                        piece.expires,
                        seq,
                        1,
                        next(avails),
                    )
                    self.add_run(Run(*own, group=self.of.get(seq)))

    def has_ready(self, lanes: Iterable[str] | None, paused: frozenset[str | None]) -> bool:
        return self._front(lanes, paused)[0] is not None

    def _front(
        self, lanes: Iterable[str] | None, paused: frozenset[str | None]
    ) -> tuple[SortedList[Row] | None, Key | None]:
        """The lane whose first job is next, and the key at which another row's turn begins."""
        empty: list[str] = []
        best: SortedList[Row] | None = None
        best_key: Key | None = None
        rival: Key | None = None
        for lane in self.lanes if lanes is None else lanes:
            rows = self.lanes.get(lane)
            if rows is None or lane in paused:
                continue
            key = self._settle(rows)
            if key is None:
                empty.append(lane)
                continue
            if best_key is None or key < best_key:
                if best_key is not None and (rival is None or best_key < rival):
                    rival = best_key
                best, best_key = rows, key
            elif rival is None or key < rival:
                rival = key
        for lane in empty:
            del self.lanes[lane]
        if best is not None and len(best) > 1:
            second = best[1][:3]
            if rival is None or second < rival:
                rival = second
        return best, rival

    def _settle(self, rows: SortedList[Row]) -> Key | None:
        """Make the first row one that is true: still waiting, and before the second one."""
        while rows:
            row: Row = rows[0]
            nprio, avail, seq, run = row
            if run is None:
                entry = self._entries.get(seq)
                if entry is not None and entry.avail == avail and self._pages.code(seq) == RETRY:
                    return (nprio, avail, seq)
                rows.pop(0)
                continue
            if isinstance(run, Group):
                key = self._settle(run.rows)
                if key == row[:3] and run.room() > 0:
                    return key
                self._again(run, key)
                continue
            self._skip(run)
            if run.low >= run.high:
                self._drop_first(rows)
                continue
            key = run.key()
            if len(rows) == 1 or key < rows[1][:3]:
                return key
            rows.pop(0)
            rows.add((*key, run))
        return None

    def _drop_first(self, rows: SortedList[Row]) -> None:
        """Let go of a run that is used up, its arrays included."""
        run = rows.pop(0)[3]
        if isinstance(run, Run):
            key = (run.group or run.lane, -run.nprio, run.max_attempts)
            if self._tails.get(key) is run:
                del self._tails[key]

    def _skip(self, run: Run) -> None:
        """Move a run's front past jobs that no longer wait."""
        pages = self._pages
        if run.seqs is None:
            found = (
                pages.next_with(run.base + run.low, run.base + run.high - 1, READY)
                if run.low < run.high
                else -1
            )
            run.low = run.high if found < 0 else found - run.base
            return
        while run.low < run.high and pages.code(run.seq_at(run.low)) != READY:
            run.low += 1

    def _take_run(self, run: Run, count: int, limit: Key | None) -> Piece:
        end = min(run.index_before(limit), run.high)
        taken: list[int] = []
        avails: list[int] = []
        spans: list[int] = []
        pages = self._pages
        if run.seqs is None:
            first = run.base + run.low
            length = pages.span_with(first, min(run.base + end, first + count) - 1, READY)
            spans = [first, first + length - 1]
            size = length
            if run.avails is not None:
                avails = list(run.avails[run.low : run.low + length])
            run.low += length
        else:
            index = run.low
            while index < end and len(taken) < count:
                seq = run.seq_at(index)
                if pages.code(seq) == READY:
                    taken.append(seq)
                    if run.avails is not None:
                        avails.append(run.avails[index])
                index += 1
            run.low = index
            size = len(taken)
            spans = ranges_of(taken)
        avail: int | list[int] = run.avail
        if avails:
            avail = avails[0] if avails[0] == avails[-1] else avails
        return Piece(spans, size, run.lane, -run.nprio, run.max_attempts, run.expires, avail)

    def _own_piece(self, seq: int) -> Piece:
        entry = self._entries[seq]
        return Piece([seq, seq], 1, entry.lane, entry.priority, entry.max_attempts, 0, entry.avail)

    def trim(self) -> None:
        """Let go of rows that no longer wait: for processes that only produce and never take."""
        for lane in [lane for lane, rows in self.lanes.items() if self._settle(rows) is None]:
            del self.lanes[lane]
