"""Fair shares: among the keys that have waiting jobs of one lane and priority, leases go round by weight.

Each key has a place in the *round* of its lane and priority: how far its share was used up. A lease moves it
on by one step, which is the shorter the larger its weight. The key that is least far comes next; of two, the
one whose job is first. One that had nothing waiting goes on where the round has come to: nobody saves
anything up. So all that counts follows from the leases alone.

Invariants
- All groups of one lane and priority with a fair key that stand in the index are behind one row of the lane
  (`Fair`), whose key is that of the first of their jobs: among other jobs they keep their place.
- `FairKey.passed` and `reached` change by records only. What a lease under way has chosen stands in `_ahead`.
"""

from __future__ import annotations

from typing import Any, Final

from sortedcontainers import SortedList

from nobroker.state.entries import Entries
from nobroker.state.gates import Group
from nobroker.state.pages import Pages
from nobroker.state.shares import Fair, FairKey, Round, Share
from nobroker.state.waiting import Row, Waiting

STEP: Final = 1_000_000
"""What a lease takes of a share of weight 1."""


class Fairness(Waiting):
    """The rounds of all lanes and priorities."""

    def __init__(self, pages: Pages, entries: Entries) -> None:
        super().__init__(pages, entries)
        self.fair_keys: dict[tuple[str, int, str], FairKey] = {}
        self.reached: dict[Round, int] = {}
        self._ahead: dict[FairKey, int] = {}
        self._reached_ahead: dict[Round, int] = {}

    def fair_key(self, lane: str, priority: int, key: str) -> FairKey:
        """A fair key, made when there is none."""
        name = (lane, priority, key)
        found = self.fair_keys.get(name)
        if found is None:
            found = self.fair_keys[name] = FairKey((lane, priority), key)
        return found

    def is_ahead(self, fair_key: FairKey) -> bool:
        """Whether it has used more of its share than one that comes anew."""
        return fair_key.passed > self.reached.get(fair_key.round, 0)

    def note_share(self, fair_key: FairKey) -> None:
        """One of its jobs is leased."""
        start = max(fair_key.passed, self.reached.get(fair_key.round, 0))
        self.reached[fair_key.round] = start
        fair_key.passed = start + STEP // fair_key.weight

    def lasting_shares(self) -> dict[str, Any]:
        """What counts on when all jobs are gone: `f` how far each round has come, `F` the keys ahead."""
        ahead = [key for key in self.fair_keys.values() if self.is_ahead(key)]
        return {
            "f": [[*of, reached] for of, reached in self.reached.items()],
            "F": [[*key.round, key.key, key.passed] for key in ahead],
        }

    def set_lasting_shares(self, found: dict[str, Any]) -> None:
        """The reverse of `lasting_shares`."""
        self.reached = {(lane, priority): reached for lane, priority, reached in found.get("f", ())}
        for fair_key in self.fair_keys.values():
            fair_key.passed = 0
        for lane, priority, key, passed in found.get("F", ()):
            self.fair_key(lane, priority, key).passed = passed

    # -- who stands where

    def stand_in_round(self, group: Group, fair_key: FairKey) -> SortedList[Row]:
        """Let a group stand in the index; the rows that it stands in."""
        fair = self.fairs.get(fair_key.round)
        if fair is None:
            fair = self.fairs[fair_key.round] = Fair(fair_key.round)
        share = fair.shares.get(fair_key.key)
        if share is None:
            share = fair.shares[fair_key.key] = Share(fair_key, self._place_of(fair_key))
            fair.put(share, group.key)
        elif group.key < share.key:
            fair.take(share)
            fair.put(share, group.key)
        share.rows.add((*group.key, group))
        if fair.place is None or group.key < fair.key:
            if fair.place is not None:
                fair.place.remove((*fair.key, fair))
            fair.key, fair.place = group.key, self._lane(group.identity.lane, self.lanes)
            fair.place.add((*group.key, fair))
        return share.rows

    def _place_of(self, fair_key: FairKey) -> int:
        """Where a key stands in its round, what is being chosen included."""
        return max(self._ahead.get(fair_key, fair_key.passed), self._come_to(fair_key.round))

    def _come_to(self, of: Round) -> int:
        return self._reached_ahead.get(of, self.reached.get(of, 0))

    def move_on(self, fair: Fair) -> None:
        """A job of the share whose turn it is was chosen."""
        share = fair.next()
        fair_key = share.fair_key
        start = self._place_of(fair_key)
        self._reached_ahead[fair.round] = start
        self._ahead[fair_key] = start + STEP // fair_key.weight
        fair.take(share)
        share.tag = self._ahead[fair_key]
        fair.put(share, share.key)

    def first_share(self, fair: Fair) -> Share:
        """Whose turn it is: nobody stands behind where the round has come to."""
        come_to = self._come_to(fair.round)
        while (share := fair.next()).tag < come_to:
            fair.take(share)
            share.tag = come_to
            fair.put(share, share.key)
        return share

    def stand_as_recorded(self) -> None:
        """What was chosen came to nothing: nobody has moved on."""
        for fair in self.fairs.values():
            for share in fair.shares.values():
                fair.take(share)
                share.tag = self._place_of(share.fair_key)
                fair.put(share, share.key)

    def chosen(self) -> None:
        """The choosing is over: what counts are the records that say so."""
        self._ahead.clear()
        self._reached_ahead.clear()
