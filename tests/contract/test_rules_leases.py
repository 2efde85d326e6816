"""Rules 1 and 3 to 6: order, leases, fencing, one holder, de-duplication."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from nobroker import BackoffPolicy, Job, JobNotFoundError, NotLeasedError, Queue
from nobroker.clock import ManualClock

from .conftest import Opener
from .helpers import counts, drain, take

EXTREMES = [2**31 - 1, 1, 0, -1, -(2**31)]


class TestRule1Order:
    def test_priority_then_time_then_insertion(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("b1", priority=1)
        queue.enqueue("z", priority=-1)
        queue.enqueue("later b", priority=1, delay=5)
        clock.advance(6)
        queue.enqueue("b3", priority=1)
        queue.enqueue("b4", priority=1)
        queue.enqueue("a", priority=2)
        assert drain(queue) == ["a", "b1", "later b", "b3", "b4", "z"]

    def test_all_32_bits_of_priority(self, queue: Queue) -> None:
        for priority in reversed(EXTREMES):
            queue.enqueue(priority, priority=priority)
        assert drain(queue) == EXTREMES

    @pytest.mark.parametrize("size", [1, 63, 64, 1000])
    def test_first_in_first_out_however_it_came_in(self, queue: Queue, size: int) -> None:
        queue.enqueue_many(range(size))
        queue.enqueue(size)
        queue.enqueue_many(range(size + 1, 2 * size + 1))
        assert drain(queue) == list(range(2 * size + 1))

    def test_single_enqueues_of_two_priorities_in_turn(self, queue: Queue) -> None:
        for n in range(100):
            queue.enqueue(n, priority=n % 2)
        assert drain(queue) == [*range(1, 100, 2), *range(0, 100, 2)]

    def test_payloads_are_never_compared(self, queue: Queue, clock: ManualClock) -> None:
        payloads: list[Any] = [{"a": 1}, None, "x", 1, [2], {"a": 1}]
        for payload in payloads:
            queue.enqueue(payload)
        assert drain(queue) == payloads

    def test_a_delayed_job_of_high_priority_does_not_hold_up_the_others(self, queue: Queue) -> None:
        queue.enqueue("vip", priority=100, delay=60)
        queue.enqueue("low", priority=-5)
        assert drain(queue) == ["low"]

    def test_no_ageing(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("old", priority=0)
        clock.advance(10**6)
        queue.enqueue("new", priority=1)
        assert drain(queue) == ["new", "old"]

    def test_an_immediate_jobs_time_is_its_enqueue_time(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("delayed", delay=5)
        clock.advance(4)
        queue.enqueue("immediate")
        clock.advance(1)
        assert drain(queue) == ["immediate", "delayed"]

    def test_an_expired_lease_gets_its_deadline(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("expired")
        deadline = take(queue).lease_deadline
        queue.enqueue("before")
        clock.advance(30)
        queue.enqueue("after", delay=1)
        clock.advance(1)
        jobs = queue.lease(3)
        assert [job.payload for job in jobs] == ["before", "expired", "after"]
        assert jobs[1].available_at == deadline

    def test_nack_and_requeue_get_now_plus_delay(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many(["nacked", "dead", "waits"])
        nacked, dead = queue.lease(2)
        clock.advance(1)
        queue.nack(nacked, delay=0)
        queue.nack(dead, dead=True)
        clock.advance(1)
        queue.requeue_dead()
        assert drain(queue) == ["waits", "nacked", "dead"]

    def test_a_batch_taken_apart_and_given_back_in_any_order(self, queue: Queue) -> None:
        queue.enqueue_many(range(200))
        jobs = queue.lease(150)
        queue.release_many(jobs[::-1])
        assert drain(queue) == list(range(200))


class TestRule3LeaseIsADeadline:
    def test_ready_at_once_when_it_passes(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        first = queue.lease(1, visibility_timeout=10)[0]
        clock.advance(9.999999)
        assert queue.lease_one() is None
        clock.advance(0.000001)
        again = take(queue)
        assert (again.id, again.attempts, again.last_error) == (first.id, 2, None)

    def test_on_the_disk_and_after_a_reopening(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue()
        queue.enqueue(1)
        queue.lease(1, visibility_timeout=50)
        queue = open_queue.reopen(queue)
        assert queue.lease_one() is None
        clock.advance(50)
        assert take(queue).attempts == 2

    def test_attempts_count_at_the_lease(self, queue: Queue, clock: ManualClock) -> None:
        job = queue.enqueue(1, max_attempts=2)
        for attempt in (1, 2):
            assert take(queue).attempts == attempt
            assert queue.get(job.id).attempts == attempt
            clock.advance(30)
        found = queue.get(job.id)
        assert (found.state, found.attempts) == ("dead", 2)
        assert queue.lease_one() is None
        assert counts(queue) == (0, 0, 0, 0, 1)

    def test_the_last_try_after_silence_is_leased_alone(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many(["killer", "b"], max_attempts=3)
        queue.enqueue("c", max_attempts=2)
        assert [job.payload for job in queue.lease(9)] == ["killer", "b", "c"]
        clock.advance(30)
        assert [job.payload for job in queue.lease(9)] == ["killer", "b"]
        clock.advance(30)
        alone = [queue.lease(9) for _ in range(4)]
        assert [[job.payload for job in jobs] for jobs in alone] == [["c"], ["killer"], ["b"], []]

    def test_those_before_it_are_leased_without_it(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("killer", max_attempts=2)
        take(queue)
        queue.enqueue_many(["x", "y"], priority=1)
        clock.advance(30)
        assert [[job.payload for job in queue.lease(9)] for _ in range(3)] == [["x", "y"], ["killer"], []]

    def test_a_nack_is_no_silence(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many(["a", "b"], max_attempts=2)
        queue.nack_many(queue.lease(2), delay=0)
        assert len(queue.lease(9)) == 2

    def test_many_leases_with_one_deadline(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many(range(100))
        for _ in range(10):
            queue.lease(10)
        clock.advance(30)
        assert [job.payload for job in queue.lease(200)] == list(range(100))

    def test_part_of_a_batch_extended(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many(range(10))
        jobs = queue.lease(10)
        queue.extend_many([jobs[n] for n in (1, 2, 5, 9)], 100)
        clock.advance(30)
        assert [job.payload for job in queue.lease(20)] == [0, 3, 4, 6, 7, 8]

    def test_leases_of_an_earlier_boot_are_expired(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue()
        queue.enqueue(1)
        held = queue.lease(1, visibility_timeout=10**6)[0]
        queue.close()
        clock.reboot()
        queue = open_queue()
        assert take(queue).attempts == 2
        with pytest.raises(NotLeasedError):
            queue.ack(held)

    @pytest.mark.parametrize("step", [-3600, 3600, -5 * 86400, 86400])
    def test_a_step_of_the_wall_clock_strands_and_steals_nothing(
        self, queue: Queue, clock: ManualClock, step: float
    ) -> None:
        queue.enqueue_many(["held", "ready"])
        queue.enqueue("delayed", delay=20)
        queue.lease(1, visibility_timeout=10)
        clock.step_wall(step)
        assert counts(queue) == (1, 1, 1, 0, 0)
        assert take(queue).payload == "ready"
        assert queue.lease_one() is None
        clock.advance(10)
        assert take(queue).payload == "held"
        clock.advance(10)
        assert take(queue).payload == "delayed"

    def test_after_a_suspend_a_holder_has_one_heartbeats_grace(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        queue.enqueue(1)
        job = take(queue)
        clock.suspend(3600)
        assert queue.lease_one() is None
        queue.extend(job, 30)
        clock.advance(29)
        assert queue.lease_one() is None
        queue.ack(job)

    def test_after_a_suspend_and_the_grace_the_lease_is_over(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        take(queue)
        clock.suspend(3600)
        assert queue.lease_one() is None
        clock.advance(11)
        assert take(queue).attempts == 2


class TestRule4Fencing:
    def test_tokens_only_grow(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue(backoff=BackoffPolicy(base=0, jitter=0))
        tokens = []
        queue.enqueue_many(range(20))
        for n in range(8):
            jobs = queue.lease(3)
            tokens += [job.lease_token for job in jobs]
            queue.nack_many(jobs, delay=0, dead=False)
            if n % 4 == 1:
                queue = open_queue.reopen(queue)
            if n % 4 == 2:
                queue.compact()
            if n == 5:
                queue.purge()
                queue.enqueue_many(range(20))
            if n == 6:
                queue.close()
                clock.reboot()
                queue = open_queue(backoff=BackoffPolicy(base=0, jitter=0))
        assert all(type(token) is int and 0 < token < 2**53 for token in tokens)
        assert tokens == sorted(set(tokens))  # type: ignore[type-var]

    def test_a_stale_token_changes_nothing(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        stale = take(queue)
        clock.advance(30)
        current = take(queue)
        for verb in (queue.ack, queue.nack, queue.release, lambda job: queue.extend(job, 999)):
            with pytest.raises(NotLeasedError, match=current.id):
                verb(stale)
            assert queue.get(current.id) == current
        queue.ack(current)
        with pytest.raises(NotLeasedError):
            queue.ack(stale)

    def test_a_lease_that_ended_with_nobody_else_since(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        job = take(queue)
        clock.advance(31)
        for verb in (queue.ack, queue.nack, queue.release, lambda job: queue.extend(job, 999)):
            with pytest.raises(NotLeasedError):
                verb(job)
        assert counts(queue) == (1, 0, 0, 0, 0)

    def test_a_job_that_was_never_leased_holds_no_lease(self, queue: Queue) -> None:
        """What `enqueue` returned has no token; it is not the token of whoever holds the job now."""
        made = queue.enqueue(1)
        held = take(queue)
        for verb in (queue.nack, queue.release, queue.ack):
            with pytest.raises(NotLeasedError):
                verb(made)
        assert queue.get(made.id) == held

    def test_an_id_means_whoever_holds_it_now(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        take(queue)
        clock.advance(31)
        current = take(queue)
        assert queue.extend(current.id, 99).lease_token == current.lease_token
        queue.ack(current.id)
        assert counts(queue) == (0, 0, 0, 1, 0)

    def test_of_purged_dropped_and_forgotten_jobs(self, queue: Queue) -> None:
        queue.enqueue_many(range(3))
        done, dead, purged = queue.lease(3)
        queue.ack(done)
        queue.nack(dead, dead=True)
        queue.drop_dead()
        queue.compact()
        queue.purge()
        for job in (done, dead, purged):
            for ref in (job, job.id):
                with pytest.raises(JobNotFoundError):
                    queue.ack(ref)

    def test_a_job_of_another_queue(self, open_queue: Opener) -> None:
        one, two = open_queue("one"), open_queue("two")
        one.enqueue(1)
        two.enqueue(2)
        mine, theirs = take(one), take(two)
        with pytest.raises(JobNotFoundError):
            one.ack(theirs)
        assert one.get(mine.id).state == "leased"

    def test_a_forged_seq(self, queue: Queue) -> None:
        queue.enqueue_many([1, 2])
        job, other = queue.lease(2)
        job.seq = other.seq
        queue.ack(job)
        assert [found.state for found in queue.list_jobs()] == ["done", "leased"]


class TestRule5OneHolder:
    def test_threads_on_one_and_on_several_objects(self, open_queue: Opener) -> None:
        shared = open_queue()
        others = [open_queue() for _ in range(2)]
        shared.enqueue_many(range(600))
        seen: list[Any] = []
        errors: list[BaseException] = []

        def work(queue: Queue) -> None:
            try:
                while jobs := queue.lease(3):
                    seen.extend(job.payload for job in jobs)
                    for job in jobs:
                        queue.extend(job, 60)
                    queue.ack_many(jobs)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(queue,)) for queue in [shared, shared, *others]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert sorted(seen) == list(range(600))
        assert counts(shared) == (0, 0, 0, 600, 0)
        assert all(job.attempts == 1 for job in shared.list_jobs("done"))


class TestRule6DeDuplication:
    def states(self, queue: Queue) -> dict[str, Job]:
        """One job of an own id in every state."""
        queue.enqueue_many(range(4), job_ids=["done", "dead", "leased", "ready"])
        done, dead, _ = queue.lease(3)
        queue.ack(done, result="r")
        queue.nack(dead, error="e", dead=True)
        queue.enqueue(5, job_id="delayed", delay=100)
        queue.enqueue(6, job_id="cancelled")
        queue.cancel("cancelled")
        return {job.id: job for job in queue.list_jobs()}

    @pytest.mark.parametrize("again", ["same", "reopened", "compacted"])
    def test_known_in_any_state_does_nothing(self, open_queue: Opener, again: str) -> None:
        queue = open_queue()
        known = self.states(queue)
        if again == "compacted":
            queue.compact()
        if again != "same":
            queue = open_queue.reopen(queue)
        for job_id, job in known.items():
            found = queue.enqueue("other payload", job_id=job_id, priority=9, delay=1)
            assert found.created is False
            job.created = False
            assert found == job
        assert len(queue) == len(known)

    def test_between_handles(self, open_queue: Opener) -> None:
        one, two = open_queue(), open_queue()
        assert one.enqueue(1, job_id="k").created
        assert not two.enqueue(2, job_id="k").created
        assert two.enqueue_many([3, 4], job_ids=["k", "l"])[0].payload == 1

    def test_remembered_for_keep_done_at_least_then_until_the_next_compaction(
        self, open_queue: Opener, clock: ManualClock
    ) -> None:
        queue = open_queue(keep_done=100)
        queue.enqueue(1, job_id="k")
        queue.ack(take(queue))
        clock.advance(99)
        queue.compact()
        assert not queue.enqueue(2, job_id="k").created
        clock.advance(10**6)
        assert not queue.enqueue(2, job_id="k").created
        queue.compact()
        assert queue.enqueue(2, job_id="k").created

    def test_the_ack_records_until_when(self, open_queue: Opener, clock: ManualClock) -> None:
        short, long = open_queue(keep_done=10), open_queue(keep_done=10**6)
        short.enqueue_many([1, 2], job_ids=["short", "long"])
        short.ack("short") if take(short).id == "short" else None
        take(long)
        long.ack("long")
        clock.advance(20)
        open_queue(keep_done=0).compact()
        assert [job.id for job in short.list_jobs()] == ["long"]

    def test_cancelled_ones_are_remembered_like_finished_ones(
        self, open_queue: Opener, clock: ManualClock
    ) -> None:
        queue = open_queue(keep_done=100)
        queue.enqueue_many([1, 2], job_ids=["waiting", "held"])
        job = queue.lease(2)[1]
        queue.release("waiting")
        queue.cancel("waiting")
        queue.cancel("held")
        queue.nack(job)
        clock.advance(99)
        queue.compact()
        for job_id in ("waiting", "held"):
            found = queue.enqueue(3, job_id=job_id)
            assert (found.created, found.state, found.last_error) == (False, "done", "cancelled")
        clock.advance(1)
        queue.compact()
        assert queue.enqueue(3, job_id="waiting").created

    def test_payload_equal_ids_different(self, queue: Queue) -> None:
        queue.enqueue(1, job_id="k")
        queue.enqueue(1, job_id="K")
        queue.enqueue(1, job_id="k ")
        assert len(queue) == 3

    def test_a_thousand_ids_many_times(self, open_queue: Opener) -> None:
        queue = open_queue()
        ids = [f"i{n}" for n in range(1000)]
        for _ in range(3):
            queue.enqueue_many(range(1000), job_ids=ids)
            queue = open_queue.reopen(queue)
        assert len(queue) == 1000
        assert queue.get("i777").payload == 777

    def test_the_answer_to_a_full_queue(self, open_queue: Opener) -> None:
        """A job that is known needs no room."""
        queue = open_queue(max_bytes=20_000)
        queue.enqueue(b"x" * 15_000, job_id="k")
        assert not queue.enqueue(b"x" * 15_000, job_id="k").created
