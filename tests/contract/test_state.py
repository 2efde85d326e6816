"""The state that a holder keeps with a job, given with a nack or a release: in the same record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nobroker import Job, NotLeasedError, Queue, SerializationError
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, take

VERBS = ["nack", "release"]


@pytest.fixture(params=VERBS)
def give_back(request: pytest.FixtureRequest, queue: Queue) -> Callable[..., Job]:
    """Give a job back, ready at once."""
    verb = getattr(queue, request.param)
    return lambda job, **more: verb(job, **{"delay": 0, **more})  # type: ignore[no-any-return]


def test_the_next_holder_finds_it(queue: Queue, give_back: Callable[..., Job]) -> None:
    queue.enqueue(1)
    given = give_back(take(queue), state={"page": 3, 1: b"x"})
    assert given.job_state == {"page": 3, 1: b"x"}
    assert queue.get(given.id).job_state == {"page": 3, 1: b"x"}
    assert take(queue).job_state == {"page": 3, 1: b"x"}


def test_none_leaves_it_as_it_was(queue: Queue, give_back: Callable[..., Job]) -> None:
    queue.enqueue(1)
    job = take(queue)
    queue.extend(job, 30, state="first", progress="half")
    assert give_back(job).job_state == "first"
    assert give_back(take(queue), state=0).job_state == 0
    again = take(queue)
    assert (again.job_state, again.progress) == (0, "half")
    assert queue.extend(again, 30, state="third").job_state == "third"
    assert give_back(again).job_state == "third"


def test_a_value_that_is_not_stored_changes_nothing(queue: Queue, give_back: Callable[..., Job]) -> None:
    queue.enqueue(1)
    job = take(queue)
    with pytest.raises(SerializationError, match=r"state\['a'\]"):
        give_back(job, state={"a": {1}})
    assert queue.get(job.id) == job


def test_by_somebody_who_lost_the_job(queue: Queue, give_back: Callable[..., Job]) -> None:
    queue.enqueue(1)
    stale = take(queue)
    give_back(stale, state="mine")
    with pytest.raises(NotLeasedError):
        give_back(stale, state="stale")
    assert queue.get(stale.id).job_state == "mine"


@pytest.mark.parametrize("verb", ["nack_many", "release_many"])
def test_of_many_all_get_it(queue: Queue, verb: str) -> None:
    queue.enqueue_many(range(5))
    jobs = queue.lease(5)
    given = getattr(queue, verb)(jobs[1:4], delay=0, state=[1])
    assert [job.job_state for job in given] == [[1]] * 3
    assert given[0].job_state is not given[1].job_state
    assert [job.job_state for job in queue.lease(5)] == [[1]] * 3
    with pytest.raises(SerializationError):
        getattr(queue, verb)([], state=object())


def test_of_a_job_that_is_dead(queue: Queue) -> None:
    queue.enqueue(1)
    job = queue.nack(take(queue), error="no use", dead=True, state="counted")
    assert (job.state, job.last_error, job.job_state) == ("dead", "no use", "counted")
    queue.requeue_dead()
    assert take(queue).job_state == "counted"


@pytest.mark.parametrize("verb", VERBS)
def test_of_a_job_that_was_called_off(queue: Queue, verb: str) -> None:
    queue.enqueue(1)
    job = take(queue)
    queue.cancel(job.id)
    given = getattr(queue, verb)(job, state="last")
    assert (given.state, given.last_error, given.job_state) == ("done", "cancelled", "last")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("after", ["reopen", "compact", "both"])
def test_it_outlives_the_process_and_the_segment(
    open_queue: Opener, clock: ManualClock, verb: str, after: str
) -> None:
    queue = open_queue()
    queue.enqueue_many(["x" * 3000] * 60)
    jobs = queue.lease(60)
    for job in jobs[:3]:
        getattr(queue, verb)(job, delay=5, state=["of", job.seq])
    queue.ack_many(jobs[3:])
    before = [queue.get(job.id) for job in jobs[:3]]
    for _ in range(2):
        if after != "reopen":
            queue.compact()
        if after != "compact":
            queue = open_queue.reopen(queue)
    assert [queue.get(job.id) for job in jobs[:3]] == before
    clock.advance(5)
    assert [(job.job_state, job.payload) for job in queue.lease(9)] == [
        (["of", job.seq], "x" * 3000) for job in jobs[:3]
    ]
    assert counts(queue)[2] == 3


def test_another_handle_sees_it(open_queue: Opener) -> None:
    one, other = open_queue(), open_queue()
    one.enqueue(1)
    job: Any = other.lease_one()
    one.release(job.id, state="seen")
    assert other.get(job.id).job_state == "seen"
    assert take(other).job_state == "seen"
