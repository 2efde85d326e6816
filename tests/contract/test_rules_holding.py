"""Rules 4 to 6: fencing, one holder, de-duplication."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from nobroker import BackoffPolicy, Job, JobNotFoundError, NotLeasedError, Queue
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, take

EXTREMES = [2**31 - 1, 1, 0, -1, -(2**31)]


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
