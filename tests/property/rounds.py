"""Fair shares, as the model has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Record


def turn(waiting: list[Record], first: Record, passed: dict[Any, int], reached: dict[Any, int]) -> Record:
    """The first job of the key whose turn it is, in the round of the first of all."""
    firsts: dict[str, Record] = {}
    for job in waiting:
        if job.fair is not None and not job.alone and job.round == first.round:
            firsts.setdefault(job.fair[0], job)
    return min(
        firsts.values(),
        key=lambda job: (max(passed.get(job.fair_name, 0), reached.get(job.round, 0)), job.key),
    )


def pass_on(job: Record, passed: dict[Any, int], reached: dict[Any, int], weights: dict[Any, int]) -> None:
    """A lease uses up some of its key's share."""
    if job.fair is not None:
        start = max(passed.get(job.fair_name, 0), reached.get(job.round, 0))
        reached[job.round] = start
        passed[job.fair_name] = start + 1_000_000 // weights[job.fair_name]
