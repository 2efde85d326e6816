"""What jobs share that are held back together: gates, and the groups of jobs that pass the same ones.

A *gate* is a key with a number: so many jobs that bring the key may be leased at once. A *group* is the
waiting jobs of one lane and priority that bring the same keys: what may be said of the first of them may be
said of all. Records say the keys and numbers of their jobs as `said`, the state keeps them as `Words`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from nobroker.state.runs import Key

Said = dict[str, Any]
"""What a record says of limits: `k` a list of `[key, limit]`. A third element tells how the job came in, and
counts no more once it is in.
"""


class Words(NamedTuple):
    """The limits of a job."""

    keys: tuple[tuple[str, int], ...] = ()


class Identity(NamedTuple):
    """What the jobs of a group have in common."""

    lane: str
    priority: int
    keys: tuple[str, ...]


NO_WORDS: Final = Words()


def words_of(said: Said) -> Words:
    """What a record says, as values."""
    return Words(tuple((key, limit) for key, limit, *_ in said.get("k", ())))


def said_of(words: Words) -> Said:
    """The reverse of `words_of`."""
    return {"k": [list(pair) for pair in words.keys]}


def identity_of(lane: str, priority: int, words: Words) -> Identity:
    return Identity(lane, priority, tuple(key for key, _ in words.keys))


class Gate:
    """At most `limit` jobs with a key are leased at once.

    `jobs` counts those that wait or are leased, `held` has those that are leased, `taking` counts those that a
    lease under way has chosen. `parked` has, by shelf, the rows of the groups that wait here, and `lead` the
    group that was let through last. `groups` counts those that know this gate.
    """

    __slots__ = ("groups", "held", "jobs", "key", "lead", "limit", "parked", "taking")

    def __init__(self, key: str) -> None:
        self.key = key
        self.limit = 0
        self.groups = 0
        self.jobs = 0
        self.held: set[int] = set()
        self.taking = 0
        self.parked: dict[str, SortedList[Any]] = {}
        self.lead: dict[str, Group] = {}

    def room(self) -> int:
        """How many more may be leased now."""
        return self.limit - len(self.held) - self.taking

    def is_led(self, shelf: str, key: Key) -> bool:
        """Whether a group whose turn is not after `key` was let through and still stands in the index: then
        it is enough that that one is looked at.
        """
        lead = self.lead.get(shelf)
        return lead is not None and lead.open and lead.key <= key


class Group:
    """Waiting jobs with the same gates, as rows of the ready index in an index of their own.

    It stands in one place at most, as a row by the key of its first job: in the index (`open`), or parked at a
    gate. `members` counts its jobs that wait or are leased.
    """

    __slots__ = ("gates", "identity", "key", "members", "open", "place", "rows")

    def __init__(self, identity: Identity, gates: tuple[Gate, ...]) -> None:
        self.identity = identity
        self.gates = gates
        self.members = 0
        self.rows: SortedList[Any] = SortedList()
        self.key: Key = (0, 0, 0)
        self.place: SortedList[Any] | None = None
        self.open = False

    # Rows are tuples; no two groups have the same first job, but an outdated row may say so.
    def __lt__(self, other: object) -> bool:
        return id(self) < id(other)

    def __gt__(self, other: object) -> bool:
        return id(self) > id(other)

    @property
    def shelf(self) -> str:
        """Groups of one shelf are looked at one after the other; whoever looks at one looks at all."""
        return self.identity.lane

    def room(self) -> int:
        """How many of its jobs may be leased now."""
        return min(gate.room() for gate in self.gates)
