"""Jobs that are held back by limits: who belongs to which gate, and where those stand that wait.

Invariants
- `of` has each job with limits that waits or is leased; `dead` what has to be known of those that may come
  back. A gate's `held` are its leased jobs: the census says so at every change (`turned`).
- A group with jobs that are due stands in the index, or is parked at one of its gates. A gate that has room
  and a parked group on a shelf has let through another one of that shelf, whose turn is not later: so the
  first one is met when it is its turn, and nobody walks over those behind it.
- So a slot that is free is passed on until it is taken: each time the group that was let through moves, the
  next one takes its place (`_advance`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

from sortedcontainers import SortedList

from nobroker.state import codes
from nobroker.state.entries import Entries
from nobroker.state.fairness import Fairness
from nobroker.state.gates import Gate, Group, Identity, Rate, Shelf, Words, identity_of
from nobroker.state.pages import Pages
from nobroker.state.runs import Key
from nobroker.state.waiting import Row


class Buried(NamedTuple):
    """What has to be known of a dead job."""

    lane: str
    priority: int
    words: Words


class Parking(Fairness):
    """The groups of jobs with limits."""

    def __init__(self, pages: Pages, entries: Entries) -> None:
        super().__init__(pages, entries)
        self.now = 0
        self.guarded = False
        """Whether a lease has more to look at: a lane with a limit, or a job that runs alone."""
        self.lane_limits: dict[str, int] = {}
        self.of: dict[int, Group] = {}
        self.dead: dict[int, Buried] = {}
        self.alone_held: set[int] = set()
        self._alone_jobs = 0
        self._order = count()
        self._timed: list[tuple[int, int, Rate]] = []
        """Rates at which jobs wait, by when to look again."""
        self._sweep_at = 64

    # -- who belongs where

    def join(self, seqs: Iterable[int], lane: str, priority: int, words: Words) -> Group:
        """New jobs with limits. Their words count from now on, also for those that are there already."""
        self._pages.watch = self.turned
        group = self._group(identity_of(lane, priority, words))
        before = len(self.of)
        self.of.update(dict.fromkeys(seqs, group))
        added = len(self.of) - before
        group.members += added
        for gate in group.gates:
            gate.jobs += added
        if group.identity.alone:
            self._guard(added)
        for gate, (_, limit) in zip(group.gates, words.keys, strict=False):
            if gate.limit != limit:
                gate.limit = limit
                self._freed(gate)
        for rate, (_, most, duration) in zip(group.rates, words.rates, strict=True):
            if (rate.limit, rate.duration) != (most, duration):
                rate.forget()
                rate.limit, rate.duration, rate.timed = most, duration, False
                self._freed(rate)
                self._time(rate)
        if group.fair is not None and words.fair is not None:
            group.fair.weight = words.fair[1]
            group.fair.jobs += added
        return group

    @property
    def limited(self) -> bool:
        """Whether the end of a lease may let others through."""
        return bool(self.of or self.lane_limits)

    def limit_lane(self, lane: str, limit: int | None) -> None:
        """Let at most so many jobs of a lane be leased at once; None for any number."""
        self.lane_limits.pop(lane, None)
        if limit is not None:
            self.lane_limits[lane] = limit
        self._guard(0)

    def _guard(self, more: int) -> None:
        self._alone_jobs += more
        self.guarded = self._alone_jobs > 0 or bool(self.lane_limits)

    def entered(self, key: str) -> int:
        """How many jobs with a key wait or are leased."""
        gate = self.gates.get(key)
        return 0 if gate is None else gate.jobs

    def used(self, key: str, duration: int) -> int:
        """How many jobs with the key of a rate wait, or were leased within a duration."""
        rate = self.rates.get(key)
        if rate is None:
            return 0
        rate.forget()
        over = self.now - duration
        return rate.jobs - len(rate.held) + sum(number for time, number in rate.times if time > over)

    def words(self, seq: int) -> Words | None:
        """The limits of a job that is not done, with the numbers that count; None for a job without."""
        group = self.of.get(seq)
        if group is not None:
            return self.words_of(group)
        found = self.dead.get(seq)
        return None if found is None else found.words

    def words_of(self, group: Group) -> Words:
        """The limits of a group's jobs, with the numbers that count."""
        rates = tuple((rate.key, rate.limit, rate.duration) for rate in group.rates)
        keys = tuple((gate.key, gate.limit) for gate in group.gates[: len(group.identity.keys)])
        fair = None if group.fair is None else (group.fair.key, group.fair.weight)
        return Words(keys, rates, group.identity.alone, fair)

    def turned(self, first: int, last: int, code: int) -> None:
        """The census says something else of known jobs: take note of those with limits."""
        if first == last:
            some: Iterable[int] = (first,)
        elif last - first > len(self.of) + len(self.dead):
            some = [seq for seq in (*self.of, *self.dead) if first <= seq <= last]
        else:
            some = range(first, last + 1)
        freed: dict[Gate, None] = {}
        for seq in some:
            group = self.of.get(seq)
            if group is None:
                if seq in self.dead:
                    self._dead_turned(seq, code)
            elif code == codes.LEASED:
                self.hold(seq, group)
                for rate in group.rates:
                    rate.note()
                    self._time(rate)
                if group.fair is not None:
                    self.note_share(group.fair)
            else:
                self.alone_held.discard(seq)
                for gate in group.gates:
                    if seq in gate.held:
                        gate.held.discard(seq)
                        freed[gate] = None
                if code not in codes.WAITING:
                    self._leave(seq, group, code)
        for gate in freed:
            self._freed(gate)

    def hold(self, seq: int, group: Group) -> None:
        """A job is leased."""
        for gate in group.gates:
            gate.hold(seq)
        if group.identity.alone:
            self.alone_held.add(seq)

    def bury(self, seq: int, lane: str, priority: int, words: Words) -> None:
        """A job is dead: it brings its keys again when somebody requeues it."""
        self._pages.watch = self.turned
        self.dead[seq] = Buried(lane, priority, words)

    def _dead_turned(self, seq: int, code: int) -> None:
        lane, priority, words = self.dead.pop(seq)
        if code in codes.WAITING:
            # Where there are others, what they said counts: they may have come later.
            group = self._group(identity_of(lane, priority, words))
            in_force = self.words_of(group)
            keys = tuple(
                now if self.gates[now[0]].jobs else then
                for now, then in zip(in_force.keys, words.keys, strict=True)
            )
            rates = tuple(
                now if self.rates[now[0]].jobs else then
                for now, then in zip(in_force.rates, words.rates, strict=True)
            )
            fair = in_force.fair if group.fair is not None and group.fair.jobs else words.fair
            self.join((seq,), lane, priority, words._replace(keys=keys, rates=rates, fair=fair))
        elif not self.of and not self.dead:
            self._pages.watch = None

    def _leave(self, seq: int, group: Group, code: int) -> None:
        if code == codes.DEAD:
            self.bury(seq, group.identity.lane, group.identity.priority, self.words_of(group))
        del self.of[seq]
        group.members -= 1
        for gate in group.gates:
            gate.jobs -= 1
        if group.fair is not None:
            group.fair.jobs -= 1
        if group.identity.alone:
            self._guard(-1)
        self._forget_if_unused(group)
        if not self.of and not self.dead:
            self._pages.watch = None

    def _group(self, identity: Identity) -> Group:
        group = self.groups.get(identity)
        if group is None:
            gates, rates = map(self._gate, identity.keys), map(self.rate, identity.rates)
            lane, priority, fair_name = identity.lane, identity.priority, identity.fair
            fair = None if fair_name is None else self.fair_key(lane, priority, fair_name)
            group = self.groups[identity] = Group(identity, tuple(gates), tuple(rates), fair)
            if fair is not None:
                fair.groups += 1
            for gate in group.gates:
                gate.groups += 1
        return group

    def _gate(self, key: str) -> Gate:
        gate = self.gates.get(key)
        if gate is None:
            gate = self.gates[key] = Gate(key)
        return gate

    def rate(self, key: str) -> Rate:
        """The rate with this key, made when there is none."""
        rate = self.rates.get(key)
        if rate is None:
            rate = self.rates[key] = Rate(key, self)
        return rate

    def _sweep(self) -> None:
        """Let go of rates and fair keys that nobody brings and that say nothing any more, now and then."""
        if len(self.rates) + len(self.fair_keys) < self._sweep_at:
            return
        self.rates = {key: rate for key, rate in self.rates.items() if self._counts(rate)}
        self.fair_keys = {
            name: key for name, key in self.fair_keys.items() if key.groups or self.is_ahead(key)
        }
        self._sweep_at = 2 * (len(self.rates) + len(self.fair_keys)) + 64

    def _counts(self, rate: Rate) -> bool:
        """Whether anybody asks for a rate, or would find leases that count."""
        rate.forget()
        return bool(rate.groups or rate.times)

    def _forget_if_unused(self, group: Group) -> None:
        if group.members or group.place is not None:
            return
        del self.groups[group.identity]
        if group.fair is not None:
            group.fair.groups -= 1
        for gate in group.gates:
            gate.groups -= 1
        for key in group.identity.keys:
            if not self.gates[key].groups:
                del self.gates[key]
        self._sweep()

    # -- who stands where

    def add_to_group(self, group: Group, row: Row) -> None:
        """A row of jobs that are due, or were: a run may come late, when none of its jobs waits any more."""
        if not group.members:
            return
        group.add(row)
        if group.place is None or row[:3] < group.key:
            self._again(group)

    def _again(self, group: Group, key: Key | None = None) -> None:
        """Its first job is another one, or may not be leased: let it stand where it belongs now, by the key
        of its first job when that is known.
        """
        place, group.place, group.open = group.place, None, False
        if place is not None:
            if place[0][3] is group:
                place.pop(0)
            else:
                place.remove((*group.key, group))
        if group.rows:
            group.key = group.rows[0][:3] if key is None else key
            self._stand(group)
        for gate in group.gates:
            if gate.parked:
                self._advance(gate, group.shelf)
        self._forget_if_unused(group)

    def _stand(self, group: Group) -> None:
        shelf = group.shelf
        for gate in group.gates:
            if gate.room() <= 0 or gate.is_led(shelf, group.key):
                group.place = gate.parked.setdefault(shelf, SortedList())
                group.place.add((*group.key, group))
                if isinstance(gate, Rate):
                    self._time(gate)
                return
        if group.fair is not None and not group.identity.alone:
            group.place = self.stand_in_round(group, group.fair)
        else:
            group.place = self._lane(group.identity.lane, self.alone if group.identity.alone else self.lanes)
            group.place.add((*group.key, group))
        group.open = True
        for gate in group.gates:
            gate.lead[shelf] = group

    def _freed(self, gate: Gate) -> None:
        """There may be more room than before."""
        if gate.parked:
            for shelf in list(gate.parked):
                self._advance(gate, shelf)

    def _advance(self, gate: Gate, shelf: Shelf) -> None:
        """Let the next ones through, until one of them is sure to be looked at first."""
        rows = gate.parked.get(shelf)
        if rows is None:
            return
        while rows and gate.room() > 0 and not gate.is_led(shelf, rows[0][:3]):
            group = rows.pop(0)[3]
            group.place = None
            self._stand(group)
        if not rows:
            del gate.parked[shelf]

    # -- time

    def _time(self, rate: Rate) -> None:
        """See to it that somebody looks when a rate has room again."""
        if rate.times and rate.parked and not rate.timed:
            rate.timed = True
            heapq.heappush(self._timed, (rate.opens(), next(self._order), rate))

    def next_opening(self) -> int | None:
        """When the next rate has room for jobs that wait for it; None for never."""
        return self._timed[0][0] if self._timed else None

    def open_rates(self) -> None:
        """Let through what rates have room for by now."""
        while self._timed and self._timed[0][0] <= self.now:
            rate = heapq.heappop(self._timed)[2]
            rate.timed = False
            self._freed(rate)
            self._time(rate)

    # -- what outlives the jobs

    def lasting(self) -> dict[str, Any]:
        """What counts on when all jobs are gone: `L` the limits of lanes, `w` the leases of each rate, and
        how far the rounds are.
        """
        rates = [rate for rate in self.rates.values() if self._counts(rate) and rate.times]
        return {
            "L": [list(limit) for limit in self.lane_limits.items()],
            "w": [[rate.key, rate.duration, rate.window()] for rate in rates],
            **self.lasting_shares(),
        }

    def set_lasting(self, found: dict[str, Any]) -> None:
        """The reverse of `lasting`."""
        self.lane_limits = dict(found.get("L", ()))
        self._guard(0)
        self.set_lasting_shares(found)
        windows = {key: (duration, times) for key, duration, times in found.get("w", ())}
        for key in windows:
            self.rate(key)
        for key, rate in self.rates.items():
            rate.set_window(*windows.get(key, (rate.duration, [])))
            self._freed(rate)
            self._time(rate)
