"""`stats(seqs=range)`: how far the jobs of one call are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from nobroker import Job, Queue
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, take


def of(jobs: Sequence[Job]) -> range:
    return range(jobs[0].seq, jobs[-1].seq + 1)


def test_counts_those_alone(queue: Queue) -> None:
    queue.enqueue_many(range(3))
    mine = queue.enqueue_many(range(10), lane="mine", delays=[0] * 7 + [5] * 3)
    queue.enqueue_many(range(4), priority=-1)
    jobs = queue.lease(6, lanes=["mine"])
    queue.ack_many(jobs[:2])
    queue.nack(jobs[2], dead=True)
    queue.nack(jobs[3], delay=9)
    assert counts(queue, seqs=of(mine)) == (1, 4, 2, 2, 1)
    assert counts(queue, seqs=range(mine[2].seq, mine[4].seq)) == (0, 1, 0, 0, 1)
    assert queue.stats(seqs=of(mine)).total == 10
    assert queue.stats(seqs=of(mine)).bytes == queue.stats().bytes


def test_time_counts_though_nobody_wrote_it_down(queue: Queue, clock: ManualClock) -> None:
    mine = queue.enqueue_many(range(6), expires_in=20, max_attempts=1)
    other = queue.enqueue_many(range(6), expires_in=20, delay=10)
    queue.cancel(queue.lease(2, visibility_timeout=5)[0].id)
    assert counts(queue, seqs=of(mine)) == (4, 0, 2, 0, 0)
    clock.advance(10)
    assert counts(queue, seqs=of(mine)) == (4, 0, 0, 1, 1)
    assert counts(queue, seqs=of(other)) == (6, 0, 0, 0, 0)
    clock.advance(10)
    assert counts(queue, seqs=of(mine)) == (0, 0, 0, 1, 5)
    assert counts(queue, seqs=of(mine[:1])) == (0, 0, 0, 1, 0)
    assert counts(queue, seqs=of(other)) == (0, 0, 0, 0, 6)


def test_what_is_forgotten_is_not_counted(open_queue: Opener) -> None:
    queue = open_queue()
    mine = queue.enqueue_many(["x" * 900] * 200)
    queue.ack_many(queue.lease(150))
    assert counts(queue, seqs=of(mine)) == (50, 0, 0, 150, 0)
    queue.compact()
    queue = open_queue.reopen(queue)
    assert counts(queue, seqs=of(mine)) == (50, 0, 0, 0, 0)
    queue.purge()
    assert queue.stats(seqs=of(mine)).total == 0


@pytest.mark.parametrize("seqs", [range(0), range(5, 5), range(9, 2), range(-8, 0), range(10**6, 10**9)])
def test_a_range_without_jobs(queue: Queue, seqs: range) -> None:
    queue.enqueue_many(range(20))
    assert counts(queue, seqs=seqs) == (0, 0, 0, 0, 0)


def test_a_range_of_all_that_can_be(queue: Queue) -> None:
    queue.enqueue_many(range(10_000))
    queue.ack(take(queue))
    began = time.process_time()
    assert counts(queue, seqs=range(-(2**70), 2**70)) == (9999, 0, 0, 1, 0)
    assert time.process_time() - began < 1
    assert queue.stats(seqs=range(1, 10_001)).oldest_ready_age is None


@pytest.mark.parametrize("wrong", [(1, 5), [1], 5, slice(1, 5), {1}, "1"])
def test_something_else(queue: Queue, wrong: Any) -> None:
    with pytest.raises(TypeError, match="seqs"):
        queue.stats(seqs=wrong)


def test_ranges_with_gaps_and_with_a_lane(queue: Queue) -> None:
    for wrong in (range(1, 9, 2), range(9, 1, -1)):
        with pytest.raises(ValueError, match="gaps"):
            queue.stats(seqs=wrong)
    with pytest.raises(ValueError, match="lane"):
        queue.stats(lane="", seqs=range(5))


def test_reading_only(open_queue: Opener) -> None:
    queue = open_queue()
    mine = queue.enqueue_many(range(5))
    queue.close()
    assert counts(open_queue(read_only=True), seqs=of(mine)) == (5, 0, 0, 0, 0)
