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

from sortedcontainers import SortedList

from nobroker.state.codes import DELAYED, READY, RETRY, RETRY_LATER
from nobroker.state.gates import Gate, Group
from nobroker.state.numbers import each
from nobroker.state.runs import SMALL, Run
from nobroker.state.taking import Piece, Taking

__all__ = ["Piece", "ReadyIndex"]


class ReadyIndex(Taking):
    """Waiting jobs of all lanes: putting in, and what time does."""

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
        # Most groups have one job, and there may be a million: it has a run of its own, that takes no others.
        if count < SMALL and not expires and (group is None or group.rows):
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
            self._lane(run.lane, self.lanes).add((*run.key(), run))
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
        rows = self._lane(entry.lane, self.lanes) if group is None else group.rows
        row = (-entry.priority, entry.avail, seq, None)
        if row in rows:
            return
        if group is None:
            rows.add(row)
        else:
            self.add_to_group(group, row)

    def drop_own(self, seq: int) -> None:
        """Take the row of a waiting job with an entry out: it gets another, perhaps over and over."""
        entry = self._entries[seq]
        if self._pages.code(seq) == RETRY_LATER:
            queue = self.later_wall if entry.wall else self.later
            queue.discard((entry.avail, seq, None))
            return
        group = self.of.get(seq)
        rows = self._lane(entry.lane, self.lanes) if group is None else group.rows
        rows.discard((-entry.priority, entry.avail, seq, None))

    # -- time

    def next_due(self) -> tuple[int | None, int | None]:
        """When the next waiting job becomes due: by queue time and by wall clock, None for never."""
        return (
            self.later[0][0] if self.later else None,
            self.later_wall[0][0] if self.later_wall else None,
        )

    def promote(self, now: int, wall: int) -> None:
        """Move what is due by now from the later lists to the lanes, and let rates count up to now."""
        self.now = now
        if self.later and self.later[0][0] <= now:
            self._promote(self.later, now)
        if self.later_wall and self.later_wall[0][0] <= wall:
            self._promote(self.later_wall, wall)
        if self._timed:
            self.open_rates()

    def _promote(self, queue: SortedList[tuple[int, int, Run | None]], now: int) -> None:
        while queue and queue[0][0] <= now:
            avail, seq, run = queue.pop(0)
            if run is None:
                entry = self._entries.get(seq)
                if (
                    entry is not None
                    and (entry.avail, entry.wall) == (avail, queue is self.later_wall)
                    and self._pages.code(seq) == RETRY_LATER
                ):
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

    def put_back(self, pieces: Iterable[Piece]) -> None:
        """Undo a `take` that came to nothing."""
        gates: dict[Gate, None] = {}
        for piece in pieces:
            avails = iter(piece.avail if isinstance(piece.avail, list) else repeat(piece.avail))
            for seq in each(piece.spans):
                group = self.of.get(seq)
                if group is not None:
                    gates.update(dict.fromkeys(group.gates))
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
                    self.add_run(Run(*own, group=group))
        for gate in gates:
            self._freed(gate)
        self.stand_as_recorded()
