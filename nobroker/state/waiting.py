"""The rows of waiting jobs, and looking at them without changing anything. See `ready`."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from sortedcontainers import SortedList

from nobroker.state.codes import DELAYED, READY, RETRY, RETRY_LATER
from nobroker.state.entries import Entries
from nobroker.state.gates import Gate, Group, Identity, Rate
from nobroker.state.pages import Pages
from nobroker.state.runs import Key, Run
from nobroker.state.shares import Fair, Round

Row = tuple[int, int, int, Run | Group | Fair | None]
"""The key of its first job, and a run, a group of jobs with limits, a round of such groups, or None for a job
of its own.
"""


class Waiting:
    """Waiting jobs of all lanes."""

    def __init__(self, pages: Pages, entries: Entries) -> None:
        self._pages = pages
        self._entries = entries
        self.lanes: dict[str, SortedList[Row]] = {}
        self.groups: dict[Identity, Group] = {}
        self.gates: dict[str, Gate] = {}
        self.rates: dict[str, Rate] = {}
        self.fairs: dict[Round, Fair] = {}
        self.alone: dict[str, SortedList[Row]] = {}
        """Groups of jobs that run alone, by lane: they stand here, and not among the others."""
        self.later: SortedList[tuple[int, int, Run | None]] = SortedList()
        self.later_wall: SortedList[tuple[int, int, Run | None]] = SortedList()

    def _lane(self, lane: str, lanes: dict[str, SortedList[Row]]) -> SortedList[Row]:
        rows = lanes.get(lane)
        if rows is None:
            rows = lanes[lane] = SortedList()
        return rows

    def in_order(self, lanes: Iterable[str] | None = None, more: Iterable[Key] = ()) -> Iterator[int]:
        """All waiting jobs in the order they would be delivered if no limit held them back; those not due yet
        last, by their time.

        `more` are the sorted keys of jobs that count as due, too.
        """
        rows = [row for lane, rows in self.lanes.items() if lanes is None or lane in lanes for row in rows]
        for identity, group in self.groups.items():
            if lanes is None or identity.lane in lanes:
                rows += group.rows
        seen: set[int] = set()
        added = {key[2]: key for key in more}
        for key in heapq.merge(more, *(_row_keys(row) for row in rows)):
            _, avail, seq = key
            code = self._pages.code(seq)
            if seq in added:  # a row of the time before its lease may still stand, even at the same place
                if added[seq] == key and seq not in seen:
                    seen.add(seq)
                    yield seq
            elif code == READY or (code == RETRY and self._entries[seq].avail == avail and seq not in seen):
                if code == RETRY:
                    seen.add(seq)
                yield seq
        for queue in (self.later, self.later_wall):
            wall = queue is self.later_wall
            mine = [row for row in queue if lanes is None or self._lane_of(row) in lanes]
            for _, _, seq, code in heapq.merge(
                *(_later_keys(avail, seq, run, self._entries, wall) for avail, seq, run in mine)
            ):
                if code == self._pages.code(seq) and seq not in seen:
                    if code == RETRY_LATER:
                        seen.add(seq)
                    yield seq

    def _lane_of(self, row: tuple[int, int, Run | None]) -> str:
        """The lane of what is not due yet. Of a row that speaks of nothing any more it does not matter."""
        _, seq, run = row
        if run is not None:
            return run.lane
        entry = self._entries.get(seq)
        return "" if entry is None else entry.lane

    def oldest(self, lanes: Iterable[str] | None, without: frozenset[int]) -> int | None:
        """When the longest waiting of the due jobs became available, some left out."""
        found: int | None = None
        for rows in self._places(lanes):
            at = 0
            while at < len(rows):
                group_end = rows.bisect_left((rows[at][0] + 1, -(2**63), 0))
                first = self._oldest_of(rows.islice(at, group_end), without)
                if first is not None and (found is None or first < found):
                    found = first
                at = group_end
        return found

    def _oldest_of(self, rows: Iterable[Row], without: frozenset[int]) -> int | None:
        """The smallest time among rows of one priority, which come by their first time."""
        found: int | None = None
        for row in rows:
            if found is not None and row[1] >= found:
                break
            if isinstance(row[3], Group):
                avail_in_group = self._oldest_of(row[3].rows, without)
                if avail_in_group is not None:
                    found = avail_in_group if found is None else min(found, avail_in_group)
                continue
            for _, avail, seq in _row_keys(row):
                if self._stands(row, avail, seq) and seq not in without:
                    found = avail if found is None else min(found, avail)
                    break
        return found

    def _places(self, lanes: Iterable[str] | None) -> Iterator[SortedList[Row]]:
        """Where the rows of lanes stand: in the index, or parked."""
        for by_lane in (self.lanes, self.alone):
            for lane, rows in by_lane.items():
                if lanes is None or lane in lanes:
                    yield rows
        for gate in (*self.gates.values(), *self.rates.values()):
            for (lane, _, _), rows in gate.parked.items():
                if lanes is None or lane in lanes:
                    yield rows
        for (lane, _), fair in self.fairs.items():
            if lanes is None or lane in lanes:
                for share in fair.shares.values():
                    yield share.rows

    def _stands(self, row: Row, avail: int, seq: int) -> bool:
        """Whether a row still speaks of where a job stands."""
        code = self._pages.code(seq)
        if row[3] is not None:
            return code == READY
        return code == RETRY and self._entries[seq].avail == avail


def _row_keys(row: Row) -> Iterator[Key]:
    run = row[3]
    if run is None:
        return iter([row[:3]])
    return run.keys() if isinstance(run, Run) else iter(())


def _later_keys(
    avail: int, seq: int, run: Run | None, entries: Entries, wall: bool
) -> Iterator[tuple[int, int, int, int]]:
    """The keys of a row, with the code that its jobs have while it speaks of them."""
    if run is not None:
        for nprio, due, number in run.keys():  # noqa: SIM118
            yield due, nprio, number, DELAYED
        return
    entry = entries.get(seq)
    if entry is not None and (entry.avail, entry.wall) == (avail, wall):
        yield avail, -entry.priority, seq, RETRY_LATER
