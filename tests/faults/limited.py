"""Limits in play, and whether they held: what processes enqueue, and the judge of the leases that they saw.

A lease surely held its slot from its moment on until it may have ended: when its holder began to give it
back, or when it ran out. Until when it held in truth, nobody can say, and what may be is not counted.
So a limit that was passed for longer than a call takes is seen, and none that was not.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from nobroker import Limit, Queue, Rate

TICK = 2e-6
"""Moments are whole microseconds."""

KEYS = {"key 1": 1, "key 2": 2, "key 3": 3}
RATES = {"rate": (4, 0.1)}
NARROW, NARROWEST = "narrow", 2
"""A lane, and how many of its jobs may be leased at once."""


def prepare(queue: Queue) -> None:
    """What has to be said once, before anybody leases."""
    queue.lane_limit(NARROW, NARROWEST)


def some_limits(rng: Random, alone: float = 0.0) -> dict[str, Any]:
    """Arguments of an enqueue: now and then with keys, a rate, a lane with a limit, a fair key.

    Args:
        alone: how often jobs are to run alone: where leases are long, nobody would get any.
    """
    said: dict[str, Any] = {}
    if rng.random() < 0.5:
        names = rng.sample(sorted(KEYS), rng.choice([1, 1, 2]))
        said["limits"] = [Limit(name, KEYS[name]) for name in names]
    if rng.random() < 0.2:
        said["rates"] = [Rate(name, *RATES[name]) for name in RATES]
    if rng.random() < 0.3:
        said["fair_key"] = rng.choice(["tenant 1", "tenant 2"])
    if rng.random() < 0.4:
        said["lane"] = NARROW
    if rng.random() < alone:
        said["exclusive"] = "app"
    return said


@dataclass
class Hold:
    """One lease of one job.

    Attributes:
        start: its moment, in queue time.
        until: before this it cannot have ended.
        limits: of the job, as `Job.limits` has them.
    """

    where: str
    lane: str
    start: float
    until: float
    limits: dict[str, Any]


def exceeded(holds: Iterable[Hold]) -> list[str]:
    """Every limit that did not hold."""
    by_gate: dict[str, list[Hold]] = defaultdict(list)
    by_rate: dict[str, list[Hold]] = defaultdict(list)
    ordered = sorted(holds, key=lambda hold: hold.start)
    for hold in ordered:
        for name, _, _ in hold.limits.get("limits", ()):
            by_gate[name].append(hold)
        for name, _, _, _ in hold.limits.get("rates", ()):
            by_rate[name].append(hold)
        if hold.lane == NARROW:
            by_gate[NARROW].append(hold)
    wrong: list[str] = []
    for name, some in by_gate.items():
        wrong += _too_many(name, {**KEYS, NARROW: NARROWEST}[name], some)
    for name, some in by_rate.items():
        wrong += _too_often(name, *RATES[name], some)
    return [*wrong, *_not_alone(ordered)]


def _too_many(name: str, limit: int, holds: list[Hold]) -> Iterator[str]:
    held: list[float] = []
    for hold in holds:
        while held and held[0] - TICK <= hold.start:
            heapq.heappop(held)
        heapq.heappush(held, hold.until)
        if len(held) > limit:
            yield f"{name}: {len(held)} leased at once, and {limit} may be: {hold.where}"


def _too_often(name: str, most: int, duration: float, holds: list[Hold]) -> Iterator[str]:
    for first, next_one in zip(holds, holds[most:], strict=False):
        if next_one.start - first.start < duration - TICK:
            yield f"{name}: more than {most} leases in {duration} s: {first.where} to {next_one.where}"


def _not_alone(holds: list[Hold]) -> Iterator[str]:
    """Of two that overlap, one was to be alone."""
    running: list[Hold] = []
    for hold in holds:
        running = [other for other in running if other.until - TICK > hold.start]
        for other in running:
            if "exclusive" in hold.limits or "exclusive" in other.limits:
                yield f"{hold.where} and {other.where} were leased at once, and one of them was to be alone"
        running.append(hold)
