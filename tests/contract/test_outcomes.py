"""`ack`, `nack`, `extend`, `release`, each for one job and for many."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker import BackoffPolicy, Job, JobNotFoundError, NotLeasedError, Queue, SerializationError
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, drain, take


class TestAck:
    def test_finishes_the_job(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        assert queue.ack(job) is None
        found = queue.get(job.id)
        assert (found.state, found.attempts, found.payload) == ("done", 1, 1)
        assert counts(queue) == (0, 0, 0, 1, 0)

    def test_keeps_the_result(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.ack(job, result={"rows": [1, b"2", (3,)]})
        assert queue.get(job.id).result == {"rows": [1, b"2", [3]]}

    def test_twice_with_the_same_token_is_harmless(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.ack(job, result="first")
        queue.ack(job, result="second")
        queue.ack(job)
        assert queue.get(job.id).result == "first"
        assert counts(queue) == (0, 0, 0, 1, 0)

    def test_by_id(self, queue: Queue) -> None:
        queue.enqueue(1)
        queue.enqueue(2, job_id="own")
        for job in queue.lease(2):
            queue.ack(job.id)
        assert counts(queue) == (0, 0, 0, 2, 0)
        with pytest.raises(JobNotFoundError, match="nothere"):
            queue.ack("nothere")

    def test_by_id_of_a_job_nobody_holds(self, queue: Queue) -> None:
        job = queue.enqueue(1)
        with pytest.raises(NotLeasedError, match=job.id):
            queue.ack(job.id)
        assert counts(queue)[0] == 1

    def test_of_a_job_that_was_never_leased(self, queue: Queue) -> None:
        job = queue.enqueue(1)
        with pytest.raises(NotLeasedError):
            queue.ack(job)
        assert counts(queue)[0] == 1

    def test_a_bad_result_leaves_the_lease(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        with pytest.raises(SerializationError, match="result"):
            queue.ack(job, result=object())
        assert queue.get(job.id).state == "leased"
        queue.ack(job)

    @pytest.mark.parametrize("wrong", [None, 1, b"id", ["id"]])
    def test_of_something_else(self, queue: Queue, wrong: Any) -> None:
        for verb in (queue.ack, queue.nack, queue.release, lambda job: queue.extend(job, 1)):
            with pytest.raises(TypeError):
                verb(wrong)

    def test_a_copy_of_the_job_through_its_dict(self, queue: Queue) -> None:
        queue.enqueue(1)
        queue.ack(Job.from_dict(take(queue).to_dict()))
        assert counts(queue) == (0, 0, 0, 1, 0)


class TestNack:
    def test_waits_as_the_policy_says(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue(backoff=BackoffPolicy(base=3, factor=2, jitter=0), max_attempts=4)
        queue.enqueue(1)
        for wait in (3, 6, 12):
            job = queue.nack(take(queue), error=f"after {wait}")
            now = clock.wall_us() / 1e6
            assert (job.state, job.available_at, job.last_error) == ("ready", now + wait, f"after {wait}")
            assert job.lease_deadline is None
            assert queue.get(job.id) == job
            assert counts(queue) == (0, 1, 0, 0, 0)
            clock.advance(wait - 0.001)
            assert queue.lease_one() is None
            clock.advance(0.001)
        job = queue.nack(take(queue), error="last")
        assert (job.state, job.attempts, job.last_error) == ("dead", 4, "last")
        assert counts(queue) == (0, 0, 0, 0, 1)

    def test_delay_of_the_call(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        job = queue.nack(take(queue), delay=0)
        assert job.available_at == clock.wall_us() / 1e6
        job = queue.nack(take(queue), delay=2.5)
        assert job.available_at == clock.wall_us() / 1e6 + 2.5

    def test_dead_at_once(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = queue.nack(take(queue), error="no use", dead=True)
        assert (job.state, job.attempts, job.last_error) == ("dead", 1, "no use")
        assert queue.lease_one() is None

    def test_not_dead_whatever_max_attempts_says(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue(max_attempts=1, backoff=BackoffPolicy(base=0, jitter=0))
        queue.enqueue(1)
        for attempt in (1, 2, 3):
            job = take(queue)
            assert job.attempts == attempt
            assert queue.nack(job, dead=False).state == "ready"
        assert queue.nack(take(queue)).state == "dead"

    def test_the_error_stays_until_a_newer_one(self, queue: Queue) -> None:
        queue.enqueue(1)
        queue.nack(take(queue), error="first", delay=0)
        job = take(queue)
        assert job.last_error == "first"
        assert queue.nack(job, delay=0).last_error == "first"
        assert queue.nack(take(queue), error="second", delay=0).last_error == "second"

    def test_twice_is_not_leased(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.nack(job)
        with pytest.raises(NotLeasedError):
            queue.nack(job)
        with pytest.raises(NotLeasedError):
            queue.ack(job)

    def test_after_an_ack(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.ack(job)
        for verb in (queue.nack, queue.release, lambda job: queue.extend(job, 5)):
            with pytest.raises(NotLeasedError):
                verb(job)
        assert counts(queue) == (0, 0, 0, 1, 0)

    @pytest.mark.parametrize("delay", [0, 1])
    def test_keeps_priority_lane_and_metadata(self, queue: Queue, clock: ManualClock, delay: int) -> None:
        queue.enqueue(1, priority=5, lane="a", metadata=[1], max_attempts=8)
        job = queue.nack(take(queue), delay=delay)
        assert (job.priority, job.lane, job.metadata, job.max_attempts) == (5, "a", [1], 8)
        clock.advance(delay)
        again = take(queue)
        assert (again.priority, again.lane, again.metadata, again.max_attempts) == (5, "a", [1], 8)


class TestExtend:
    def test_new_deadline_is_now_plus_seconds(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        job = take(queue)
        clock.advance(20)
        longer = queue.extend(job, 100)
        assert longer.lease_deadline == clock.wall_us() / 1e6 + 100
        assert longer.lease_token == job.lease_token
        clock.advance(99)
        assert queue.lease_one() is None
        shorter = queue.extend(job, 0.5)
        assert shorter.lease_deadline == clock.wall_us() / 1e6 + 0.5
        clock.advance(1)
        assert take(queue).id == job.id

    def test_progress_and_state(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        job = take(queue)
        assert queue.extend(job, 30, progress=0.5, state={"page": 3}).progress == 0.5
        assert queue.extend(job, 30).progress == 0.5
        assert queue.extend(job, 30, progress="late").job_state == {"page": 3}
        found = queue.get(job.id)
        assert (found.progress, found.job_state) == ("late", {"page": 3})
        queue.nack(job, delay=0)
        again = take(queue)
        assert again.job_state == {"page": 3}
        queue.extend(again, 30, state=[4])
        queue.ack(again)
        assert queue.get(job.id).job_state == [4]

    def test_state_over_an_expired_lease(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        queue.extend(take(queue), 5, state="kept")
        clock.advance(6)
        assert take(queue).job_state == "kept"

    def test_bad_values(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        with pytest.raises(SerializationError, match="progress"):
            queue.extend(job, 5, progress={1})
        with pytest.raises(SerializationError, match=r"state\['a'\]"):
            queue.extend(job, 5, state={"a": {1}})
        assert queue.get(job.id) == job

    def test_by_id(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, job_id="x")
        take(queue)
        assert queue.extend("x", 99).lease_deadline == clock.wall_us() / 1e6 + 99


class TestRelease:
    def test_gives_the_attempt_back_and_keeps_its_place(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many("abc")
        clock.advance(3)
        job = take(queue)
        released = queue.release(job)
        assert (released.state, released.attempts, released.last_error) == ("ready", 0, None)
        assert released.available_at == job.available_at
        assert released.lease_deadline is None
        assert drain(queue) == ["a", "b", "c"]

    def test_keeps_the_place_of_each_of_many(self, queue: Queue, clock: ManualClock) -> None:
        for n in range(6):
            queue.enqueue(n)
            clock.advance(1)
        jobs = queue.lease(4)
        queue.release_many([jobs[2], jobs[0]])
        assert drain(queue) == [0, 2, 4, 5]

    def test_does_not_burn_attempts(self, queue: Queue) -> None:
        queue.enqueue(1, max_attempts=1)
        for _ in range(5):
            queue.release(take(queue))
        job = take(queue)
        assert job.attempts == 1
        assert queue.nack(job).state == "dead"

    def test_keeps_the_error_of_before(self, queue: Queue) -> None:
        queue.enqueue(1)
        queue.nack(take(queue), error="e", delay=0)
        job = take(queue)
        assert job.attempts == 2
        released = queue.release(job)
        assert (released.attempts, released.last_error) == (1, "e")

    def test_delay(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many("ab")
        job = queue.release(take(queue), delay=5)
        assert job.available_at == clock.wall_us() / 1e6 + 5
        assert counts(queue) == (1, 1, 0, 0, 0)
        assert drain(queue) == ["b"]
        clock.advance(5)
        assert drain(queue) == ["a"]

    def test_a_retry_keeps_the_retrys_place(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("a")
        queue.nack(take(queue), delay=5)
        queue.enqueue("b")
        clock.advance(5)
        queue.enqueue("c")
        assert [job.payload for job in queue.lease(1)] == ["b"]
        job = take(queue)
        assert job.payload == "a"
        queue.release(job)
        assert drain(queue) == ["a", "c"]

    def test_a_job_with_a_date(self, queue: Queue, clock: ManualClock) -> None:
        due = clock.wall_us() / 1e6 + 60
        queue.enqueue("dated", run_at=due)
        clock.advance(60)
        assert queue.release(take(queue)).available_at == due
        clock.step_wall(-3600)
        assert drain(queue) == ["dated"]


class TestMany:
    """Applied to all that are still held, in one record; then one error whose `.jobs` are the others."""

    def held(self, queue: Queue) -> tuple[list[Job], list[Job]]:
        """Ten leased jobs, of which somebody took three back."""
        queue.enqueue_many(range(10))
        jobs = queue.lease(10)
        lost = [jobs[0], jobs[5], jobs[9]]
        for job in lost:
            queue.release(job.id)
        return jobs, lost

    def test_ack_many(self, queue: Queue) -> None:
        jobs, lost = self.held(queue)
        with pytest.raises(NotLeasedError) as caught:
            queue.ack_many(jobs)
        assert caught.value.jobs == lost
        assert counts(queue) == (3, 0, 0, 7, 0)

    def test_nack_many(self, queue: Queue) -> None:
        jobs, lost = self.held(queue)
        with pytest.raises(NotLeasedError) as caught:
            queue.nack_many(jobs, error="e", dead=True)
        assert caught.value.jobs == lost
        assert counts(queue) == (3, 0, 0, 0, 7)
        assert {job.last_error for job in queue.dlq()} == {"e"}

    def test_extend_many(self, queue: Queue, clock: ManualClock) -> None:
        jobs, lost = self.held(queue)
        with pytest.raises(NotLeasedError) as caught:
            queue.extend_many(iter(jobs), 1000, progress=1, state=2)
        assert caught.value.jobs == lost
        deadline = clock.wall_us() / 1e6 + 1000
        held = queue.list_jobs("leased")
        assert [(job.lease_deadline, job.progress, job.job_state) for job in held] == [(deadline, 1, 2)] * 7

    def test_release_many(self, queue: Queue) -> None:
        jobs, lost = self.held(queue)
        with pytest.raises(NotLeasedError) as caught:
            queue.release_many(jobs)
        assert caught.value.jobs == lost
        assert counts(queue) == (10, 0, 0, 0, 0)
        assert drain(queue) == list(range(10))

    def test_the_jobs_come_back_in_the_order_of_the_call(self, queue: Queue) -> None:
        queue.enqueue_many(range(5))
        jobs = queue.lease(5)[::-1]
        assert [job.payload for job in queue.extend_many(jobs, 5)] == [4, 3, 2, 1, 0]
        assert [job.payload for job in queue.release_many(jobs[:2])] == [4, 3]
        assert [job.payload for job in queue.nack_many(jobs[2:])] == [2, 1, 0]

    def test_of_none(self, queue: Queue) -> None:
        assert queue.ack_many([]) is None
        assert queue.nack_many([]) == queue.extend_many([], 5) == queue.release_many([]) == []

    def test_bad_arguments_are_refused_even_then(self, queue: Queue) -> None:
        with pytest.raises(ValueError):
            queue.extend_many([], -1)
        with pytest.raises(ValueError):
            queue.release_many([], delay=-1)
        with pytest.raises(ValueError):
            queue.nack_many([], delay=float("nan"))

    def test_all_unknown(self, queue: Queue) -> None:
        with pytest.raises(NotLeasedError) as caught:
            queue.ack_many(["a", "b"])
        assert caught.value.jobs == ["a", "b"]

    def test_the_same_job_twice(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.ack_many([job, job, job.id])
        assert counts(queue) == (0, 0, 0, 1, 0)
        queue.enqueue(2)
        job = take(queue)
        assert [found.id for found in queue.extend_many([job], 5)] == [job.id]
        queue.nack_many([job, job.id], delay=0)
        assert counts(queue)[0] == 1

    def test_ack_many_with_what_was_acked_before(self, queue: Queue) -> None:
        queue.enqueue_many(range(3))
        jobs = queue.lease(3)
        queue.ack(jobs[1])
        queue.ack_many(jobs)
        assert counts(queue) == (0, 0, 0, 3, 0)

    def test_a_wrong_one_among_them_changes_nothing(self, queue: Queue) -> None:
        queue.enqueue_many(range(2))
        jobs: list[Any] = [*queue.lease(2), 5]
        with pytest.raises(TypeError):
            queue.ack_many(jobs)
        assert counts(queue) == (0, 0, 2, 0, 0)

    def test_own_and_made_ids_mixed_are_all_remembered_as_promised(self, queue: Queue) -> None:
        queue.enqueue("own", job_id="k")
        queue.enqueue("made")
        queue.ack_many(queue.lease(2))
        assert not queue.enqueue("again", job_id="k").created
        assert counts(queue) == (0, 0, 0, 2, 0)
