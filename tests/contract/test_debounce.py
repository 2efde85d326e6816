"""Debounce: the newest arguments win, and the job runs no later than it says."""

from __future__ import annotations

import io
from typing import Any

import pytest

from nobroker import Limit, Queue, QueueFullError
from nobroker.clock import ManualClock
from nobroker_tools.dump import dump_events

from .conftest import Opener
from .words import counts, take


def put(queue: Queue, payload: object, **options: Any) -> Any:
    return queue.enqueue(payload, job_id="k", debounce=10, debounce_max=25, **options)


def test_the_newest_arguments_win_and_the_time_is_pushed_back(queue: Queue, clock: ManualClock) -> None:
    first = put(queue, {"n": 1}, priority=3, metadata="m")
    assert (first.created, first.available_at - first.enqueued_at) == (True, 10.0)
    clock.advance(8)
    again = put(queue, {"n": 2}, priority=9)
    assert (again.created, again.seq, again.priority, again.metadata) == (False, first.seq, 3, "m")
    assert again.available_at - first.enqueued_at == 18.0
    assert again.enqueued_at == first.enqueued_at
    assert counts(queue) == (0, 1, 0, 0, 0)
    clock.advance(9.5)
    assert queue.lease() == []
    clock.advance(0.5)
    job = take(queue)
    assert (job.id, job.payload, job.attempts) == ("k", {"n": 2}, 1)


def test_no_later_than_the_maximum(queue: Queue, clock: ManualClock) -> None:
    put(queue, 0)
    for number in range(1, 5):
        clock.advance(8 if number < 4 else 0.5)
        job = put(queue, number)
    assert job.available_at - job.enqueued_at == 25.0
    clock.advance(0.5)
    assert take(queue).payload == 4


def test_also_when_it_is_due(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue("a", job_id="k")
    assert queue.enqueue("b", job_id="k", debounce=5).payload == "b"
    assert queue.lease() == []
    clock.advance(60)
    queue.enqueue("c", job_id="k", debounce=5)
    assert queue.lease() == [], "without a maximum for ever"
    clock.advance(5)
    assert take(queue).payload == "c"


def test_one_that_is_leased_or_dead_stays_and_one_that_is_done_begins_again(
    queue: Queue, clock: ManualClock
) -> None:
    first = put(queue, 1)
    clock.advance(10)
    job = take(queue)
    assert (put(queue, 2).created, put(queue, 2).payload) == (False, 1)
    queue.ack(job)
    second = put(queue, 3)
    assert second.created
    assert second.seq > first.seq
    assert queue.get("k").payload == 3
    clock.advance(10)
    queue.nack(take(queue), dead=True)
    assert (put(queue, 4).created, queue.get("k").payload) == (False, 3)


def test_a_retry_gets_the_arguments_and_keeps_its_time(queue: Queue, clock: ManualClock) -> None:
    put(queue, 1)
    clock.advance(10)
    failed = queue.nack(take(queue), error="no", delay=40)
    clock.advance(1)
    job = put(queue, 2)
    assert (job.payload, job.attempts, job.last_error) == (2, 1, "no")
    assert job.available_at == failed.available_at


@pytest.mark.parametrize("compacted", [False, True])
def test_other_handles_and_restarts(
    open_queue: Opener, queue: Queue, clock: ManualClock, compacted: bool
) -> None:
    other = open_queue()
    put(queue, 1, limits=Limit("l", 1), lane="x", expires_in=100)
    put(other, 2)
    if compacted:
        queue.compact()
    put(queue, 3)
    queue.enqueue("other", limits=Limit("l", 1), priority=-1)
    if compacted:
        queue.compact()
    for handle in (other, queue, open_queue()):
        assert [job.payload for job in handle.list_jobs()] == [3, "other"]
        assert handle.get("k").limits == {"limits": [["l", 1, "wait"]]}
    clock.advance(10)
    assert [job.payload for job in queue.lease(9)] == [3]
    assert [job.payload for job in open_queue().list_jobs("ready")] == ["other"]


def test_expires_and_cancels_as_ever(queue: Queue, clock: ManualClock) -> None:
    put(queue, 1, expires_in=15)
    clock.advance(9)
    put(queue, 2)
    clock.advance(7)
    assert queue.get("k").last_error == "expired"
    queue.drop_dead()
    put(queue, 3)
    queue.cancel("k")
    assert put(queue, 4).created


def test_with_a_limit_that_discards(queue: Queue) -> None:
    once = Limit("l", 1, "discard")
    queue.enqueue("holder", limits=once)
    refused = put(queue, 1, limits=once)
    assert (refused.created, refused.state.value, len(queue)) == (False, "done", 1)


@pytest.mark.parametrize("what", ["discarded", "full"])
def test_a_done_job_stays_when_its_successor_does_not_come_in(open_queue: Opener, what: str) -> None:
    queue = open_queue(max_bytes=20_000)
    queue.enqueue("holder", limits=Limit("l", 1))
    queue.enqueue("first", job_id="k")
    queue.ack(take(queue))
    queue.ack(take(queue), result="what it gave")
    queue.enqueue("holder", limits=Limit("l", 1))
    if what == "discarded":
        refused = put(queue, 2, limits=Limit("l", 1, "discard"))
        assert (refused.created, refused.last_error) == (False, "discarded: its key has no room")
    else:
        with pytest.raises(QueueFullError):
            put(queue, "x" * 20_000)
    for handle in (queue, open_queue()):
        job = handle.get("k")
        assert (job.state.value, job.result) == ("done", "what it gave")
    assert put(queue, 3).created
    assert queue.get("k").payload == 3


def test_a_full_queue(open_queue: Opener) -> None:
    queue = open_queue(max_bytes=20_000)
    put(queue, 1)

    def put_on() -> None:
        for _ in range(50):
            put(queue, "x" * 1000)

    with pytest.raises(QueueFullError):
        put_on()
    assert queue.stats().bytes <= 20_000
    assert len(queue) == 1


def test_a_dump_tells_it(open_queue: Opener, queue: Queue) -> None:
    put(queue, "first")
    put(queue, "second")
    lines = io.StringIO()
    assert dump_events(open_queue.dir, "default", lines) == 0
    told = lines.getvalue()
    assert '"event": "replace"' in told or '"event":"replace"' in told
    assert "second" in told


@pytest.mark.parametrize(
    "options",
    [
        {"debounce": 5},
        {"job_id": "k", "debounce_max": 5},
        {"job_id": "k", "debounce": 5, "delay": 1},
        {"job_id": "k", "debounce": 5, "run_at": 1.0},
        {"job_id": "k", "debounce": 0},
        {"job_id": "k", "debounce": 5, "debounce_max": 4},
        {"job_id": "k", "debounce": "5"},
    ],
)
def test_what_does_not_go_together(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        queue.enqueue(1, **options)
    assert len(queue) == 0
