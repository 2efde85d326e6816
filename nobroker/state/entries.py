"""Jobs out of the ordinary, and leases.

Entries are immutable and replaced whole, so that a copy of the table is a consistent picture of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CANCEL: Final = 1
"""The holder is asked to stop."""
EXPIRED_LEASE: Final = 2
"""The last lease ran out without a word."""
CANCELLED: Final = 4
"""Ended by a cancel."""
EXPIRED: Final = 8
"""Never leased before its time was over."""
NO_EXPIRY: Final = 16
"""Requeued by somebody: its expiry does not count any more."""


class Entry(NamedTuple):
    """What the census cannot say of a job.

    `error`, `progress`, `state` are LSNs of the records that hold these values; 0 for none. `expires` is 0
    for never.
    """

    lane: str
    priority: int
    max_attempts: int
    avail: int
    attempts: int = 0
    wall: bool = False
    flags: int = 0
    error: int = 0
    progress: int = 0
    state: int = 0
    token: int = 0
    expires: int = 0

    @property
    def last_chance(self) -> bool:
        """On its last try, and the try before it ended in silence."""
        return self.flags & EXPIRED_LEASE != 0 and self.attempts + 1 >= self.max_attempts


Entries = dict[int, Entry]


class Lease:
    """Jobs leased by one call: their tokens are `seq + delta`.

    Immutable but for `alive`, the number of jobs still held under it. `avails` gives the place of each job
    where they differ.
    """

    __slots__ = (
        "alive",
        "avail",
        "avails",
        "deadline",
        "delta",
        "expires",
        "lane",
        "max_attempts",
        "priority",
        "spans",
    )

    def __init__(
        self,
        spans: list[int],
        count: int,
        delta: int,
        deadline: int,
        lane: str,
        priority: int,
        max_attempts: int,
        expires: int,
        avail: int,
        avails: dict[int, int] | None = None,
    ) -> None:
        self.spans = spans
        self.alive = count
        self.delta = delta
        self.deadline = deadline
        self.lane = lane
        self.priority = priority
        self.max_attempts = max_attempts
        self.expires = expires
        self.avail = avail
        self.avails = avails

    def place(self, seq: int) -> int:
        """The available-at that the job had when it was leased."""
        return self.avail if self.avails is None else self.avails.get(seq, self.avail)

    def like(self, first: int, last: int, deadline: int) -> Lease:
        """A lease of part of its jobs, with the same tokens and another deadline."""
        part = Lease([first, last], last - first + 1, self.delta, deadline, self.lane, self.priority, 0, 0, 0)
        part.max_attempts, part.expires = self.max_attempts, self.expires
        part.avail, part.avails = self.avail, self.avails
        return part
