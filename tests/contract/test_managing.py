"""Requeue, drop, cancel, pause, purge, compact, check, backup, close, and queues by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    BackoffPolicy,
    CompactionResult,
    Job,
    JobNotFoundError,
    LockTimeoutError,
    NobrokerError,
    NotLeasedError,
    Queue,
    QueueClosedError,
    RecoveryReport,
    StorageError,
    drop_queue,
    list_queues,
)
from nobroker.clock import ManualClock

from .conftest import Opener, answers
from .helpers import counts, drain, take

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


class TestCompact:
    def test_forgets_finished_jobs_and_keeps_the_others(self, queue: Queue, failing: Failing) -> None:
        failing("dead", metadata={"m": 1})
        queue.enqueue_many([b"x" * 1000] * 300)
        queue.ack_many(queue.lease(200))
        queue.nack(take(queue), error="e")
        held = take(queue)
        queue.extend(held, 500, progress=1, state="s")
        queue.enqueue("dated", run_at=1_900_000_000)
        queue.enqueue("expires", expires_in=500, lane="l")
        before = answers(queue)
        kept = [line for line in before["jobs"] if "'done'" not in line]
        result = queue.compact()
        assert isinstance(result, CompactionResult)
        assert (result.jobs_kept, result.jobs_dropped) == (len(kept), 200)
        assert result.bytes_reclaimed == result.bytes_before - result.bytes_after
        assert result.bytes_reclaimed > 150_000
        assert str(f"{result.bytes_before:,}") in result.describe()
        assert answers(queue)["jobs"] == kept
        assert answers(queue)["order"] == before["order"]
        queue.ack(held)

    def test_twice(self, queue: Queue) -> None:
        queue.enqueue(1)
        queue.compact()
        result = queue.compact()
        assert (result.jobs_kept, result.jobs_dropped) == (1, 0)
        assert drain(queue) == [1]

    def test_of_nothing(self, queue: Queue) -> None:
        result = queue.compact()
        assert (result.jobs_kept, result.jobs_dropped) == (0, 0)
        assert "%" in result.describe()

    def test_a_lease_from_before_is_good_after(self, open_queue: Opener, clock: ManualClock) -> None:
        one, two = open_queue(), open_queue()
        one.enqueue_many("abcd")
        jobs = one.lease(4)
        two.compact()
        one.ack(jobs[0])
        one.nack(jobs[1], error="e", delay=0)
        one.extend(jobs[2], 100)
        one.release(jobs[3])
        two.compact()
        assert counts(one) == counts(two) == (2, 0, 1, 0, 0)
        assert two.get(jobs[1].id).last_error == "e"
        clock.advance(101)
        assert sorted(drain(two)) == ["b", "c", "d"]  # type: ignore[type-var]

    def test_results_and_own_ids_are_kept_for_a_while(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue(keep_done=60)
        queue.enqueue_many([0, 1, 2])
        queue.enqueue("own", job_id="k")
        jobs = queue.lease(4)
        queue.ack(jobs[0], result="r")
        queue.ack_many(jobs[1:])
        queue.compact()
        assert queue.get(jobs[0].id).result == "r"
        assert not queue.enqueue("again", job_id="k").created
        for job in jobs[1:3]:
            with pytest.raises(JobNotFoundError):
                queue.get(job.id)
        clock.advance(59)
        queue.compact()
        assert queue.get(jobs[0].id).result == "r"
        assert not queue.enqueue("again", job_id="k").created
        clock.advance(1)
        assert queue.get("k").state == "done"
        queue.compact()
        assert len(queue) == 0
        assert queue.enqueue("again", job_id="k").created

    def test_acks_of_forgotten_jobs(self, queue: Queue) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.ack(job)
        queue.compact()
        with pytest.raises(JobNotFoundError):
            queue.ack(job)

    def test_in_the_middle_of_a_purge_an_id_stays_taken(self, queue: Queue, clock: ManualClock) -> None:
        """What a compaction meant to forget, and what took its id since, are two things."""
        queue.enqueue("first", job_id="k")
        queue.ack(take(queue))
        clock.advance(4000)
        queue.enqueue_many([b"x" * 1000] * 60)
        mover = queue._store._mover  # type: ignore[attr-defined]
        session = queue._store._session  # type: ignore[attr-defined]
        with session.transaction():
            session.log.seal()
            last = session.log.active_number() - 1
        mover.step(last)
        queue.purge()
        assert queue.enqueue("second", job_id="k").created
        while mover.step(last):
            pass
        assert not queue.enqueue("third", job_id="k").created


class TestBackupAndCheck:
    def test_backup_is_the_queue(
        self, queue: Queue, open_queue: Opener, failing: Failing, tmp_path: Path
    ) -> None:
        failing(1)
        queue.enqueue_many(range(10), job_ids="abcdefghij")
        queue.lease(3)
        target = tmp_path / "copy" / "deep"
        queue.backup(target)
        copy = open_queue(path=target)
        assert answers(copy) == answers(queue)
        assert list(copy.check()) == []
        assert copy.enqueue(1).seq > queue.enqueue(1).seq

    def test_backup_to_a_string_and_into_an_empty_directory(self, queue: Queue, tmp_path: Path) -> None:
        queue.enqueue(1)
        (tmp_path / "empty").mkdir()
        path = queue.backup(str(tmp_path / "empty"))
        assert Path(path).exists()

    def test_check_of_a_sound_queue_finds_nothing(self, open_queue: Opener) -> None:
        queue = open_queue()
        for n in range(300):
            queue.enqueue(b"x" * 1000)
            if n % 50 == 0:
                assert list(queue.check()) == []
        queue.ack_many(queue.lease(200))
        queue.compact()
        assert list(queue.check()) == []

    def test_recovery_of_a_sound_queue(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue(1)
        report = open_queue.reopen(queue).recovery
        assert isinstance(report, RecoveryReport)
        assert report.bytes_discarded == 0
        assert report.damage == "none"


class TestClose:
    def test_twice_and_with_a_with(self, open_queue: Opener) -> None:
        with open_queue() as queue:
            queue.enqueue(1)
        queue.close()
        queue.close()

    def test_a_closed_queue_says_so(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue_many(range(3))
        job = take(queue)
        assert len(queue.lease(9)) == 2
        assert queue.lease() == []
        queue.close()
        verbs: dict[str, Callable[[], Any]] = {
            "enqueue": lambda: queue.enqueue(1),
            "enqueue_many": lambda: queue.enqueue_many([1]),
            "enqueue own": lambda: queue.enqueue(1, job_id="k"),
            "lease": queue.lease,
            "lease_one": queue.lease_one,
            "wait": lambda: queue.lease(wait=5),
            "ack": lambda: queue.ack(job),
            "nack": lambda: queue.nack(job),
            "extend": lambda: queue.extend(job, 1),
            "release": lambda: queue.release(job),
            "ack_many": lambda: queue.ack_many([job]),
            "get": lambda: queue.get(job.id),
            "stats": queue.stats,
            "len": lambda: len(queue),
            "list_jobs": queue.list_jobs,
            "dlq": queue.dlq,
            "requeue_dead": queue.requeue_dead,
            "drop_dead": queue.drop_dead,
            "cancel": lambda: queue.cancel(job.id),
            "pause": queue.pause,
            "resume": queue.resume,
            "paused": lambda: queue.paused,
            "purge": queue.purge,
            "compact": queue.compact,
            "check": queue.check,
            "backup": lambda: queue.backup(open_queue.dir / "b"),
        }
        silent = []
        for name, verb in verbs.items():
            try:
                verb()
            except QueueClosedError:
                continue
            silent.append(name)
        assert silent == []

    def test_from_another_thread_while_at_work(self, open_queue: Opener) -> None:
        queue = open_queue()
        errors: list[BaseException] = []

        def work() -> None:
            try:
                while True:
                    queue.enqueue(1)
                    queue.ack_many(queue.lease(5))
            except QueueClosedError:
                return
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        threading.Event().wait(0.1)
        queue.close()
        for thread in threads:
            thread.join(20)
        assert errors == []


class TestNames:
    def test_list_and_drop(self, open_queue: Opener) -> None:
        assert list_queues(open_queue.dir) == []
        for name in ("b", "a", "a.1"):
            open_queue(name).enqueue(name)
        assert list_queues(open_queue.dir) == ["a", "a.1", "b"]
        for queue in open_queue._opened:
            queue.close()
        drop_queue(open_queue.dir, "a")
        assert list_queues(str(open_queue.dir)) == ["a.1", "b"]
        assert drain(open_queue("a.1")) == ["a.1"]
        with pytest.raises(StorageError):
            drop_queue(open_queue.dir, "a")
        open_queue.check = False

    def test_a_queue_that_is_open_is_not_dropped(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue(1)
        with pytest.raises(LockTimeoutError, match="default"):
            drop_queue(open_queue.dir, "default")
        assert drain(queue) == [1]

    def test_not_leased_error_carries_its_jobs(self, queue: Queue) -> None:
        job = queue.enqueue(1)
        with pytest.raises(NotLeasedError) as caught:
            queue.ack(job.id)
        assert caught.value.jobs == [job.id]
