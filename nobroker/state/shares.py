"""The parts of a fair round; see `fairness`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from nobroker.state.runs import Key

if TYPE_CHECKING:
    from nobroker.state.waiting import Row


Round = tuple[str, int]
"""A lane and a priority."""


class FairKey:
    """A fair key: its weight, and how far its share was used up. `groups` counts those that know it, `jobs`
    those of its jobs that wait or are leased.
    """

    __slots__ = ("groups", "jobs", "key", "passed", "round", "weight")

    def __init__(self, of: Round, key: str) -> None:
        self.round = of
        self.key = key
        self.weight = 1
        self.passed = 0
        self.groups = 0
        self.jobs = 0


class Share:
    """The groups with one fair key, of one lane and priority, that stand in the index.

    `tag` is where it stands in the round, `key` that of its first job, as far as anybody has looked.
    """

    __slots__ = ("fair_key", "key", "rows", "tag")

    def __init__(self, fair_key: FairKey, tag: int) -> None:
        self.fair_key = fair_key
        self.tag = tag
        self.key: Key = (0, 0, 0)
        self.rows: SortedList[Row] = SortedList()


class Fair:
    """All shares of one lane and priority: by their turns, and by their oldest jobs. A row of its lane."""

    __slots__ = ("key", "oldest", "place", "round", "shares", "turns")

    def __init__(self, of: Round) -> None:
        self.round = of
        self.shares: dict[str, Share] = {}
        self.turns: SortedList[Any] = SortedList()
        self.oldest: SortedList[Any] = SortedList()
        self.key: Key = (0, 0, 0)
        self.place: SortedList[Row] | None = None

    # Rows are tuples; no other row has the same first job, but an outdated one may say so.
    def __lt__(self, other: object) -> bool:
        return id(self) < id(other)

    def __gt__(self, other: object) -> bool:
        return id(self) > id(other)

    def put(self, share: Share, key: Key) -> None:
        share.key = key
        self.turns.add((share.tag, *key, share))
        self.oldest.add((*key, share))

    def take(self, share: Share) -> None:
        self.turns.remove((share.tag, *share.key, share))
        self.oldest.remove((*share.key, share))

    def next(self) -> Share:
        """Whose turn it is, by the tags."""
        share: Share = self.turns[0][4]
        return share
