"""Lanes in an order of their own: whatever waits, the next job is the one that it should be."""

from __future__ import annotations

import tempfile
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from nobroker import Lanes, Queue
from nobroker.clock import ManualClock
from nobroker.lanes import ORDERS

NAMES = ("a", "b", "c1", "c*", "*", "*", "")
LANES = ("a", "b", "c1", "c2", "")


class Waiting(NamedTuple):
    """A job that waits."""

    lane: str
    nprio: int
    number: int

    @property
    def key(self) -> tuple[int, int]:
        return self.nprio, self.number


def rank(names: list[str], without: list[str], lane: str) -> int | None:
    """Of the entry that a lane belongs to; None: it is not served."""
    if lane in names and not lane.endswith("*"):
        return names.index(lane)
    if lane in without:
        return None
    fitting = [n for n, name in enumerate(names) if name.endswith("*") and lane.startswith(name[:-1])]
    return fitting[0] if fitting else None


def must_be_next(
    order: str, job: Waiting, waiting: list[Waiting], ranks: dict[str, int], turns: dict[str, int]
) -> None:
    """Whether a job may be the next of those that wait and are served."""
    if order == "priority":
        assert job == min(waiting, key=lambda one: one.key)
    elif order == "ordered":
        assert job == min(waiting, key=lambda one: (ranks[one.lane], one.key))
    else:
        first = min((turns.get(one.lane, 0), ranks[one.lane]) for one in waiting)
        assert (turns.get(job.lane, 0), ranks[job.lane]) == first
        assert job == min((one for one in waiting if one.lane == job.lane), key=lambda one: one.key)


jobs = st.lists(st.tuples(st.sampled_from(LANES), st.sampled_from([0, 0, 0, 1, 5])), max_size=10)


@settings(max_examples=80, deadline=None)
@given(
    names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True),
    order=st.sampled_from(ORDERS),
    without=st.lists(st.sampled_from(LANES), max_size=1),
    paused=st.none() | st.sampled_from(LANES),
    steps=st.lists(st.tuples(jobs, st.integers(1, 6)), min_size=3, max_size=6),
)
def test_the_next_job_is_the_one_it_should_be(
    names: list[str],
    order: str,
    without: list[str],
    paused: str | None,
    steps: list[tuple[list[tuple[str, int]], int]],
) -> None:
    lanes = Lanes(names, order=order, without=without)
    ranks = {lane: found for lane in LANES if (found := rank(names, without, lane)) is not None}
    ranks.pop("no lane" if paused is None else paused, None)
    assert all(lanes.rank(lane) == (0 if lanes.by_priority else ranks[lane]) for lane in ranks)
    waiting: list[Waiting] = []
    turns: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        Queue(directory, fsync=False, clock=ManualClock()) as queue,
    ):
        if paused is not None:
            queue.pause(lane=paused)
        for new, count in [*steps, ([], 100)]:
            for lane, priority in new:
                waiting.append(
                    Waiting(lane, -priority, queue.enqueue(None, lane=lane, priority=priority).seq)
                )
            leased = queue.lease(count, lanes=lanes)
            served = [one for one in waiting if one.lane in ranks]
            assert len(leased) == min(count, len(served))
            for job in leased:
                taken = Waiting(job.lane, -job.priority, job.seq)
                must_be_next(order, taken, served, ranks, turns)
                served.remove(taken)
                waiting.remove(taken)
                turns[job.lane] = max(turns.values(), default=0) + 1
        assert queue.stats().ready == len(waiting)
        assert queue.check() == []
