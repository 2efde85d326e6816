"""`lease`, `lease_one`, and waiting for a job."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from nobroker import Queue, QueueClosedError
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, drain, take


class TestLease:
    def test_gives_the_job_with_its_lease(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue({"n": 1})
        clock.advance(2)
        job = take(queue)
        assert (job.id, job.payload, job.state, job.attempts) == (made.id, {"n": 1}, "leased", 1)
        assert job.lease_deadline == clock.wall_us() / 1e6 + 30
        assert isinstance(job.lease_token, int)
        assert job.enqueued_at == job.available_at == made.enqueued_at
        assert queue.get(job.id) == job
        assert counts(queue) == (0, 0, 1, 0, 0)

    def test_at_most_count(self, queue: Queue) -> None:
        queue.enqueue_many(range(5))
        assert [len(queue.lease(n)) for n in (2, 2, 2, 2)] == [2, 2, 1, 0]

    def test_one_is_the_default(self, queue: Queue) -> None:
        queue.enqueue_many(range(2))
        assert len(queue.lease()) == 1

    def test_lease_one_on_nothing_is_none(self, queue: Queue) -> None:
        assert queue.lease_one() is None
        assert queue.lease() == []

    def test_nothing_then_something(self, open_queue: Opener) -> None:
        one, two = open_queue(), open_queue()
        for queue in (one, two):
            assert one.lease() == two.lease() == []
            queue.enqueue("x")
            assert take(one).payload == "x"
            queue.enqueue("y")
            assert take(two).payload == "y"

    def test_visibility_timeout_of_the_queue_and_of_the_call(
        self, open_queue: Opener, clock: ManualClock
    ) -> None:
        queue = open_queue(visibility_timeout=7)
        queue.enqueue_many([1, 2])
        now = clock.wall_us() / 1e6
        assert take(queue).lease_deadline == now + 7
        assert queue.lease(1, visibility_timeout=0.5)[0].lease_deadline == now + 0.5

    def test_lanes(self, queue: Queue) -> None:
        for lane in "abc":
            queue.enqueue_many([f"{lane}1", f"{lane}2"], lane=lane)
        assert [job.payload for job in queue.lease(9, lanes=["c", "b"])] == ["b1", "b2", "c1", "c2"]
        assert queue.lease(9, lanes=("b",)) == []
        job = queue.lease_one(lanes=iter(["a"]))
        assert job is not None
        assert job.payload == "a1"

    def test_order_across_lanes_is_one_order(self, queue: Queue) -> None:
        queue.enqueue("low", lane="a")
        queue.enqueue("high", lane="b", priority=1)
        queue.enqueue("default lane")
        assert drain(queue) == ["high", "low", "default lane"]

    def test_a_lane_nobody_used(self, queue: Queue) -> None:
        queue.enqueue(1)
        assert queue.lease(1, lanes=["nobody"]) == []

    def test_default_lane_by_its_name(self, queue: Queue) -> None:
        queue.enqueue(1, lane="x")
        queue.enqueue(2)
        assert [job.payload for job in queue.lease(5, lanes=[""])] == [2]

    def test_from_many_records_in_one_call(self, queue: Queue) -> None:
        for n in range(30):
            queue.enqueue(n, priority=n % 3)
        queue.enqueue_many(range(100, 1300))
        jobs = queue.lease(2000)
        expected = [n for p in (2, 1, 0) for n in range(30) if n % 3 == p] + list(range(100, 1300))
        assert [job.payload for job in jobs] == expected
        tokens = [job.lease_token for job in jobs]
        assert tokens == sorted(set(tokens))  # type: ignore[type-var]

    def test_the_present_job_is_the_callers_own_object(self, queue: Queue) -> None:
        queue.enqueue([1])
        job = take(queue)
        job.payload.append(2)
        assert queue.get(job.id).payload == [1]


class TestPausedCountsAsEmpty:
    def test_for_lease(self, queue: Queue) -> None:
        queue.enqueue(1)
        queue.pause()
        assert queue.lease() == []
        assert queue.lease_one() is None
        assert queue.lease(wait=0.01) == []
        queue.resume()
        assert take(queue).payload == 1

    def test_for_a_lane(self, queue: Queue) -> None:
        queue.enqueue(1, lane="a")
        queue.enqueue(2, lane="b")
        queue.pause(lane="a")
        assert drain(queue) == [2]
        assert queue.lease(5, lanes=["a"]) == []
        queue.resume(lane="a")
        assert drain(queue) == [1]


class Waiter:
    """A thread in `lease(wait=...)`, and what came of it."""

    def __init__(self, queue: Queue, wait: float = 30.0, **options: Any) -> None:
        self.outcome: Any = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, args=(queue, wait, options), daemon=True)
        self._thread.start()

    def _run(self, queue: Queue, wait: float, options: dict[str, Any]) -> None:
        start = time.monotonic()
        try:
            self.outcome = queue.lease(1, wait=wait, **options)
        except BaseException as error:
            self.outcome = error
        self.seconds = time.monotonic() - start

    def result(self) -> Any:
        self._thread.join(20)
        assert not self._thread.is_alive(), "still waiting"
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def settle() -> None:
    """Let a thread get to where it waits; a test is right without it, too, but tests less."""
    threading.Event().wait(0.05)


class TestWait:
    def test_returns_at_once_when_there_is_a_job(self, queue: Queue) -> None:
        queue.enqueue(1)
        assert Waiter(queue).result()[0].payload == 1

    def test_returns_nothing_when_the_time_is_over(self, queue: Queue) -> None:
        start = time.monotonic()
        assert queue.lease(wait=0.1) == []
        assert 0.09 <= time.monotonic() - start < 5

    @pytest.mark.parametrize("same", [True, False])
    def test_an_enqueue_ends_it(self, open_queue: Opener, same: bool) -> None:
        one = open_queue()
        two = one if same else open_queue()
        waiter = Waiter(one)
        settle()
        two.enqueue("x")
        assert waiter.result()[0].payload == "x"
        assert waiter.seconds < 10

    def test_a_nack_a_release_a_resume_and_a_requeue_end_it(self, open_queue: Opener) -> None:
        one, two = open_queue(), open_queue()
        two.enqueue("x")
        job = take(two)
        for verb in (
            lambda job: two.nack(job, delay=0),
            lambda job: two.release(job),
            lambda job: (two.nack(job, dead=True), two.requeue_dead()),
        ):
            waiter = Waiter(one)
            settle()
            verb(job)
            assert waiter.result()[0].id == job.id
            job = two.get(job.id)
        two.release(job)
        two.pause()
        waiter = Waiter(one)
        settle()
        two.resume()
        assert waiter.result()[0].id == job.id

    def test_one_job_goes_to_one_of_many_waiters(self, open_queue: Opener) -> None:
        queue = open_queue()
        waiters = [Waiter(queue, wait=1.0) for _ in range(4)]
        settle()
        open_queue().enqueue(1)
        assert sum(len(waiter.result()) for waiter in waiters) == 1

    def test_as_many_jobs_end_as_many_waits(self, open_queue: Opener) -> None:
        queue, other = open_queue(), open_queue()
        waiters = [Waiter(each) for each in (queue, queue, other, other)]
        settle()
        open_queue().enqueue_many(range(4))
        assert sorted(waiter.result()[0].payload for waiter in waiters) == [0, 1, 2, 3]
        assert max(waiter.seconds for waiter in waiters) < 10

    def test_close_ends_it_with_an_error(self, open_queue: Opener) -> None:
        queue = open_queue()
        waiters = [Waiter(queue) for _ in range(3)]
        settle()
        queue.close()
        for waiter in waiters:
            with pytest.raises(QueueClosedError):
                waiter.result()
            assert waiter.seconds < 10

    def test_a_purge_of_what_another_waits_for_leaves_it_waiting(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue(1, delay=5)
        waiter = Waiter(queue, wait=0.3)
        queue.purge()
        assert waiter.result() == []

    def test_a_job_of_another_lane_does_not_end_it_nor_is_it_lost(self, open_queue: Opener) -> None:
        queue = open_queue()
        mine, theirs = Waiter(queue, lanes=["a"]), Waiter(queue, lanes=["b"])
        settle()
        open_queue().enqueue("for b", lane="b")
        assert theirs.result()[0].payload == "for b"
        queue.enqueue("for a", lane="a")
        assert mine.result()[0].payload == "for a"
        assert max(mine.seconds, theirs.seconds) < 10
