"""Compact, check, backup, close, and queues by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    CompactionResult,
    Job,
    JobNotFoundError,
    LockTimeoutError,
    NewJob,
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
from .words import counts, drain, take

Failing = Callable[..., Job]


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
            last = session.log.segments()[-1].number
            session.log.seal()
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
            "reschedule": lambda: queue.reschedule(job.id),
            "enqueue_all": lambda: queue.enqueue_all([NewJob(1)]),
            "stats of some": lambda: queue.stats(seqs=range(5)),
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
