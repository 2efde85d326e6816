"""How long a failed job waits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nobroker_mmap.plain import Frozen

if TYPE_CHECKING:
    import random


class BackoffPolicy(Frozen):
    """Exponential backoff with jitter.

    The delay before attempt *n + 1* is ``base * factor ** (n - 1)`` seconds, at most ``max_delay``;
    the share ``jitter`` of it is random, so that jobs that failed together do not return together.

    Attributes:
        base: seconds after the first failure, >= 0.
        factor: growth per further failure, >= 1.
        max_delay: cap in seconds, >= 0.
        jitter: share that is random: 0 none, 1 all ("full jitter").

    Raises:
        TypeError, ValueError: for anything that is not a finite number in its range.
    """

    __slots__ = __match_args__ = ("base", "factor", "max_delay", "jitter")

    base: float
    factor: float
    max_delay: float
    jitter: float

    def __init__(
        self, base: float = 1.0, factor: float = 2.0, max_delay: float = 300.0, jitter: float = 0.5
    ) -> None:
        _check("base", base, 0.0, math.inf)
        _check("factor", factor, 1.0, math.inf)
        _check("max_delay", max_delay, 0.0, math.inf)
        _check("jitter", jitter, 0.0, 1.0)
        self._fill(base, factor, max_delay, jitter)

    def delay_for(self, attempt: int, rng: random.Random | None = None) -> float:
        """Seconds to wait after `attempt` failures; 0 when there were none.

        Bounded by `max_delay` for every attempt. `rng` makes the random share repeatable.
        """
        if attempt <= 0:
            return 0.0
        delay = self._capped(attempt)
        if self.jitter == 0.0 or delay == 0.0:
            return delay
        uniform = _random() if rng is None else rng.random()
        return delay * (1.0 - self.jitter) + delay * self.jitter * uniform

    def _capped(self, attempt: int) -> float:
        try:
            return float(min(self.base * self.factor ** (attempt - 1), self.max_delay))
        except OverflowError:  # the power left the range of floats, so it is over any cap
            return float(self.max_delay) if self.base else 0.0


def _random() -> float:
    import random  # here: it is slow to import, and only failures need it

    return random.random()


def _check(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not math.isfinite(value) or not low <= value <= high:
        bound = f"between {low:g} and {high:g}" if math.isfinite(high) else f">= {low:g}"
        raise ValueError(f"{name} must be finite and {bound}, not {value!r}")
