"""What a worker makes of a handler's outcome, and how it takes jobs."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from typing import Any

import pytest

from nobroker import Job, JobState, Worker, WorkerStats
from nobroker.values import pack_value
from nobroker.worker.calling import MAX_ERROR_BYTES, error_text
from tests.unit.fake_queue import FakeQueue


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


def work(queue: FakeQueue, handler: Any, **options: Any) -> WorkerStats:
    return Worker(queue, handler, **{"idle_timeout": 0.0, "handle_signals": False, **options}).run()


@pytest.mark.parametrize("options", [{}, {"concurrency": 4}, {"batch": 7}, {"concurrency": 3, "batch": 2}])
def test_every_job_runs_once_and_is_acked(queue: FakeQueue, options: dict[str, Any]) -> None:
    for number in range(25):
        queue.enqueue(number)
    seen: list[int] = []
    stats = work(queue, lambda job: seen.append(job.payload), **options)
    assert sorted(seen) == list(range(25))
    assert stats.to_dict() == {"leased": 25, "succeeded": 25, "failed": 0, "dead": 0, "lost_leases": 0}
    assert queue.states() == {"done": 25}


def test_one_thread_keeps_the_order(queue: FakeQueue) -> None:
    for number in range(10):
        queue.enqueue(number)
    seen: list[int] = []
    work(queue, lambda job: seen.append(job.payload), batch=3)
    assert seen == list(range(10))


def test_what_the_handler_returns_is_the_result(queue: FakeQueue) -> None:
    queue.enqueue(4)
    queue.enqueue(None)
    work(queue, lambda job: job.payload and {"square": job.payload**2})
    assert [job.result for job in queue.jobs.values()] == [{"square": 16}, None]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_result_that_cannot_be_stored_is_dropped_and_the_job_is_done(
    queue: FakeQueue, batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        queue.enqueue(number)
    stats = work(queue, lambda job: object() if job.payload == 1 else job.payload, batch=batch)
    assert stats.succeeded == 3
    assert stats.failed == 0
    assert [job.result for job in queue.jobs.values()] == [0, None, 2]
    assert [r.facts["id"] for r in caplog.records if r.event == "result_not_stored"] == ["job-1"]  # type: ignore[attr-defined]


def test_raising_means_nack_until_the_job_is_dead(queue: FakeQueue) -> None:
    queue.max_attempts = 2
    queue.enqueue("flaky")
    queue.enqueue("doomed")

    def handler(job: Job) -> None:
        if job.payload == "doomed" or job.attempts == 1:
            raise ValueError("not yet")

    stats = work(queue, handler)
    assert stats == WorkerStats(leased=4, succeeded=1, failed=3, dead=1)
    doomed = queue.jobs["job-1"]
    assert doomed.state is JobState.DEAD
    assert doomed.last_error is not None
    assert doomed.last_error.startswith("ValueError: not yet\nTraceback")
    assert 'raise ValueError("not yet")' in doomed.last_error
    assert "calling.py" not in doomed.last_error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad \udcff \x00"),
        Unspeakable(),
        ValueError("x" * 3_000_000),
        ValueError("\U0001f4a9\udcff" * 100_000),
        ExceptionGroup("many", [ValueError(str(number)) for number in range(20_000)]),
        KeyError(),
    ],
    ids=["surrogates", "broken str", "long", "long and wide", "group", "empty"],
)
def test_any_error_text_is_storable(queue: FakeQueue, error: Exception) -> None:
    queue.max_attempts = 2
    queue.enqueue(1)

    def handler(job: Job) -> None:
        raise error

    stats = work(queue, handler)
    assert stats.dead == 1
    text = queue.jobs["job-0"].last_error
    assert text is not None
    assert text.startswith(type(error).__name__ + ": ")
    assert "\0" not in text
    assert len(text.encode()) <= MAX_ERROR_BYTES
    pack_value(text)


def test_the_end_of_a_deep_traceback_is_kept() -> None:
    def fall(depth: int) -> None:
        if depth:
            fall(depth - 1)
        raise LookupError("at the bottom")

    with pytest.raises(LookupError) as caught:
        fall(300)
    assert error_text(caught.value).endswith("LookupError: at the bottom")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_no_exception_nacks_stops_and_is_raised(
    queue: FakeQueue, kind: type[BaseException], is_async: bool
) -> None:
    for number in range(5):
        queue.enqueue(number)
    error = kind("enough")

    def handler(job: Job) -> None:
        if job.payload == 1:
            raise error

    async def async_handler(job: Job) -> None:
        handler(job)

    worker = Worker(queue, async_handler if is_async else handler, batch=4, idle_timeout=0.0)
    with pytest.raises(kind) as caught:
        worker.run()
    assert caught.value is error
    assert worker.stats == WorkerStats(leased=4, succeeded=1, failed=1)
    assert queue.states() == {"done": 1, "ready": 4}
    assert [job.attempts for job in queue.jobs.values()] == [1, 1, 0, 0, 0]
    assert (queue.jobs["job-1"].last_error or "").startswith(kind.__name__)


@pytest.mark.parametrize("options", [{}, {"concurrency": 4}, {"batch": 5}, {"concurrency": 3, "batch": 4}])
@pytest.mark.parametrize("max_jobs", [0, 1, 7])
def test_max_jobs_is_exact(queue: FakeQueue, options: dict[str, Any], max_jobs: int) -> None:
    for number in range(20):
        queue.enqueue(number)
    stats = work(queue, lambda job: None, idle_timeout=None, max_jobs=max_jobs, **options)
    assert (stats.leased, stats.succeeded) == (max_jobs, max_jobs)
    assert queue.states()["ready"] == 20 - max_jobs


def test_idle_means_nothing_can_come_back(queue: FakeQueue) -> None:
    """One handler still runs when the others find the queue empty; its retry belongs to this run."""
    queue.enqueue("flaky")
    runs: list[int] = []

    def handler(job: Job) -> None:
        runs.append(job.attempts)
        if job.attempts == 1:
            leases = len(queue.called("lease"))
            assert queue.wait_for(lambda: len(queue.called("lease")) > leases + 2)
            raise RuntimeError("once more")

    stats = work(queue, handler, concurrency=3, poll_interval=0.01)
    assert runs == [1, 2]
    assert stats == WorkerStats(leased=2, succeeded=1, failed=1)


def test_the_others_stop_at_once_when_the_last_handler_ends(queue: FakeQueue) -> None:
    queue.enqueue(1)

    def handler(job: Job) -> None:
        assert queue.wait_for(lambda: queue.idle_waiters() > 0)

    started = time.monotonic()
    work(queue, handler, concurrency=2, poll_interval=60)
    assert time.monotonic() - started < 10


def test_idle_timeout_does_not_look_at_the_wall_clock(
    queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    started = time.monotonic()
    stats = work(queue, lambda job: None, idle_timeout=0.2, poll_interval=0.01)
    assert 0.2 <= time.monotonic() - started < 5
    assert stats.leased == 0


def test_it_takes_no_more_jobs_than_it_can_start(queue: FakeQueue) -> None:
    for number in range(12):
        queue.enqueue(number)
    most: list[int] = []
    all_in = threading.Barrier(3)

    def handler(job: Job) -> None:
        all_in.wait(10)
        most.append(queue.states()["leased"])

    work(queue, handler, concurrency=3)
    assert max(most) == 3


def test_acks_of_a_batch_are_recorded_together(queue: FakeQueue) -> None:
    for number in range(6):
        queue.enqueue(number)
    work(queue, lambda job: None, batch=3)
    assert queue.called("settle") == [["job-0", "job-1", "job-2"], ["job-3", "job-4", "job-5"]]


def test_an_ack_and_the_next_lease_share_a_group(queue: FakeQueue) -> None:
    for number in range(3):
        queue.enqueue(number)
    work(queue, lambda job: None, max_jobs=3)
    assert len(queue.called("lease")) == 1
    assert len(queue.called("settle")) == 3


def test_the_next_job_begins_before_the_ack_is_durable_and_only_durable_acks_count(queue: FakeQueue) -> None:
    queue.enqueue(0)
    queue.enqueue(1)
    queue.durable.clear()
    counted: list[int] = []

    def handler(job: Job) -> None:
        if job.payload == 1:
            counted.append(worker.stats.succeeded)
            queue.durable.set()

    worker = Worker(queue, handler, idle_timeout=0.0)
    assert worker.run().succeeded == 2
    assert counted == [0]


def test_the_last_ack_is_made_durable_while_the_worker_idles(queue: FakeQueue) -> None:
    queue.enqueue(0)
    worker = Worker(queue, lambda job: None, poll_interval=60, handle_signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert queue.wait_for(lambda: bool(queue.called("durable")) and queue.idle_waiters() > 0)
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert worker.stats.succeeded == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_that_ends_after_its_lease_is_counted(queue: FakeQueue, fails: bool) -> None:
    queue.enqueue(1)

    def handler(job: Job) -> None:
        queue.steal(job)
        if fails:
            raise ValueError("too late")

    assert work(queue, handler) == WorkerStats(leased=1, lost_leases=1)
    assert queue.states() == {"leased": 1}, "it is the other one's now"


@pytest.mark.parametrize("fails", [False, True])
def test_a_purge_under_a_running_handler_is_survived(queue: FakeQueue, fails: bool) -> None:
    queue.enqueue("first")
    seen: list[str] = []

    def handler(job: Job) -> None:
        seen.append(job.payload)
        if job.payload == "first":
            queue.purge()
            queue.enqueue("second", job_id="after")
            if fails:
                raise ValueError("its job is gone")

    stats = work(queue, handler)
    assert seen == ["first", "second"]
    assert stats == WorkerStats(leased=2, succeeded=1)


def test_async_handlers_share_one_loop_and_run_side_by_side(queue: FakeQueue) -> None:
    for number in range(9):
        queue.enqueue(number)
    loops = set()
    now, most = 0, 0

    async def handler(job: Job) -> int:
        nonlocal now, most
        loops.add(asyncio.get_running_loop())
        now += 1
        most = max(most, now)
        for _ in range(200):
            if most == 3:
                break
            await asyncio.sleep(0.01)
        now -= 1
        if job.payload == 4 and job.attempts == 1:
            raise ValueError("async")
        return int(job.payload)

    stats = work(queue, handler, concurrency=3)
    assert stats == WorkerStats(leased=10, succeeded=9, failed=1)
    assert len(loops) == 1
    assert most == 3
    assert [job.result for job in queue.jobs.values()] == list(range(9))


def test_a_plain_function_that_returns_a_coroutine_is_awaited(queue: FakeQueue) -> None:
    queue.enqueue(3)

    async def double(number: int) -> int:
        return number * 2

    work(queue, lambda job: double(job.payload))
    assert queue.jobs["job-0"].result == 6


def test_a_task_that_ends_the_event_loop_ends_the_run(queue: FakeQueue) -> None:
    queue.enqueue(1)

    async def leave() -> None:
        raise SystemExit(3)

    async def handler(job: Job) -> None:
        await asyncio.wait_for(asyncio.shield(asyncio.create_task(leave())), 10)

    with pytest.raises(SystemExit):
        work(queue, handler)
    assert queue.states() == {"ready": 1}


def test_nothing_of_a_failed_job_is_kept(queue: FakeQueue) -> None:
    """Not even until the next round of the garbage collector: handlers hold connections and files."""
    queue.max_attempts = 1
    queue.enqueue(1)
    queue.enqueue(2)
    kept: list[weakref.ref[Any]] = []

    def handler(job: Job) -> None:
        if job.payload == 1:
            local = threading.Event()
            kept.append(weakref.ref(local))
            raise ValueError("with a local in its traceback")
        assert kept[0]() is None

    gc.disable()
    try:
        assert work(queue, handler) == WorkerStats(leased=2, succeeded=1, failed=1, dead=1)
    finally:
        gc.enable()


def test_only_the_wanted_lanes(queue: FakeQueue) -> None:
    queue.enqueue("a", lane="mail")
    queue.enqueue("b", lane="slow")
    seen: list[str] = []
    work(queue, lambda job: seen.append(job.payload), lanes=["mail"])
    assert seen == ["a"]


def test_log_lines_have_a_stable_key_and_cannot_be_forged(
    queue: FakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.max_attempts = 1
    queue.enqueue(1)

    def handler(job: Job) -> None:
        raise ValueError("bad\revent=started concurrency=9")

    with caplog.at_level(logging.INFO, "nobroker.worker"):
        work(queue, handler)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in lines] == [
        "event=started",
        "event=job_failed",
        "event=stopping",
        "event=stopped",
    ]
    assert " id=job-0 " in lines[1]
    assert "\r" not in lines[1]
