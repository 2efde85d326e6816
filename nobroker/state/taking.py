"""Taking jobs off the ready index: who is next. See `ready`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sortedcontainers import SortedList

from nobroker.lanes import Lanes, Selection
from nobroker.state.codes import LEASED, READY, RETRY
from nobroker.state.entries import Entries
from nobroker.state.gates import Gate, Group, Rows
from nobroker.state.numbers import ranges_of
from nobroker.state.pages import Pages
from nobroker.state.parking import Parking
from nobroker.state.runs import Key, Run
from nobroker.state.shares import Fair, Share
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


class Taking(Parking):
    """Waiting jobs of all lanes: taking out."""

    def __init__(self, pages: Pages, entries: Entries) -> None:
        super().__init__(pages, entries)
        self._tails: dict[tuple[str | Group, int, int], Run] = {}
        self._turns: dict[str, int] = {}
        """When a lane was served last, for those whom lanes serve in turn; known to this process only."""
        self._turn = 0

    def take(self, count: int, lanes: Selection, paused: frozenset[str | None]) -> list[Piece]:
        """Take up to `count` jobs off the front, in the order of delivery.

        A job on its last try whose lease expired before is taken alone.
        """
        if count == 1 and not paused and len(self.lanes) == 1 and not self.guarded:
            first = self._take_first(lanes)
            if first is not None:
                if isinstance(lanes, Lanes) and lanes.order == "fair":
                    self._had_its_turn(first.lane)
                return [first]
        pieces: list[Piece] = []
        chosen: list[Gate] = []
        rooms = self._lane_rooms()
        singles = isinstance(lanes, Lanes) and (
            lanes.order == "fair" or (not lanes.by_priority and self._alone_jobs > 0)
        )
        while count > 0:
            rows, limit = self._next(lanes, self._shut(paused, rooms))
            if rows is None:
                break
            group, most = None, 1 if singles else count
            fair = rows[0][3]
            if isinstance(fair, Fair):
                rows, limit = fair.next().rows, None
            if isinstance(rows[0][3], Group):
                group = rows[0][3]
                if group.identity.alone and (pieces or not self._may_run_alone(group, lanes)):
                    break
                rows, most = group.rows, min(most, group.room())
                if len(rows) > 1 and (limit is None or rows[1][:3] < limit):
                    limit = rows[1][:3]
                limit = group.before_parked(limit)
            _, _, seq, run = rows[0]
            singly = run is None and self._entries[seq].last_chance
            if singly and pieces:
                break
            if rooms and run is not None:
                most = min(most, rooms.get(run.lane, most))
            piece = self._take_row(rows, most, limit)
            pieces.append(piece)
            count -= piece.size
            if singles:
                self._had_its_turn(piece.lane)
            if piece.lane in rooms:
                rooms[piece.lane] -= piece.size
            if group is not None:
                for gate in group.gates:
                    gate.taking += piece.size
                    chosen.append(gate)
                if isinstance(fair, Fair):
                    self.move_on(fair)
                self._again(group)
            if singly or (group is not None and group.identity.alone):
                break
        for gate in chosen:
            gate.taking = 0
        self.chosen()
        return pieces

    def _lane_rooms(self) -> dict[str, int]:
        """How many jobs of each lane with a limit may be leased now."""
        leased = self._pages.total
        return {lane: limit - leased(LEASED, lane) for lane, limit in self.lane_limits.items()}

    def _shut(self, paused: frozenset[str | None], rooms: dict[str, int]) -> frozenset[str | None]:
        """The lanes of which nothing may be leased."""
        return paused.union(lane for lane, room in rooms.items() if room <= 0) if rooms else paused

    def _may_run_alone(self, group: Group, lanes: Selection) -> bool:
        """Whether nothing is leased, and whoever asks serves the lane of the group."""
        return not self._pages.total(LEASED) and (lanes is None or group.identity.lane in lanes)

    def _take_row(self, rows: SortedList[Row], count: int, limit: Key | None) -> Piece:
        """Take from the first row, which is true."""
        _, _, seq, run = rows[0]
        if not isinstance(run, Run):
            rows.pop(0)
            return self._own_piece(seq)
        piece = self._take_run(run, count, limit)
        if run.low >= run.high:
            self._drop_first(rows, run)
        return piece

    def _take_first(self, lanes: Selection) -> Piece | None:
        """Take the front of the only lane where that is a job of a run without gaps, and it is sure to be
        next: the commonest lease. None says to look properly.
        """
        ((lane, rows),) = self.lanes.items()
        if not rows or (lanes is not None and lane not in lanes):
            return None
        first = rows[0][3]
        rival = rows[1][:3] if len(rows) > 1 else None
        if not isinstance(first, Group):
            return self._take_first_of(rows, rival)
        rows = first.rows
        if not rows or first.room() <= 0:
            return None
        if len(rows) > 1 and (rival is None or rows[1][:3] < rival):
            rival = rows[1][:3]
        piece = self._take_first_of(rows, first.before_parked(rival))
        if piece is not None:
            for gate in first.gates:
                gate.taking = 1
            self._again(first)
            for gate in first.gates:
                gate.taking = 0
        return piece

    def _take_first_of(self, rows: Rows | SortedList[Row], rival: Key | None) -> Piece | None:
        run = rows[0][3]
        if not isinstance(run, Run) or run.seqs is not None:
            return None
        low, avails = run.low, run.avails
        seq = run.base + low
        avail = run.avail if avails is None or low >= run.high else avails[low]
        if (
            low >= run.high
            or self._pages.code(seq) != READY
            or (rival is not None and rival <= (run.nprio, avail, seq))
        ):
            return None
        run.low = low + 1
        if run.low == run.high:
            self._drop_first(rows, run)
        return Piece([seq, seq], 1, run.lane, -run.nprio, run.max_attempts, run.expires, avail)

    def has_ready(self, lanes: Selection, paused: frozenset[str | None]) -> bool:
        rows, _ = self._next(lanes, self._shut(paused, self._lane_rooms()))
        if rows is None:
            return False
        group = rows[0][3]
        if not isinstance(group, Group) or not group.identity.alone:
            return True
        return self._may_run_alone(group, lanes)

    def _next(
        self, lanes: Selection, paused: frozenset[str | None]
    ) -> tuple[SortedList[Row] | None, Key | None]:
        """As `_front`, for whoever asks for lanes in an order of their own.

        A job that runs alone has its turn by priority, in every order: else those who have another order
        would never let it find the queue quiet.
        """
        if not isinstance(lanes, Lanes):
            return self._front(lanes, paused)
        served = [lane for lane in self.lanes if lane in lanes]
        if lanes.by_priority or len(served) < 2:
            return self._front(served, paused)
        if self._alone_jobs:
            rows, limit = self._front(served, paused)
            first = None if rows is None else rows[0][3]
            if rows is None or (isinstance(first, Group) and first.identity.alone):
                return rows, limit
        for tier in self._tiers(lanes, served):
            rows, limit = self._front(tier, paused, guarded=False)
            if rows is not None:
                return rows, limit
        return None, None

    def _had_its_turn(self, lane: str) -> None:
        self._turn = self._turns[lane] = self._turn + 1

    def _tiers(self, lanes: Lanes, served: list[str]) -> Iterable[Iterable[str]]:
        """The lanes in the order of their turns; those that are one by priority together."""
        if lanes.order == "fair":
            turn = self._turns.get
            return [(lane,) for lane in sorted(served, key=lambda lane: (turn(lane, 0), lanes.rank(lane)))]
        tiers: dict[int, list[str]] = {}
        for lane in served:
            tiers.setdefault(lanes.rank(lane), []).append(lane)
        return [tiers[rank] for rank in sorted(tiers)]

    def _front(
        self, lanes: Iterable[str] | None, paused: frozenset[str | None], guarded: bool = True
    ) -> tuple[SortedList[Row] | None, Key | None]:
        """The lane whose first job is next, and the key at which another row's turn begins.

        Args:
            guarded: jobs that run alone count, too.
        """
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
        if guarded and self.guarded:
            best, best_key, rival = self._guarded_front(paused, best, best_key, rival)
        if best is not None and len(best) > 1:
            second = best[1][:3]
            if rival is None or second < rival:
                rival = second
        return best, rival

    def _guarded_front(
        self,
        paused: frozenset[str | None],
        best: SortedList[Row] | None,
        best_key: Key | None,
        rival: Key | None,
    ) -> tuple[SortedList[Row] | None, Key | None, Key | None]:
        """With the jobs that run alone. One whose turn has come holds up all lanes, also for those who do not
        serve its own: else it would never find the queue quiet.
        """
        if self.alone_held:
            return None, None, None
        for lane, rows in self.alone.items():
            key = None if lane in paused else self._settle(rows)
            if key is None:
                continue
            if best_key is None or key < best_key:
                best, best_key, rival = rows, key, best_key
            elif rival is None or key < rival:
                rival = key
        return best, best_key, rival

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
            if isinstance(run, Fair):
                key = self._settle_round(run)
                if key == row[:3]:
                    return key
                rows.pop(0)
                run.place = None
                if key is None:
                    del self.fairs[run.round]
                else:
                    run.key, run.place = key, rows
                    rows.add((*key, run))
                continue
            self._skip(run)
            if run.low >= run.high:
                self._drop_first(rows, run)
                continue
            key = run.key()
            if len(rows) == 1 or key < rows[1][:3]:
                return key
            rows.pop(0)
            rows.add((*key, run))
        return None

    def _settle_round(self, fair: Fair) -> Key | None:
        """Make what stands first true, by age and by turn; the key of the oldest job, None when there is
        none.
        """
        while fair.shares:
            for share in (fair.oldest[0][3], self.first_share(fair)):
                key = self._settle(share.rows)
                if key != share.key:
                    fair.take(share)
                    if key is None:
                        del fair.shares[share.fair_key.key]
                    else:
                        fair.put(share, key)
                    break
            else:
                oldest: Share = fair.oldest[0][3]
                return oldest.key
        return None

    def _drop_first(self, rows: SortedList[Row], run: Run) -> None:
        """Let go of the first row, a run that is used up, its arrays included."""
        rows.pop(0)
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
                    avails.append(run.avail_at(index))
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
