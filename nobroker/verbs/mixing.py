"""Jobs of several kinds -> groups of neighbours that can share their records.

Most calls give many jobs whose options are the very same objects: those are checked once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from nobroker import arguments
from nobroker.job import NewJob
from nobroker.stores.base import NewJobs
from nobroker.values import pack_batches

_NEW: Final = frozenset({NewJob})

Options = Callable[[NewJob, str], NewJobs]
"""Checks the options of a job; gives a group without jobs. The text goes before their names in errors."""


def grouped(jobs: Iterable[NewJob], options: Options) -> list[NewJobs]:
    """Groups in the order given.

    Raises:
        TypeError, ValueError: an option is wrong; the error names it as `jobs[i].option`.
        SerializationError: a payload is refused, as `jobs[i].payload`.
    """
    listed = list(jobs)
    if not set(map(type, listed)) <= _NEW:
        for index, job in enumerate(listed):
            if not isinstance(job, NewJob):
                raise TypeError(f"jobs[{index}] must be a NewJob, not {type(job).__name__}")
    groups: list[NewJobs] = []
    start = 0
    for count, new, delays in _merged(_checked(listed, options)):
        mine = listed[start : start + count]
        new.batches = pack_batches((job.payload for job in mine), "jobs[{}].payload", start)
        new.count = count
        new.ids = _ids(mine, start)
        if delays.count(delays[0]) == count:
            new.delay_us = delays[0]
        else:
            new.delay_us, new.delays_us = 0, delays
        groups.append(new)
        start += count
    return groups


def _checked(jobs: Sequence[NewJob], options: Options) -> Iterator[tuple[int, NewJobs]]:
    """Neighbours whose options are the same objects: how many, and what they share."""
    start, last = 0, None
    for index, job in enumerate(jobs):
        if last is None or not _same(job, last):
            if last is not None:
                yield index - start, options(last, f"jobs[{start}].")
            start, last = index, job
    if last is not None:
        yield len(jobs) - start, options(last, f"jobs[{start}].")


def _same(one: NewJob, other: NewJob) -> bool:
    return (
        one.priority is other.priority
        and one.delay is other.delay
        and one.run_at is other.run_at
        and one.max_attempts is other.max_attempts
        and one.expires_in is other.expires_in
        and one.metadata is other.metadata
        and one.lane is other.lane
        and one.limits is other.limits
        and one.rates is other.rates
        and one.exclusive is other.exclusive
        and one.fair_key is other.fair_key
        and one.fair_weight is other.fair_weight
    )


def _merged(runs: Iterable[tuple[int, NewJobs]]) -> Iterator[tuple[int, NewJobs, array[int]]]:
    """Neighbours whose options say the same, but perhaps for the delay: how many, what they share, the delays
    of each.
    """
    group: NewJobs | None = None
    delays = array("q")
    for count, new in runs:
        if group is not None and _shared(new) != _shared(group):
            yield len(delays), group, delays
            group, delays = None, array("q")
        group = group or new
        delays.extend([new.delay_us] * count)
    if group is not None:
        yield len(delays), group, delays


def _shared(new: NewJobs) -> tuple[Any, ...]:
    return (
        new.priority,
        new.run_at_us,
        new.max_attempts,
        new.expires_us,
        new.metadata,
        new.lane,
        new.limits,
    )


def _ids(jobs: list[NewJob], start: int) -> list[str | None] | None:
    ids = [job.job_id for job in jobs]
    given = [job_id for job_id in ids if job_id is not None]
    if given and not arguments.plainly_ids(given):
        for index, job_id in enumerate(ids, start):
            if job_id is not None:
                arguments.own_id(job_id, f"jobs[{index}].job_id")
    return ids if given else None
