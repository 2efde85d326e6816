"""`reschedule`: when a waiting job becomes available."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nobroker import Job, JobNotFoundError, NewJob, Queue
from nobroker.clock import ManualClock

from .conftest import Opener
from .test_lease import Waiter, settle
from .words import counts, drain, take


def now(clock: ManualClock) -> float:
    return clock.wall_us() / 1e6


class TestTimes:
    def test_a_delayed_job_now(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue(1, delay=1000)
        clock.advance(3)
        job = queue.reschedule(made.id)
        assert (job.state, job.available_at, job.attempts) == ("ready", now(clock), 0)
        assert queue.get(made.id) == job
        assert counts(queue) == (1, 0, 0, 0, 0)
        assert take(queue).available_at == now(clock)

    def test_a_ready_job_later(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue(1)
        job = queue.reschedule(made, delay=7.5)  # type: ignore[arg-type]  # a Job will do, too
        assert job.available_at == now(clock) + 7.5
        assert counts(queue) == (0, 1, 0, 0, 0)
        clock.advance(7.4)
        assert queue.lease_one() is None
        clock.advance(0.1)
        assert take(queue).id == made.id

    @pytest.mark.parametrize("aware", [True, False])
    def test_a_moment_of_the_wall_clock(self, queue: Queue, clock: ManualClock, aware: bool) -> None:
        made = queue.enqueue(1)
        moment = now(clock) + 3600
        job = queue.reschedule(made.id, run_at=datetime.fromtimestamp(moment, UTC) if aware else moment)
        assert job.available_at == moment
        clock.step_wall(3599)
        assert queue.lease_one() is None
        assert counts(queue) == (0, 1, 0, 0, 0)
        clock.step_wall(1)
        assert counts(queue) == (1, 0, 0, 0, 0)
        assert take(queue).id == made.id

    def test_a_moment_that_has_passed(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue(1, delay=50)
        assert queue.reschedule(made.id, run_at=now(clock) - 100).available_at == now(clock) - 100
        assert take(queue).id == made.id

    def test_from_a_moment_to_a_delay_and_back(self, queue: Queue, clock: ManualClock) -> None:
        """At one and the same time, once by the one clock and once by the other."""
        made = queue.enqueue(1, run_at=now(clock) + 60)
        queue.reschedule(made.id, run_at=now(clock) + 60)
        queue.reschedule(made.id, delay=60)
        clock.step_wall(3600)
        assert queue.lease_one() is None
        clock.step_wall(-3600)
        queue.reschedule(made.id, run_at=now(clock) + 60)
        clock.step_wall(-3600)
        clock.advance(60)
        assert queue.lease_one() is None
        assert [job.id for job in queue.list_jobs("ready")] == [made.id]
        clock.step_wall(3600)
        assert take(queue).id == made.id
        assert queue.lease_one() is None

    def test_there_and_back_again_is_delivered_once(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue_many("abc")
        for delay in (5, 0, 5, 0, 0):
            queue.reschedule(made[1].id, delay=delay)
        assert [job.payload for job in queue.list_jobs("ready")] == ["a", "b", "c"]
        assert [job.payload for job in queue.lease(9)] == ["a", "b", "c"]

    def test_of_a_job_that_waits_after_a_failure(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        failed = queue.nack(take(queue), error="e", delay=500, state="s")
        job = queue.reschedule(failed.id, delay=1)
        assert (job.attempts, job.last_error, job.job_state) == (1, "e", "s")
        clock.advance(1)
        job = take(queue)
        assert (job.attempts, job.last_error, job.job_state) == (2, "e", "s")


class TestOrder:
    def test_its_place_is_that_of_its_new_time(self, queue: Queue, clock: ManualClock) -> None:
        first = queue.enqueue("first")
        clock.advance(1)
        queue.enqueue("second")
        clock.advance(1)
        queue.enqueue("high", priority=5, delay=5)
        queue.reschedule(first.id)
        assert drain(queue) == ["second", "first"]
        clock.advance(5)
        assert drain(queue) == ["high"]

    def test_it_keeps_priority_lane_attempts_and_metadata(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, priority=-4, lane="a", max_attempts=2, metadata=[1], job_id="own", delay=9)
        queue.reschedule("own")
        job = take(queue)
        assert (job.priority, job.lane, job.max_attempts, job.metadata) == (-4, "a", 2, [1])
        assert counts(queue, "a") == (0, 0, 1, 0, 0)
        queue.nack(job, delay=0)
        assert queue.nack(take(queue)).state == "dead"

    def test_in_the_midst_of_a_batch(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue_many(range(3000), delay=5)
        for job in (made[0], made[1500], made[2999]):
            queue.reschedule(job.id)
        assert [job.payload for job in queue.list_jobs("ready", limit=5)] == [0, 1500, 2999, 1, 2]
        assert drain(queue) == [0, 1500, 2999]
        assert counts(queue) == (0, 2997, 0, 3, 0)
        clock.advance(5)
        assert drain(queue) == [n for n in range(3000) if n not in (0, 1500, 2999)]

    def test_delayed_ones_are_listed_by_their_new_time(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue_many("abcd", delays=[1, 2, 3, 4])
        queue.reschedule(made[0].id, delay=3.5)
        queue.reschedule(made[3].id, delay=0.5)
        assert [job.payload for job in queue.list_jobs("ready")] == ["d", "b", "c", "a"]

    def test_in_a_lane_that_is_paused(self, queue: Queue) -> None:
        made = queue.enqueue(1, lane="a", delay=5)
        queue.pause(lane="a")
        queue.reschedule(made.id)
        assert queue.lease_one() is None
        queue.resume(lane="a")
        assert take(queue).id == made.id


class TestLeftAlone:
    def test_a_leased_one(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        job = take(queue)
        assert queue.reschedule(job.id, delay=99) == queue.get(job.id) == job
        clock.advance(30)
        assert queue.reschedule(job.id, delay=5).available_at == now(clock) + 5  # its lease has ended

    @pytest.mark.parametrize("end", ["ack", "dead", "cancel"])
    def test_one_that_is_at_its_end(self, queue: Queue, end: str) -> None:
        made = queue.enqueue(1, job_id="own")
        if end == "cancel":
            queue.cancel("own")
        elif end == "ack":
            queue.ack(take(queue), result="r")
        else:
            queue.nack(take(queue), dead=True)
        before, size = queue.get(made.id), queue.stats().bytes
        assert queue.reschedule("own", delay=9) == before == queue.get("own")
        assert queue.stats().bytes == size

    def test_unknown_ones(self, queue: Queue) -> None:
        made = queue.enqueue(1)
        queue.purge()
        for job_id in (made.id, "never"):
            with pytest.raises(JobNotFoundError, match=job_id):
                queue.reschedule(job_id)


class TestExpiry:
    def test_goes_on_counting(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue(1, expires_in=10)
        job = queue.reschedule(made.id, delay=60)
        assert job.expires_at == made.expires_at
        clock.advance(10)
        assert (queue.get(made.id).state, queue.get(made.id).last_error) == ("dead", "expired")
        assert counts(queue) == (0, 0, 0, 0, 1)
        assert queue.reschedule(made.id).state == "dead"
        assert queue.lease_one() is None

    def test_of_one_that_was_given_back_after_it(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue(1, expires_in=10)
        queue.reschedule(made.id)
        job = take(queue)
        assert job.expires_at == made.expires_at
        clock.advance(11)
        assert queue.release(job).last_error == "expired"
        assert counts(queue) == (0, 0, 0, 0, 1)

    def test_does_not_count_after_a_requeue(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue(1, expires_in=10)
        clock.advance(10)
        queue.requeue_dead()
        assert queue.reschedule(made.id, delay=5).expires_at is None
        clock.advance(5)
        assert take(queue).id == made.id


class TestOthers:
    def test_a_waiter_is_woken(self, open_queue: Opener) -> None:
        one, two = open_queue(), open_queue()
        made = two.enqueue("x", delay=1000)
        waiter = Waiter(one)
        settle()
        two.reschedule(made.id)
        assert [job.id for job in waiter.result()] == [made.id]

    def test_another_handle_follows(self, open_queue: Opener, clock: ManualClock) -> None:
        one, two = open_queue(), open_queue()
        made = one.enqueue_many("abc")
        assert two.stats().ready == 3
        one.reschedule(made[0].id, delay=5)
        assert [job.payload for job in two.list_jobs("ready")] == ["b", "c", "a"]
        assert [job.payload for job in two.lease(5)] == ["b", "c"]
        clock.advance(5)
        assert take(two).payload == "a"

    @pytest.mark.parametrize("after", ["reopen", "compact", "scan"])
    def test_it_outlives_the_process_and_the_segment(
        self, open_queue: Opener, clock: ManualClock, after: str, tmp_path: Path
    ) -> None:
        queue = open_queue()
        made = queue.enqueue_many(["x" * 3000] * 60, lane="l", priority=2, max_attempts=3, expires_in=500)
        dated = queue.enqueue("dated", run_at=now(clock) + 10)
        queue.reschedule(made[0].id, delay=5)
        queue.reschedule(made[1].id, run_at=now(clock) + 5)
        queue.reschedule(dated.id, delay=5)
        queue.ack_many(queue.lease(58))
        before = [queue.get(job.id) for job in (made[0], made[1], dated)]
        queue.compact()
        if after == "reopen":
            queue = open_queue.reopen(queue)
        elif after == "scan":
            queue = open_queue.scanned(queue.name, tmp_path / "copy")
        assert [queue.get(job.id) for job in before] == before
        clock.step_wall(3600)
        assert [job.id for job in queue.lease(5)] == [made[1].id]
        clock.step_wall(-3600)
        clock.advance(5)
        assert [job.id for job in queue.lease(5)] == [made[0].id, dated.id]

    def test_of_jobs_enqueued_together(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue_all([NewJob(n, lane="ab"[n % 2], delay=9) for n in range(6)])
        for job in made[::2]:
            queue.reschedule(job.id)
        assert counts(queue, seqs=range(made[0].seq, made[-1].seq + 1)) == (3, 3, 0, 0, 0)


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 1e12])
def test_delays_outside_their_range(queue: Queue, wrong: float) -> None:
    made = queue.enqueue(1)
    with pytest.raises(ValueError, match="delay"):
        queue.reschedule(made.id, delay=wrong)


def test_arguments_that_do_not_fit(queue: Queue) -> None:
    made = queue.enqueue(1)
    with pytest.raises(ValueError, match="not both"):
        queue.reschedule(made.id, delay=1, run_at=5)
    with pytest.raises(ValueError, match="time zone"):
        queue.reschedule(made.id, run_at=datetime(2030, 1, 1))
    wrong: Any
    calls: list[Callable[[Any], Job]] = [
        lambda wrong: queue.reschedule(wrong),
        lambda wrong: queue.reschedule(made.id, delay=wrong),
        lambda wrong: queue.reschedule(made.id, run_at=wrong if wrong is not None else "now"),
    ]
    for call in calls:
        for wrong in (None, True, [5]):
            with pytest.raises(TypeError):
                call(wrong)
    assert queue.get(made.id) == made
