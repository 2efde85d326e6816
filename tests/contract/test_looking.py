"""`get`, `stats`, `list_jobs`, `dlq`, `len`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from nobroker import BackoffPolicy, Job, JobNotFoundError, JobState, Queue, QueueStats
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, drain, take


class TestGet:
    def test_in_every_state(self, queue: Queue, clock: ManualClock) -> None:
        job = queue.enqueue(1)
        assert queue.get(job.id).state is JobState.READY
        held = take(queue)
        assert queue.get(job.id).state is JobState.LEASED
        queue.nack(held, dead=True)
        assert queue.get(job.id).state is JobState.DEAD
        queue.requeue_dead()
        queue.ack(take(queue))
        assert queue.get(job.id).state is JobState.DONE

    @pytest.mark.parametrize("job_id", ["nope", "", "nb-0000000000000-1", "nb-x", "\ud800", "x" * 1000])
    def test_unknown(self, queue: Queue, job_id: str) -> None:
        queue.enqueue(1)
        with pytest.raises(JobNotFoundError):
            queue.get(job_id)

    @pytest.mark.parametrize("tail", ["0", "2", "01", "+1", "1 ", "٣", "-1", "1" * 40])
    def test_an_id_almost_like_one_of_the_queues(self, queue: Queue, tail: str) -> None:
        prefix = queue.enqueue(1).id.removesuffix("1")
        with pytest.raises(JobNotFoundError):
            queue.get(prefix + tail)

    def test_a_made_id_of_a_job_that_has_its_own(self, queue: Queue) -> None:
        prefix = queue.enqueue(1).id.removesuffix("1")
        queue.enqueue(2, job_id="own")
        with pytest.raises(JobNotFoundError):
            queue.get(prefix + "2")

    def test_a_job_in_place_of_its_id(self, queue: Queue) -> None:
        job = queue.enqueue(1)
        assert queue.get(job) == job  # type: ignore[arg-type]

    def test_looking_is_not_delivering(self, queue: Queue) -> None:
        job = queue.enqueue(1)
        for _ in range(3):
            queue.get(job.id)
            queue.list_jobs()
        assert take(queue).attempts == 1


class TestStats:
    def test_counts(self, queue: Queue, failing: Callable[..., Job], clock: ManualClock) -> None:
        failing("x")
        queue.enqueue_many(range(5))
        queue.ack_many(queue.lease(2))
        queue.lease(1)
        queue.enqueue_many([1, 2, 3], delay=60)
        stats = queue.stats()
        assert isinstance(stats, QueueStats)
        assert (stats.ready, stats.delayed, stats.leased, stats.done, stats.dead) == (2, 3, 1, 2, 1)
        assert stats.total == len(queue) == 9

    def test_printing_shows_the_six_counts(self, queue: Queue) -> None:
        queue.enqueue(1)
        assert str(queue.stats()) == "ready=1 delayed=0 leased=0 done=0 dead=0 total=1"

    def test_oldest_ready_age(self, queue: Queue, clock: ManualClock) -> None:
        assert queue.stats().oldest_ready_age is None
        queue.enqueue("first", priority=-5)
        clock.advance(10)
        queue.enqueue("second", priority=5)
        queue.enqueue("later", delay=1)
        clock.advance(1)
        assert queue.stats().oldest_ready_age == 11
        assert take(queue).payload == "second"
        assert queue.stats().oldest_ready_age == 11
        assert take(queue).payload == "later"
        assert take(queue).payload == "first"
        assert queue.stats().oldest_ready_age is None

    def test_oldest_ready_age_of_a_lane(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, lane="a")
        clock.advance(3)
        queue.enqueue(1, lane="b")
        clock.advance(2)
        assert queue.stats(lane="a").oldest_ready_age == 5
        assert queue.stats(lane="b").oldest_ready_age == 2
        assert queue.stats(lane="c").oldest_ready_age is None

    def test_oldest_ready_age_behind_finished_ones(self, queue: Queue, clock: ManualClock) -> None:
        """The oldest of a priority was leased, then jobs of its batch: what waits counts, nothing else."""
        queue.enqueue_many(["a", "b"], priority=1)
        clock.advance(5)
        queue.enqueue("c", priority=1)
        queue.enqueue_many(["d"])
        queue.ack_many(queue.lease(2))
        clock.advance(1)
        assert queue.stats().oldest_ready_age == 1

    def test_oldest_ready_age_of_an_expired_lease(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        queue.lease(1, visibility_timeout=5)
        clock.advance(7)
        assert counts(queue) == (1, 0, 0, 0, 0)
        assert queue.stats().oldest_ready_age == 2

    def test_oldest_ready_age_of_one_that_expired_and_was_requeued(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        queue.enqueue(1, delay=2.5, expires_in=30)
        clock.advance(61)
        queue.stats()
        queue.requeue_dead()
        assert queue.stats().oldest_ready_age == 0

    @pytest.mark.parametrize("again", ["nack", "release", "expire"])
    def test_oldest_ready_age_of_a_batch_whose_front_came_back(
        self, queue: Queue, clock: ManualClock, again: str
    ) -> None:
        queue.enqueue_many(range(100))
        jobs = queue.lease(100)
        clock.advance(5)
        if again == "nack":
            queue.nack_many(jobs, delay=0)
        elif again == "release":
            queue.release_many(jobs)
        else:
            clock.advance(30)
        clock.advance(2)
        expected = {"nack": 2, "release": 7, "expire": 7}[again]
        assert queue.stats().oldest_ready_age == expected
        queue.lease(1, lanes=["nobody"])
        assert queue.stats().oldest_ready_age == expected

    def test_paused(self, queue: Queue) -> None:
        assert queue.stats().paused is False
        queue.pause(lane="a")
        assert (queue.stats().paused, queue.stats(lane="a").paused, queue.stats(lane="b").paused) == (
            False,
            True,
            False,
        )
        queue.pause()
        assert (queue.stats().paused, queue.stats(lane="b").paused) == (True, True)

    def test_bytes_grow_with_what_is_written_and_not_with_what_is_reserved(self, queue: Queue) -> None:
        before = queue.stats().bytes
        queue.enqueue(b"x" * 10_000)
        assert 10_000 <= queue.stats().bytes - before <= 12_000

    def test_per_lane(self, queue: Queue) -> None:
        queue.enqueue_many(range(3), lane="a")
        queue.enqueue_many(range(2), lane="b")
        queue.enqueue(1)
        queue.ack_many(queue.lease(1, lanes=["a"]))
        assert counts(queue, "a") == (2, 0, 0, 1, 0)
        assert counts(queue, "b") == (2, 0, 0, 0, 0)
        assert counts(queue, "") == (1, 0, 0, 0, 0)
        assert counts(queue, "none") == (0, 0, 0, 0, 0)
        assert counts(queue) == (5, 0, 0, 1, 0)

    def test_expired_leases_count_as_what_they_became(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("retry")
        queue.enqueue("last", max_attempts=1)
        queue.enqueue("called off")
        jobs = queue.lease(3)
        queue.cancel(jobs[2].id)
        clock.advance(31)
        assert counts(queue) == (1, 0, 0, 1, 1)
        assert counts(queue, "") == (1, 0, 0, 1, 1)
        assert [job.state for job in map(queue.get, (job.id for job in jobs))] == ["ready", "dead", "done"]
        assert [job.payload for job in queue.dlq()] == ["last"]
        assert [job.payload for job in queue.list_jobs("ready")] == ["retry"]
        assert [job.payload for job in queue.list_jobs("done")] == ["called off"]
        assert queue.list_jobs("leased") == []
        before = [queue.get(job.id) for job in jobs]
        assert take(queue).payload == "retry"
        assert [queue.get(job.id) for job in jobs[1:]] == before[1:]
        assert counts(queue) == (0, 0, 1, 1, 1)


class TestListJobs:
    def test_by_seq(self, queue: Queue) -> None:
        queue.enqueue_many(range(5), priority=1)
        queue.enqueue(5, priority=9)
        queue.enqueue(6, delay=60)
        queue.ack(take(queue))
        assert [job.payload for job in queue.list_jobs()] == list(range(7))

    def test_limit(self, queue: Queue) -> None:
        queue.enqueue_many(range(5))
        assert [job.payload for job in queue.list_jobs(limit=2)] == [0, 1]
        assert queue.list_jobs(limit=0) == []
        assert len(queue.list_jobs(limit=99)) == 5
        assert [job.payload for job in queue.list_jobs("ready", limit=3)] == [0, 1, 2]

    @pytest.mark.parametrize("state", [*JobState, *(str(state) for state in JobState)])
    def test_by_state(self, queue: Queue, failing: Callable[..., Job], state: str) -> None:
        failing("dead")
        queue.enqueue_many(["done", "leased", "ready"])
        queue.ack(take(queue))
        take(queue)
        assert [job.payload for job in queue.list_jobs(state)] == [str(state)]

    def test_an_unknown_state(self, queue: Queue) -> None:
        for wrong in ("bogus", "READY", 5):
            with pytest.raises(ValueError):
                queue.list_jobs(wrong)  # type: ignore[arg-type]

    def test_lane(self, queue: Queue) -> None:
        queue.enqueue(1, lane="a")
        queue.enqueue(2, lane="b")
        assert [job.payload for job in queue.list_jobs(lane="b")] == [2]
        assert [job.payload for job in queue.list_jobs("ready", lane="a")] == [1]

    def test_ready_is_in_the_order_of_delivery(self, queue: Queue, clock: ManualClock) -> None:
        for n in range(40):
            clock.advance(0.001)
            queue.enqueue(n, priority=n * 7 % 3, lane="ab"[n % 2])
        for job in queue.lease(15):
            if job.payload % 3 == 0:
                queue.nack(job, delay=0)
            elif job.payload % 3 == 1:
                queue.release(job)
        expected = [job.payload for job in queue.list_jobs("ready")]
        assert drain(queue) == expected

    def test_ready_has_expired_leases_where_they_would_be_delivered(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        queue.enqueue("urgent", priority=9)
        queue.enqueue_many(["a", "b"])
        take(queue)
        clock.advance(31)
        expected = [job.payload for job in queue.list_jobs("ready")]
        assert expected == drain(queue) == ["urgent", "a", "b"]

    def test_ready_has_the_delayed_after_the_due(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("late", delay=9, priority=5)
        queue.enqueue("soon", delay=5)
        queue.enqueue("now", priority=-5)
        assert [job.payload for job in queue.list_jobs("ready")] == ["now", "soon", "late"]

    def test_ready_of_a_lane_has_what_waits_there_for_any_reason(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        for lane in ("a", "b"):
            queue.enqueue("failed", lane=lane)
            [failed] = queue.lease(lanes=[lane])
            queue.nack(failed, delay=20)
            queue.enqueue_many(["later", "sooner"], delays=[50, 10], lane=lane)
            queue.enqueue("dated", run_at=clock.wall_us() / 1e6 + 30, lane=lane)
            queue.enqueue("due", lane=lane)
        moved = queue.enqueue("moved", lane="a")
        queue.reschedule(moved.id, delay=40)
        order = ["due", "sooner", "failed", "later", "dated"]
        assert [job.payload for job in queue.list_jobs("ready", lane="b")] == order
        order.insert(3, "moved")
        assert [job.payload for job in queue.list_jobs("ready", lane="a")] == order
        assert [job.payload for job in queue.list_jobs("ready", lane="c")] == []
        assert len(queue.list_jobs("ready")) == 11

    def test_many(self, queue: Queue) -> None:
        queue.enqueue_many(range(1200))
        queue.ack_many(queue.lease(700))
        assert [job.payload for job in queue.list_jobs()] == list(range(1200))
        assert [job.payload for job in queue.list_jobs("ready")] == list(range(700, 1200))
        assert len(queue.list_jobs("done")) == 700

    def test_agrees_with_get(self, queue: Queue, failing: Callable[..., Job]) -> None:
        failing("x", metadata=1)
        queue.enqueue_many(range(4), job_ids="wxyz")
        queue.ack(take(queue), result=[1])
        queue.nack(take(queue), error="e")
        queue.extend(take(queue), 9, progress=3)
        for job in queue.list_jobs():
            assert queue.get(job.id) == job


class TestDlq:
    def test_by_seq_with_limit_and_lane(self, queue: Queue, failing: Callable[..., Job]) -> None:
        for n in range(4):
            failing(n, lane="ab"[n % 2])
        assert [job.payload for job in queue.dlq()] == [0, 1, 2, 3]
        assert [job.payload for job in queue.dlq(limit=2)] == [0, 1]
        assert [job.payload for job in queue.dlq(lane="b")] == [1, 3]
        assert {job.last_error for job in queue.dlq()} == {f"no {n}" for n in range(4)}

    def test_expired_leases_without_tries_left(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue(max_attempts=2, visibility_timeout=5, backoff=BackoffPolicy(base=0, jitter=0))
        queue.enqueue(1)
        for _ in range(2):
            take(queue)
            clock.advance(5)
        dead = queue.dlq()
        assert [(job.payload, job.attempts) for job in dead] == [(1, 2)]
        assert "lease expired" in str(dead[0].last_error)
        assert queue.lease_one() is None
        assert queue.dlq() == dead


def test_job_to_dict_and_back(queue: Queue) -> None:
    queue.enqueue(b"x", metadata={"a": 1}, job_id="k", expires_in=50)
    job = take(queue)
    data: dict[str, Any] = job.to_dict()
    assert data["state"] == "leased"
    assert type(data["state"]) is str
    assert set(data) == {field.name for field in fields(Job)}
    assert Job.from_dict(data) == job
    assert Job.from_dict({"id": "x", "unknown": 1}).id == "x"
    with pytest.raises(KeyError):
        Job.from_dict({})
    with pytest.raises(ValueError):
        Job.from_dict({"id": "x", "state": "bogus"})


class TestNamesOfLanes:
    def test_lanes_of_jobs_that_are_known_and_those_that_are_paused(
        self, open_queue: Opener, queue: Queue
    ) -> None:
        assert queue.lanes == []
        queue.enqueue(1, lane="b")
        queue.enqueue(2, lane="a", delay=60)
        queue.enqueue(3)
        queue.pause(lane="empty")
        assert queue.lanes == ["", "a", "b", "empty"]
        queue = open_queue.reopen(queue)
        assert queue.lanes == ["", "a", "b", "empty"]
        queue.ack_many(queue.lease(9))
        assert queue.lanes == ["", "a", "b", "empty"]
        queue.resume(lane="empty")
        queue.purge(lane="a")
        queue.compact()
        assert queue.lanes == []
