"""Lengths of time, many of them, in little memory: counts by bucket, each 5 % longer than the one before."""

from __future__ import annotations

import math
from typing import Final

RATIO: Final = 1.05
ERROR: Final = (RATIO - 1) / 2
"""A quantile is this share too large or too small at most: 2.5 %."""
_LEAST: Final = 1e-6  # seconds; what is shorter counts as that
_BUCKETS: Final = 720  # the last begins at some 50 years
_LOG: Final = math.log(RATIO)


class Histogram:
    """Counts of lengths of time, in seconds.

    Attributes:
        count: how many there were.
        total: their sum.
        longest: the longest of them.
    """

    __slots__ = ("_counts", "count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = self.longest = 0.0
        self._counts: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        at = 0 if seconds <= _LEAST else min(math.ceil(math.log(seconds / _LEAST) / _LOG), _BUCKETS)
        self._counts[at] = self._counts.get(at, 0) + 1
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """What this share of them is not longer than; see `ERROR`."""
        rank, seen = math.ceil(share * self.count), 0
        for at in sorted(self._counts):
            seen += self._counts[at]
            if seen >= rank:
                return min(_LEAST * math.exp((at - 0.5) * _LOG) if at else _LEAST, self.longest)
        return 0.0
