"""Heartbeats, lost leases, and a queue that has troubles of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from nobroker import (
    CorruptLogError,
    Job,
    JobNotFoundError,
    LockTimeoutError,
    QueueFullError,
    StorageError,
    Worker,
    WorkerStats,
)
from nobroker.worker import run as run_module
from tests.unit.fake_queue import FakeQueue

SHORT_S = 0.6
"""A lease that is extended while one waits for it, and that a busy machine does not let run out."""


def work(queue: FakeQueue, handler: Any, **options: Any) -> WorkerStats:
    settings = {"idle_timeout": 0.0, "handle_signals": False, "poll_interval": 0.01}
    return Worker(queue, handler, **{**settings, **options}).run()


def unknown(message: str) -> StorageError:
    error = StorageError(message)
    error.outcome = "unknown"
    return error


def beats(queue: FakeQueue, job: Job) -> int:
    return sum(job.id in ids for ids in queue.called("extend_many"))


def wait_for_beats(queue: FakeQueue, count: int, job: Job) -> None:
    before = beats(queue, job)
    assert queue.wait_for(lambda: beats(queue, job) >= before + count)


def test_every_job_in_hand_is_extended_begun_or_not() -> None:
    queue = FakeQueue(visibility_timeout=SHORT_S)
    jobs = [queue.enqueue(number) for number in range(3)]

    def handler(job: Job) -> None:
        if job.payload == 1:
            wait_for_beats(queue, 4, job)
            assert all(beats(queue, other) > 3 for other in jobs[1:])
            assert queue.states() == {"leased": 2, "done": 1} or queue.states() == {"leased": 3}

    stats = work(queue, handler, batch=3)
    assert stats == WorkerStats(leased=3, succeeded=3)
    assert [job.attempts for job in queue.jobs.values()] == [1, 1, 1]


@pytest.mark.parametrize("how", ["stop", "max_jobs"])
def test_the_heartbeat_outlives_a_graceful_stop(how: str) -> None:
    queue = FakeQueue(visibility_timeout=0.15)
    queue.enqueue(1)

    def handler(job: Job) -> None:
        if how == "stop":
            worker.stop()
        wait_for_beats(queue, 5, job)

    worker = Worker(queue, handler, max_jobs=1 if how == "max_jobs" else None)
    assert worker.run() == WorkerStats(leased=1, succeeded=1)
    assert queue.jobs["job-0"].attempts == 1


def test_a_job_is_extended_until_its_ack_is_written() -> None:
    queue = FakeQueue(visibility_timeout=0.15)
    queue.enqueue(1)
    queue.troubles["settle"] = [LockTimeoutError("busy") for _ in range(3)]
    ended: list[int] = []
    stats = work(queue, lambda job: ended.append(len(queue.called("extend_many"))))
    assert stats.succeeded == 1
    assert len(queue.called("extend_many")) > ended[0], "the tries took longer than a beat"


def test_a_failed_beat_is_tried_again_sooner(caplog: pytest.LogCaptureFixture) -> None:
    queue = FakeQueue(visibility_timeout=0.9)
    queue.enqueue(1)
    queue.troubles["extend_many"] = [LockTimeoutError("busy"), StorageError("full")]

    def handler(job: Job) -> None:
        wait_for_beats(queue, 3, job)

    started = time.monotonic()
    assert work(queue, handler).succeeded == 1
    assert time.monotonic() - started < 0.85
    assert [record.event for record in caplog.records] == ["queue_trouble"] * 2  # type: ignore[attr-defined]


def test_a_job_whose_lease_is_gone_does_not_begin() -> None:
    queue = FakeQueue(visibility_timeout=SHORT_S)
    for number in range(3):
        queue.enqueue(number)
    seen: list[int] = []

    def handler(job: Job) -> None:
        seen.append(job.payload)
        if job.payload == 0:
            queue.steal(queue.jobs["job-1"])
            wait_for_beats(queue, 1, job)
            assert queue.wait_for(lambda: queue.called("extend_many")[-1:] == [["job-2", "job-0"]])
            queue.jobs["job-1"].lease_deadline = time.monotonic() + 60

    stats = work(queue, handler, batch=3)
    assert seen == [0, 2]
    assert stats == WorkerStats(leased=3, succeeded=2)


def test_a_process_that_slept_through_its_leases_asks_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = FakeQueue(visibility_timeout=100)
    for number in range(3):
        queue.enqueue(number)
    seen: list[int] = []
    ahead = [0.0]
    clock = time.monotonic
    monkeypatch.setattr("nobroker.worker.slot.time.monotonic", lambda: clock() + ahead[0])

    def handler(job: Job) -> None:
        seen.append(job.payload)
        if job.payload == 0:
            queue.steal(queue.jobs["job-1"]).lease_deadline = None
            queue.jobs["job-1"].lease_deadline = clock() + 10_000
            queue.jobs["job-2"].lease_deadline = clock() + 10_000
            ahead[0] = 1000.0

    stats = work(queue, handler, batch=3)
    assert seen == [0, 2]
    assert stats.succeeded == 2
    assert queue.called("extend") == [["job-1"], ["job-2"]]


@pytest.mark.parametrize("verb", ["lease", "settle", "nack"])
@pytest.mark.parametrize("kind", [LockTimeoutError, StorageError, QueueFullError])
def test_a_passing_trouble_delays_and_loses_nothing(verb: str, kind: Callable[[str], Exception]) -> None:
    queue = FakeQueue()
    queue.enqueue(1)
    queue.troubles[verb] = [kind("for now"), kind("for now")]

    def handler(job: Job) -> None:
        if verb == "nack" and job.attempts == 1:
            raise ValueError("first")

    stats = work(queue, handler)
    assert stats.succeeded == 1
    assert queue.states() == {"done": 1}
    assert queue.jobs["job-0"].attempts == 1 + (verb == "nack")


def test_a_passing_trouble_while_giving_back() -> None:
    queue = FakeQueue()
    for number in range(3):
        queue.enqueue(number)
    queue.troubles["release_many"] = [LockTimeoutError("busy")]
    worker = Worker(queue, lambda job: worker.stop(), batch=3)
    worker.run()
    assert queue.states() == {"done": 1, "ready": 2}


def test_a_stopping_worker_is_patient_only_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    queue = FakeQueue(visibility_timeout=0.3)
    queue.enqueue(1)
    queue.troubles["settle"] = [LockTimeoutError("held for ever") for _ in range(10_000)]
    worker = Worker(queue, lambda job: worker.stop(), poll_interval=0.01)
    started = time.monotonic()
    assert worker.run() == WorkerStats(leased=1)
    assert time.monotonic() - started < 10
    assert "not_recorded" in [record.event for record in caplog.records]  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", ["lease", "settle", "nack", "extend_many"])
def test_what_cannot_pass_ends_the_run_and_is_raised(verb: str) -> None:
    queue = FakeQueue(visibility_timeout=0.15)
    queue.enqueue(1)
    queue.troubles[verb] = [unknown("the disk is gone")]

    def handler(job: Job) -> None:
        if verb == "extend_many":
            assert queue.wait_for(lambda: bool(queue.called("extend_many")))
        if verb == "nack":
            raise ValueError("first")

    with pytest.raises(StorageError, match="the disk is gone"):
        work(queue, handler, idle_timeout=None)
    assert queue.states()["leased"] == 0


@pytest.mark.parametrize("verb", ["lease", "settle"])
def test_storage_that_refuses_for_long_ends_the_run(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nobroker.worker.recording._STORAGE_PATIENCE_S", 0.2)
    queue = FakeQueue()
    queue.enqueue(1)
    queue.troubles[verb] = [StorageError("open it anew") for _ in range(1000)]
    with pytest.raises(StorageError, match="anew"):
        work(queue, lambda job: None, idle_timeout=None)


def test_damage_ends_the_run() -> None:
    queue = FakeQueue()
    queue.troubles["lease"] = [CorruptLogError("at offset 64", path="jobs/default.000001.seg", offset=64)]
    with pytest.raises(CorruptLogError):
        work(queue, print, idle_timeout=None, concurrency=3)


def test_an_ack_that_does_not_reach_the_disk_is_not_counted() -> None:
    queue = FakeQueue()
    queue.enqueue(1)
    queue.troubles["durable"] = [unknown("sync failed")]
    worker = Worker(queue, lambda job: None)
    with pytest.raises(StorageError, match="sync failed"):
        worker.run()
    assert worker.stats == WorkerStats(leased=1)


def test_only_so_many_acks_may_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nobroker.worker.durability.UNDURABLE_LIMIT", 3)
    assert run_module.UNDURABLE_LIMIT == 256
    queue = FakeQueue()
    for number in range(10):
        queue.enqueue(number)
    queue.durable.clear()
    fourth = threading.Event()

    def handler(job: Job) -> None:
        if job.payload == 3:
            fourth.set()

    worker = Worker(queue, handler, idle_timeout=0.0, handle_signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert fourth.wait(10)
    assert len(queue.called("settle")) == 3
    assert queue.states() == {"done": 3, "leased": 1, "ready": 6}
    queue.durable.set()
    thread.join(10)
    assert worker.stats.succeeded == 10


def test_a_purge_between_two_beats(caplog: pytest.LogCaptureFixture) -> None:
    queue = FakeQueue(visibility_timeout=0.15)
    queue.enqueue(1)
    queue.enqueue(2)

    def handler(job: Job) -> None:
        if job.payload == 1:
            del queue.jobs["job-1"]
            wait_for_beats(queue, 1, job)

    queue.troubles["extend_many"] = [JobNotFoundError("job-1")]
    with caplog.at_level(logging.WARNING, "nobroker.worker"):
        stats = work(queue, handler, batch=2)
    assert stats == WorkerStats(leased=2, succeeded=1)
