"""Rules 1 and 3: order, and leases as deadlines."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker import NotLeasedError, Queue
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, drain, take

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


class TestRule5OneHolder:
    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_what_was_released_elsewhere_is_leased_once(
        self, open_queue: Opener, queue: Queue, times: int
    ) -> None:
        queue.enqueue_many(["given back", "other"])
        there = open_queue()
        for _ in range(times):
            there.release(take(there))
        jobs = queue.lease(5)
        assert [job.payload for job in jobs] == ["given back", "other"]
        queue.ack_many(jobs)
        assert counts(queue) == (0, 0, 0, 2, 0)
        assert queue.check() == []

    def test_what_was_released_is_leased_once_after_a_replay(self, open_queue: Opener, queue: Queue) -> None:
        queue.enqueue("given back")
        for _ in range(3):
            queue.release(take(queue))
        assert len(open_queue().lease(5)) == 1
