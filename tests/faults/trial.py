"""One harness at work: how many rounds, which random numbers, what it saw.

A harness is a test that takes the fixture `trial`, goes through `trial.rounds(N)`, and counts what it did. In
an ordinary run there are N rounds. With `--long MINUTES` the rounds go on until the time is over, from where
the last long run stopped, and the counts are added to the figures that RESULTS.md shows.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

DEFAULT_SEED = 1


@dataclass
class Options:
    """What the command line said."""

    seed: int = DEFAULT_SEED
    only: int | None = None
    long_minutes: float | None = None


@dataclass
class Trial:
    """One run of one harness."""

    name: str
    command: str
    options: Options
    begin: int = 0
    """The first round: where the last long run with this seed stopped."""
    figures: Counter[str] = field(default_factory=Counter)
    next_round: int = 0
    seconds: float = 0.0
    current: int | None = None

    @property
    def long(self) -> bool:
        """Whether this is a long run."""
        return self.options.long_minutes is not None

    def rounds(self, ordinary: int, *, least: int = 0) -> Iterator[tuple[int, random.Random]]:
        """Round numbers, each with random numbers of its own: `ordinary` of them, or for as long as `--long`
        says, or the one that `--only` names. All long runs with one seed together do at least `least`,
        however long that takes.
        """
        if self.options.only is not None:
            yield self._begin(self.options.only)
            return
        started = time.monotonic()
        minutes = self.options.long_minutes
        end = started + 60 * (minutes or 0.0)
        number = self.begin if self.long else 0
        wanted = least if self.long else ordinary
        while number < wanted or time.monotonic() < end:
            yield self._begin(number)
            number += 1
            self.figures["rounds"] += 1
            self.next_round = number
            self.seconds = time.monotonic() - started
        self.current = None

    def points(self, count: int, *, again: bool = False) -> Iterator[tuple[int, int, random.Random]]:
        """Every point once, for harnesses that are complete: the round, the point, random numbers. `again`: a
        long run goes through them again and again, with other random numbers.
        """
        if again or self.options.only is not None:
            for number, rng in self.rounds(count, least=count):
                yield number, number % count, rng
            return
        started = time.monotonic()
        for number in range(count):
            yield number, *self._begin(number)
            self.figures["rounds"] += 1
            self.seconds = time.monotonic() - started
        self.current = None

    def count(self, what: str, number: int = 1) -> None:
        """Add to a figure, such as `kills` or `states opened`."""
        self.figures[what] += number

    def replay(self) -> str:
        """The command that does the failing round again."""
        where = "" if self.current is None else f" --only {self.current}"
        return f"python -m pytest -n 0 '{self.command}' --seed {self.options.seed}{where}"

    def _begin(self, number: int) -> tuple[int, random.Random]:
        self.current = number
        return number, random.Random(f"{self.options.seed}/{self.name}/{number}")
