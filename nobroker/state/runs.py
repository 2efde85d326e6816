"""Waiting jobs as runs.

A run is a row of ordinary waiting jobs of one lane, priority, max_attempts and expiry, in the order of their
delivery keys `(-priority, available_at, seq)`. It stores what it cannot derive: a batch is four numbers;
single enqueues in a row take 8 bytes each, 12 when others come between; distinct delays 12. A run is a
*hint*: whether a job still waits, its byte in the census says.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nobroker.state.gates import Group

Key = tuple[int, int, int]
"""Delivery order: (-priority, available-at in queue time, sequence number)."""

MAX_MERGED: Final = 65_536
"""Single enqueues join a run up to this length; so the consumed front of a run that never empties is let go.
"""

SMALL: Final = 64
"""Batches below this size join the run of single enqueues."""


class Run:
    """Jobs `low..high` (high exclusive) of the row."""

    __slots__ = (
        "avail",
        "avails",
        "base",
        "expires",
        "group",
        "high",
        "lane",
        "low",
        "max_attempts",
        "nprio",
        "seqs",
        "wall",
    )

    def __init__(
        self,
        lane: str,
        nprio: int,
        max_attempts: int,
        expires: int,
        base: int,
        count: int,
        avail: int,
        wall: bool = False,
        seqs: array[int] | None = None,
        avails: array[int] | None = None,
        group: Group | None = None,
    ) -> None:
        self.lane = lane
        self.nprio = nprio
        self.max_attempts = max_attempts
        self.expires = expires
        self.base = base
        self.low = 0
        self.high = count
        self.avail = avail
        self.wall = wall
        self.seqs = seqs
        self.avails = avails
        self.group = group

    # Rows are tuples that end in a run or None; where all before is equal, a job of its own comes first.
    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is None

    def seq_at(self, index: int) -> int:
        return self.base + (index if self.seqs is None else self.seqs[index])

    def avail_at(self, index: int) -> int:
        return self.avail if self.avails is None else self.avails[index]

    def key(self) -> Key:
        return (self.nprio, self.avail_at(self.low), self.seq_at(self.low))

    def keys(self) -> Iterator[Key]:
        for index in range(self.low, self.high):
            yield (self.nprio, self.avail_at(index), self.seq_at(index))

    def append(self, seq: int, count: int, avail: int) -> bool:
        """Take more single enqueues in at the end; False when they do not fit."""
        size = self.high
        if (
            self.avails is None
            or size >= MAX_MERGED
            or avail < self.avails[-1]
            or seq + count - self.base > 2**32
        ):
            return False
        if self.seqs is None and seq != self.base + size:
            self.seqs = array("I", range(size))
        if self.seqs is not None:
            self.seqs.extend(range(seq - self.base, seq - self.base + count))
        if count == 1:
            self.avails.append(avail)
        else:
            self.avails.extend([avail] * count)
        self.high = size + count
        return True

    def index_before(self, limit: Key | None) -> int:
        """Index of the first job whose key is not below `limit`."""
        if limit is None or self.nprio < limit[0]:
            return self.high
        if self.nprio > limit[0]:
            return self.low
        if self.avails is None:
            low, high = self.low, self.high
            if self.avail != limit[1]:
                return high if self.avail < limit[1] else low
        else:
            low = bisect_left(self.avails, limit[1], self.low, self.high)
            high = bisect_right(self.avails, limit[1], low, self.high)
        if self.seqs is None:
            return min(max(limit[2] - self.base, low), high)
        return bisect_left(self.seqs, limit[2] - self.base, low, high)

    def due_before(self, now: int) -> int:
        """Index of the first job that is not due at `now`."""
        if self.avails is None:
            return self.high if self.avail <= now else self.low
        return bisect_right(self.avails, now, self.low, self.high)

    def cut(self, index: int) -> Run:
        """Split off the front, jobs up to `index`; both parts share the arrays."""
        front = Run(
            self.lane,
            self.nprio,
            self.max_attempts,
            self.expires,
            self.base,
            index,
            self.avail,
            self.wall,
            self.seqs,
            self.avails,
            self.group,
        )
        front.low = self.low
        self.low = index
        return front


def delayed_run(
    lane: str,
    nprio: int,
    max_attempts: int,
    expires: int,
    first: int,
    avails: array[int],
    wall: bool,
    group: Group | None = None,
) -> Run:
    """A run of jobs that each have their own time."""
    times = avails.tolist()
    order = sorted(range(len(times)), key=times.__getitem__)
    if order == list(range(len(times))):
        seqs = None
    else:
        seqs, avails = array("I", order), array("q", [times[index] for index in order])
    return Run(lane, nprio, max_attempts, expires, first, len(times), 0, wall, seqs, avails, group)
