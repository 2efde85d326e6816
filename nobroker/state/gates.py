"""What jobs share that are held back together: gates, and the groups of jobs that pass the same ones.

A *gate* is a key with a number: so many jobs that bring the key may be leased at once. A *group* is the
waiting jobs of one lane and priority that bring the same keys: what may be said of the first of them may be
said of all. Records say the keys and numbers of their jobs as `said`, the state keeps them as `Words`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Any, NamedTuple, Protocol

from sortedcontainers import SortedList

from nobroker.state.runs import Key
from nobroker.state.shares import FairKey

Shelf = tuple[str, str | None, bool]
"""A lane, a fair key or none, and whether its jobs run alone: those stand elsewhere."""

Said = dict[str, Any]
"""What a record says of limits: `k` a list of `[key, limit]`, `r` a list of `[key, max, duration]`, `x` that
the job runs alone, `f` a fair key and its weight. What comes behind in a list of `k` or `r` tells how the
job came in, and counts no more once it is in.
"""


class Words(NamedTuple):
    """The limits of a job."""

    keys: tuple[tuple[str, int], ...] = ()
    rates: tuple[tuple[str, int, int], ...] = ()
    alone: bool = False
    fair: tuple[str, int] | None = None


class Identity(NamedTuple):
    """What the jobs of a group have in common."""

    lane: str
    priority: int
    keys: tuple[str, ...]
    rates: tuple[str, ...]
    alone: bool
    fair: str | None


def words_of(said: Said) -> Words:
    """What a record says, as values."""
    return Words(
        tuple((key, limit) for key, limit, *_ in said.get("k", ())),
        tuple((key, most, duration) for key, most, duration, *_ in said.get("r", ())),
        said.get("x", False),
        (said["f"][0], said["f"][1]) if "f" in said else None,
    )


def said_of(words: Words) -> Said:
    """The reverse of `words_of`."""
    said: Said = {}
    if words.keys:
        said["k"] = [list(limit) for limit in words.keys]
    if words.rates:
        said["r"] = [list(rate) for rate in words.rates]
    if words.alone:
        said["x"] = True
    if words.fair is not None:
        said["f"] = list(words.fair)
    return said


def identity_of(lane: str, priority: int, words: Words) -> Identity:
    keys, rates = tuple(key for key, _ in words.keys), tuple(key for key, _, _ in words.rates)
    return Identity(lane, priority, keys, rates, words.alone, words.fair and words.fair[0])


class Clock(Protocol):
    """Whoever knows the time up to which things were looked at."""

    now: int


_NOTHING: set[int] = set()
"""Stays empty: there may be a million gates with nothing leased yet, and they share it."""


class Gate:
    """At most `limit` jobs with a key are leased at once.

    `jobs` counts those that wait or are leased, `held` has those that are leased, `taking` counts those that
    a lease under way has chosen. `parked` has, by shelf, the rows of the groups that wait here, and `lead`
    the group that was let through last. `groups` counts those that know this gate.
    """

    __slots__ = ("groups", "held", "jobs", "key", "lead", "limit", "parked", "taking")

    def __init__(self, key: str) -> None:
        self.key = key
        self.limit = 0
        self.groups = 0
        self.jobs = 0
        self.held = _NOTHING
        self.taking = 0
        self.parked: dict[Shelf, SortedList[Any]] = {}
        self.lead: dict[Shelf, Group] = {}

    def room(self) -> int:
        """How many more may be leased now."""
        return self.limit - len(self.held) - self.taking

    def hold(self, seq: int) -> None:
        """A job with the key is leased."""
        if self.held is _NOTHING:
            self.held = {seq}
        else:
            self.held.add(seq)

    def is_led(self, shelf: Shelf, key: Key) -> bool:
        """Whether a group whose turn is not after `key` was let through and still stands in the index: then
        it is enough that that one is looked at.
        """
        lead = self.lead.get(shelf)
        return lead is not None and lead.open and lead.key <= key


class Rate(Gate):
    """At most `limit` leases of jobs with a key within any `duration`, in microseconds.

    `times` has the leases that count, as pairs of time and number; `used` is how many they are.
    """

    __slots__ = ("_clock", "duration", "timed", "times", "used")

    def __init__(self, key: str, clock: Clock) -> None:
        super().__init__(key)
        self._clock = clock
        self.duration = 0
        self.times: deque[list[int]] = deque()
        self.used = 0
        self.timed = False

    def room(self) -> int:
        self.forget()
        return self.limit - self.used - self.taking

    def note(self) -> None:
        """One of the jobs is leased."""
        now = self._clock.now
        if self.times and self.times[-1][0] == now:
            self.times[-1][1] += 1
        else:
            self.times.append([now, 1])
        self.used += 1

    def forget(self) -> None:
        """Let go of leases that do not count any more."""
        over = self._clock.now - self.duration
        while self.times and self.times[0][0] <= over:
            self.used -= self.times.popleft()[1]

    def opens(self) -> int:
        """When the first of the leases counts no more."""
        return self.times[0][0] + self.duration

    def set_window(self, duration: int, times: list[int]) -> None:
        """Let these leases count, as flat pairs of time and number."""
        self.duration = duration
        self.times = deque([time, number] for time, number in zip(times[::2], times[1::2], strict=True))
        self.used = sum(times[1::2])

    def window(self) -> list[int]:
        """The reverse of `set_window`."""
        return [number for pair in self.times for number in pair]


class Rows(list[Any]):
    """A few rows in order, in a single object: there may be a million groups, most with one job."""

    __slots__ = ()
    MOST = 256
    """More belong in a `SortedList`."""

    def add(self, row: Any) -> None:
        insort(self, row)

    def discard(self, row: Any) -> None:
        if row in self:
            del self[bisect_left(self, row)]

    def __contains__(self, row: object) -> bool:
        at = bisect_left(self, row)
        return at < len(self) and self[at] == row


class Group:
    """Waiting jobs with the same gates, as rows of the ready index in an index of their own.

    It stands in one place at most, as a row by the key of its first job: in the index (`open`), or parked at
    a gate. `members` counts its jobs that wait or are leased.
    """

    __slots__ = ("fair", "gates", "identity", "key", "members", "open", "place", "rates", "rows")

    def __init__(
        self, identity: Identity, gates: tuple[Gate, ...], rates: tuple[Rate, ...], fair: FairKey | None
    ) -> None:
        self.identity = identity
        self.gates = (*gates, *rates)
        self.rates = rates
        self.fair = fair
        self.members = 0
        self.rows: Rows | SortedList[Any] = Rows()
        self.key: Key = (0, 0, 0)
        self.place: SortedList[Any] | None = None
        self.open = False

    # Rows are tuples; no two groups have the same first job, but an outdated row may say so.
    def __lt__(self, other: object) -> bool:
        return id(self) < id(other)

    def __gt__(self, other: object) -> bool:
        return id(self) > id(other)

    def before_parked(self, limit: Key | None) -> Key | None:
        """Up to which key its jobs come first: `limit`, or what is parked at a gate of its own, which it has
        led past.
        """
        for gate in self.gates:
            parked = gate.parked.get(self.shelf) if gate.parked else None
            if parked and (limit is None or parked[0][:3] < limit):
                first: Key = parked[0][:3]
                limit = first
        return limit

    def add(self, row: Any) -> None:
        if type(self.rows) is Rows and len(self.rows) >= Rows.MOST:
            self.rows = SortedList(self.rows)
        self.rows.add(row)

    @property
    def shelf(self) -> Shelf:
        """Groups of one shelf are looked at one after the other; whoever looks at one looks at all."""
        return self.identity.lane, self.identity.fair, self.identity.alone

    def room(self) -> int:
        """How many of its jobs may be leased now."""
        if not self.gates:
            return 1
        room = min([gate.room() for gate in self.gates])
        return min(room, 1) if self.identity.alone or self.fair is not None else room
