"""Fair shares: leases go round the keys, by weight."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nobroker import Job, Limit, Queue

from .conftest import Opener
from .words import drain, take


def keys(jobs: list[Job]) -> str:
    return "".join(str(job.payload) for job in jobs)


def test_a_flood_does_not_starve_the_others(queue: Queue) -> None:
    queue.enqueue_many("A" * 50, fair_key="A")
    queue.enqueue_many("B" * 3, fair_key="B")
    queue.enqueue("C", fair_key="C")
    assert keys(queue.lease(8)) == "ABCABABA"
    assert keys(queue.lease(9)) == "A" * 9, "work-conserving"


def test_by_weight(queue: Queue) -> None:
    queue.enqueue_many("A" * 60, fair_key="A")
    queue.enqueue_many("B" * 60, fair_key="B", fair_weight=3)
    queue.enqueue_many("C" * 60, fair_key="C", fair_weight=2)
    assert Counter(keys(queue.lease(60))) == {"A": 10, "B": 30, "C": 20}


def test_who_comes_late_has_saved_nothing_up(queue: Queue) -> None:
    queue.enqueue_many("A" * 40, fair_key="A")
    queue.enqueue("B", fair_key="B")
    queue.ack_many(queue.lease(20))
    queue.enqueue_many("B" * 10, fair_key="B")
    assert Counter(keys(queue.lease(10))) == {"A": 5, "B": 5}


def test_priority_goes_first_and_lanes_have_rounds_of_their_own(queue: Queue) -> None:
    queue.enqueue_many("AA", fair_key="A")
    queue.enqueue_many("BB", fair_key="B")
    queue.enqueue_many("aa", fair_key="A", priority=1)
    queue.enqueue("b", fair_key="B", priority=1)
    queue.enqueue_many("xx", fair_key="A", lane="x")
    assert keys(queue.lease(3)) == "aba"
    assert keys(queue.lease(1, lanes=["x"])) == "x"
    assert keys(queue.lease(9)) == "ABABx"


def test_jobs_without_a_key_keep_their_place_in_time(queue: Queue, open_queue: Opener) -> None:
    queue.enqueue("1")
    queue.enqueue_many("AA", fair_key="A")
    queue.enqueue("2")
    queue.enqueue("B", fair_key="B")
    assert keys(queue.lease(9)) == "1ABA2"


def test_over_restarts_and_processes(open_queue: Opener, queue: Queue) -> None:
    queue.enqueue_many("A" * 30, fair_key="A", fair_weight=2)
    queue.enqueue_many("B" * 30, fair_key="B")
    found: list[Job] = []
    for number in range(30):
        job = take(queue)
        queue.ack(job)
        found.append(job)
        if number % 7 == 3:
            queue.compact()
        if number % 5 == 4:
            queue = open_queue.reopen(queue)
    assert Counter(keys(found)) == {"A": 20, "B": 10}


def test_with_limits(queue: Queue) -> None:
    for key in "AB":
        queue.enqueue_many(key * 9, fair_key=key, limits=[Limit("all", 3), Limit(key, 2)])
    held = queue.lease(9)
    assert keys(held) == "ABA"
    queue.ack(held[1])
    assert keys(queue.lease(9)) == "B"
    queue.ack(held[0])
    assert keys(queue.lease(9)) == "A", "both have had two"
    assert len(drain_all(queue)) == 13


def drain_all(queue: Queue) -> list[object]:
    queue.ack_many(queue.list_jobs("leased"))
    return drain(queue)


def test_a_retry_goes_round_too(queue: Queue) -> None:
    queue.enqueue_many("AAA", fair_key="A")
    queue.nack(take(queue), delay=0)
    queue.enqueue("B", fair_key="B")
    assert keys(queue.lease(9)) == "BAAA"


@pytest.mark.parametrize(
    "options",
    [
        {"fair_key": ""},
        {"fair_key": 1},
        {"fair_key": "k", "fair_weight": 0},
        {"fair_key": "k", "fair_weight": 1.5},
        {"fair_key": "k", "fair_weight": 1001},
        {"fair_weight": 2},
    ],
)
def test_what_no_job_takes(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        queue.enqueue(1, **options)
    assert len(queue) == 0
