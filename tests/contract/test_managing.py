"""Requeue, drop, cancel, pause, purge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nobroker import (
    BackoffPolicy,
    Job,
    JobNotFoundError,
    NobrokerError,
    Queue,
)
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, drain, take

Failing = Callable[..., Job]


class TestRequeueDead:
    def test_all(self, queue: Queue, failing: Failing, clock: ManualClock) -> None:
        for n in range(3):
            failing(n, priority=n)
        clock.advance(5)
        assert queue.requeue_dead() == 3
        assert queue.dlq() == []
        job = queue.list_jobs("ready")[0]
        assert (job.attempts, job.priority, job.last_error) == (0, 2, "no 2")
        assert job.available_at == clock.wall_us() / 1e6
        assert drain(queue) == [2, 1, 0]
        assert queue.requeue_dead() == 0

    def test_one(self, queue: Queue, failing: Failing) -> None:
        one, two = failing(1), failing(2)
        assert queue.requeue_dead(two.id) == 1
        assert [job.id for job in queue.dlq()] == [one.id]
        assert take(queue).attempts == 1

    def test_attempts_start_again(self, open_queue: Opener) -> None:
        queue = open_queue(max_attempts=2, backoff=BackoffPolicy(base=0, jitter=0))
        queue.enqueue(1)
        for _ in range(2):
            queue.nack(take(queue))
        queue.requeue_dead()
        assert queue.nack(take(queue)).state == "ready"
        assert queue.nack(take(queue)).state == "dead"

    def test_one_that_is_not_dead_or_not_there(self, queue: Queue) -> None:
        job = queue.enqueue(1)
        for verb in (queue.requeue_dead, queue.drop_dead):
            with pytest.raises(NobrokerError, match=job.id):
                verb(job.id)
            with pytest.raises(JobNotFoundError):
                verb("nope")
        assert counts(queue)[0] == 1

    def test_one_that_expired_says_the_same_everywhere(self, queue: Queue, clock: ManualClock) -> None:
        job = queue.enqueue(1, expires_in=5)
        clock.advance(6)
        assert [found.id for found in queue.dlq()] == [job.id]
        queue.requeue_dead()
        state = queue.get(job.id).state
        assert [found.state for found in queue.list_jobs()] == [state]
        assert counts(queue) == ((1, 0, 0, 0, 0) if state == "ready" else (0, 0, 0, 0, 1))
        assert len(queue.lease(5)) == (1 if state == "ready" else 0)

    def test_the_lease_of_one_that_expired_agrees_with_get(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, expires_in=5)
        clock.advance(6)
        queue.requeue_dead()
        for job in queue.lease(1):
            assert queue.get(job.id) == job
            assert job.expires_at is None


class TestDropDead:
    def test_deletes(self, queue: Queue, failing: Failing) -> None:
        one, two = failing(1), failing(2)
        assert queue.drop_dead(one.id) == 1
        with pytest.raises(JobNotFoundError):
            queue.get(one.id)
        assert queue.drop_dead() == 1
        assert len(queue) == 0
        with pytest.raises(JobNotFoundError):
            queue.ack(two)

    def test_older_than(self, queue: Queue, failing: Failing, clock: ManualClock) -> None:
        failing("old")
        clock.advance(100)
        failing("new")
        assert queue.drop_dead(older_than=100.5) == 0
        assert queue.drop_dead(older_than=50) == 1
        assert [job.payload for job in queue.dlq()] == ["new"]
        assert queue.drop_dead(older_than=0) == 1

    def test_older_than_counts_from_the_death_of_an_expired_job(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        queue.enqueue(1, expires_in=1000)
        clock.advance(1010)
        assert queue.drop_dead(older_than=100) == 0
        clock.advance(100)
        assert queue.drop_dead(older_than=100) == 1

    def test_older_than_counts_from_the_deadline_of_a_silent_holder(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        queue.enqueue(1, max_attempts=1)
        queue.lease(1, visibility_timeout=1000)
        clock.advance(1010)
        assert queue.drop_dead(older_than=100) == 0
        clock.advance(100)
        assert queue.drop_dead(older_than=100) == 1

    def test_the_id_is_free_again(self, queue: Queue, failing: Failing) -> None:
        failing(1, job_id="k")
        queue.drop_dead("k")
        assert queue.enqueue(2, job_id="k").created
        assert take(queue).payload == 2


class TestCancel:
    def test_not_yet_leased_is_gone(self, queue: Queue, clock: ManualClock) -> None:
        for options in ({}, {"delay": 60}, {"run_at": 1_900_000_000}, {"priority": 3, "lane": "x"}):
            made = queue.enqueue(1, **options)  # type: ignore[arg-type]
            job = queue.cancel(made.id)
            assert (job.state, job.last_error, job.attempts) == ("done", "cancelled", 0)
            assert job.available_at == made.available_at
            assert (job.priority, job.lane, job.max_attempts) == (made.priority, made.lane, 5)
            assert queue.get(made.id) == job
        clock.advance(10**6)
        assert queue.lease(9) == []
        assert counts(queue) == (0, 0, 0, 4, 0)

    def test_leased_is_flagged_for_the_holder(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        assert queue.cancel(job.id).cancel_requested
        assert queue.get(job.id).state == "leased"
        assert queue.extend(job, 30).cancel_requested
        queue.ack(job)
        assert queue.get(job.id).state == "done"
        assert queue.get(job.id).last_error is None

    def test_done_or_dead_nothing_happens(self, queue: Queue, failing: Failing) -> None:
        dead = failing(1)
        queue.enqueue(2)
        done = take(queue)
        queue.ack(done, result=5)
        assert queue.cancel(dead.id) == queue.get(dead.id) == dead
        assert queue.cancel(done.id).result == 5
        assert queue.get(done.id).last_error is None
        assert counts(queue) == (0, 0, 0, 1, 1)

    def test_twice(self, queue: Queue) -> None:
        job = queue.enqueue(1)
        assert queue.cancel(job.id) == queue.cancel(job.id)

    def test_unknown(self, queue: Queue) -> None:
        with pytest.raises(JobNotFoundError):
            queue.cancel("nope")

    def test_one_of_a_batch(self, queue: Queue) -> None:
        made = queue.enqueue_many(range(200))
        for n in (0, 50, 199):
            queue.cancel(made[n].id)
        assert drain(queue) == [n for n in range(200) if n not in (0, 50, 199)]

    def test_a_retry(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = queue.nack(take(queue), error="e")
        gone = queue.cancel(job.id)
        assert (gone.state, gone.last_error, gone.attempts) == ("done", "cancelled", 1)


class TestPause:
    def test_is_seen_by_others_and_after_a_restart(self, open_queue: Opener) -> None:
        one, two = open_queue(), open_queue()
        one.enqueue(1)
        one.pause()
        assert one.paused
        assert two.paused
        assert two.lease() == []
        one.close()
        again = open_queue.reopen(two)
        assert again.paused
        again.resume()
        assert drain(again) == [1]

    def test_twice_is_once(self, queue: Queue) -> None:
        queue.pause()
        queue.pause()
        queue.resume()
        assert not queue.paused
        queue.resume()
        queue.enqueue(1)
        assert drain(queue) == [1]

    def test_the_whole_and_a_lane_are_two_things(self, queue: Queue) -> None:
        queue.enqueue(1, lane="a")
        queue.pause(lane="a")
        assert not queue.paused
        queue.pause()
        queue.resume(lane="a")
        assert queue.lease() == []
        queue.pause(lane="a")
        queue.resume()
        assert queue.lease() == []
        queue.resume(lane="a")
        assert drain(queue) == [1]

    def test_holders_go_on(self, queue: Queue) -> None:
        queue.enqueue_many(range(4))
        jobs = queue.lease(4)
        queue.pause()
        queue.extend(jobs[0], 60)
        queue.ack(jobs[0])
        queue.nack(jobs[1], delay=0)
        queue.release(jobs[2])
        queue.enqueue(5)
        assert counts(queue) == (3, 0, 1, 1, 0)


class TestPurge:
    def test_everything_jobs_in_hand_included(self, queue: Queue, failing: Failing) -> None:
        failing(0)
        queue.enqueue_many(range(1, 6), job_ids="abcde")
        held = queue.lease(2)
        queue.ack(held[0])
        queue.enqueue(9, delay=50)
        assert queue.purge() == 7
        assert counts(queue) == (0, 0, 0, 0, 0)
        for job in held:
            for verb in (queue.ack, queue.nack, queue.release, lambda job: queue.extend(job, 1)):
                with pytest.raises(JobNotFoundError):
                    verb(job)
        assert queue.list_jobs() == []
        assert queue.enqueue(1, job_id="a").created
        assert queue.purge() == 1
        assert queue.purge() == 0

    def test_of_a_lane(self, queue: Queue) -> None:
        queue.enqueue_many(range(3), lane="a", job_ids="abc")
        queue.enqueue_many(range(2), lane="b", job_ids="de")
        held = queue.lease(1, lanes=["a"])[0]
        assert queue.purge(lane="a") == 3
        with pytest.raises(JobNotFoundError):
            queue.ack(held)
        assert counts(queue) == (2, 0, 0, 0, 0)
        assert queue.enqueue(1, job_id="a").created
        assert not queue.enqueue(1, job_id="d").created
        assert queue.purge(lane="none") == 0

    def test_counters_go_on(self, queue: Queue) -> None:
        before = queue.enqueue(1)
        token = take(queue).lease_token
        queue.purge()
        after = queue.enqueue(1)
        assert after.seq > before.seq
        assert after.id != before.id
        assert take(queue).lease_token > token  # type: ignore[operator]

    def test_pauses_stay(self, queue: Queue) -> None:
        queue.enqueue(1)
        queue.pause()
        queue.purge()
        assert queue.paused
