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

from collections.abc import Iterable
from typing import NamedTuple

from sortedcontainers import SortedList

from nobroker.state import codes
from nobroker.state.entries import Entries
from nobroker.state.gates import Gate, Group, Identity, Words, identity_of
from nobroker.state.pages import Pages
from nobroker.state.runs import Key
from nobroker.state.waiting import Row, Waiting


class Buried(NamedTuple):
    """What has to be known of a dead job."""

    lane: str
    priority: int
    words: Words


class Parking(Waiting):
    """The groups of jobs with limits."""

    def __init__(self, pages: Pages, entries: Entries) -> None:
        super().__init__(pages, entries)
        self.of: dict[int, Group] = {}
        self.dead: dict[int, Buried] = {}

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
        self.say(words)
        return group

    def say(self, words: Words) -> None:
        """Let these numbers count, for the keys that some job brings."""
        for key, limit in words.keys:
            gate = self.gates.get(key)
            if gate is not None and gate.limit != limit:
                gate.limit = limit
                self._freed(gate)

    def words(self, seq: int) -> Words | None:
        """The limits of a job that is not done, with the numbers that count; None for a job without."""
        group = self.of.get(seq)
        if group is not None:
            return self.words_of(group)
        found = self.dead.get(seq)
        return None if found is None else found.words

    def words_of(self, group: Group) -> Words:
        """The limits of a group's jobs, with the numbers that count."""
        return Words(tuple((gate.key, gate.limit) for gate in group.gates))

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
            else:
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
            gate.held.add(seq)

    def bury(self, seq: int, lane: str, priority: int, words: Words) -> None:
        """A job is dead: it brings its keys again when somebody requeues it."""
        self._pages.watch = self.turned
        self.dead[seq] = Buried(lane, priority, words)

    def _dead_turned(self, seq: int, code: int) -> None:
        lane, priority, words = self.dead.pop(seq)
        if code in codes.WAITING:
            # Where there are others, what they said counts: they may have come later.
            self.join((seq,), lane, priority, Words(tuple(map(self._in_force, words.keys))))
        elif not self.of and not self.dead:
            self._pages.watch = None

    def _in_force(self, said: tuple[str, int]) -> tuple[str, int]:
        gate = self.gates.get(said[0])
        return said if gate is None or not gate.jobs else (gate.key, gate.limit)

    def _leave(self, seq: int, group: Group, code: int) -> None:
        if code == codes.DEAD:
            self.bury(seq, group.identity.lane, group.identity.priority, self.words_of(group))
        del self.of[seq]
        group.members -= 1
        for gate in group.gates:
            gate.jobs -= 1
        self._forget_if_unused(group)
        if not self.of and not self.dead:
            self._pages.watch = None

    def _group(self, identity: Identity) -> Group:
        group = self.groups.get(identity)
        if group is None:
            group = self.groups[identity] = Group(identity, tuple(map(self._gate, identity.keys)))
            for gate in group.gates:
                gate.groups += 1
        return group

    def _gate(self, key: str) -> Gate:
        gate = self.gates.get(key)
        if gate is None:
            gate = self.gates[key] = Gate(key)
        return gate

    def _forget_if_unused(self, group: Group) -> None:
        if group.members or group.place is not None:
            return
        del self.groups[group.identity]
        for gate in group.gates:
            gate.groups -= 1
            if not gate.groups:
                del self.gates[gate.key]

    # -- who stands where

    def add_to_group(self, group: Group, row: Row) -> None:
        """A row of jobs that are due, or were: a run may come late, when none of its jobs waits any more."""
        if not group.members:
            return
        group.rows.add(row)
        if group.place is None or row[:3] < group.key:
            self._again(group)

    def _again(self, group: Group, key: Key | None = None) -> None:
        """Its first job is another one, or may not be leased: let it stand where it belongs now, by the key of
        its first job when that is known.
        """
        place, group.place, group.open = group.place, None, False
        if place is not None:
            place.remove((*group.key, group))
        if group.rows:
            group.key = group.rows[0][:3] if key is None else key
            self._stand(group)
        for gate in group.gates:
            self._advance(gate, group.shelf)
        self._forget_if_unused(group)

    def _stand(self, group: Group) -> None:
        shelf = group.shelf
        for gate in group.gates:
            if gate.room() <= 0 or gate.is_led(shelf, group.key):
                group.place = gate.parked.setdefault(shelf, SortedList())
                group.place.add((*group.key, group))
                return
        group.place = self._lane(group.identity.lane)
        group.place.add((*group.key, group))
        group.open = True
        for gate in group.gates:
            gate.lead[shelf] = group

    def _freed(self, gate: Gate) -> None:
        """There may be more room than before."""
        for shelf in list(gate.parked):
            self._advance(gate, shelf)

    def _advance(self, gate: Gate, shelf: str) -> None:
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

    def _lane(self, lane: str) -> SortedList[Row]:
        rows = self.lanes.get(lane)
        if rows is None:
            rows = self.lanes[lane] = SortedList()
        return rows
