"""A handler that hangs: its job is recorded without it, and nobody waits for its thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nobroker import Job, RetryLater, Worker, WorkerStats
from tests.unit.fake_queue import FakeQueue


class Hanging:
    """A handler that hangs with the first job, until the test lets it go."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.hangs = threading.Event()
        self.go_on = threading.Event()
        self.seen: list[Any] = []

    def __call__(self, job: Job) -> str:
        if not self.hangs.is_set():
            self.job = job
            self.hangs.set()
            assert self.go_on.wait(10)
        self.seen.append(job.payload)
        return "returned"


@contextmanager
def hanging(
    queue: FakeQueue, jobs: int, **options: Any
) -> Iterator[tuple[Worker, Hanging, threading.Thread]]:
    for number in range(jobs):
        queue.enqueue(number)
    handler = Hanging()
    worker = Worker(queue, handler, handle_signals=False, poll_interval=0.01, **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert handler.hangs.wait(10)
        yield worker, handler, thread
    finally:
        handler.go_on.set()
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()


def join_handlers() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("nobroker-worker"):
            thread.join(10)


def test_run_returns_without_the_handler_and_its_job_has_failed() -> None:
    queue = FakeQueue()
    with hanging(queue, 1) as (worker, handler, thread):
        assert handler.job is not None
        assert worker.is_running(handler.job)
        worker.stop()
        assert worker.abandon(handler.job, error=TimeoutError("too long"))
        thread.join(10)
        assert not thread.is_alive(), "nobody waits for the handler"
        assert not handler.seen
        assert queue.states() == {"ready": 1}
        assert "TimeoutError: too long" in queue.jobs["job-0"].last_error
        assert worker.stats == WorkerStats(leased=1, failed=1)
        handler.go_on.set()
        join_handlers()
        assert handler.seen == [0]
        assert queue.states() == {"ready": 1}
        assert worker.stats == WorkerStats(leased=1, failed=1), "what it returned is not even tried"


def test_what_the_handler_returns_later_is_dropped() -> None:
    queue = FakeQueue()
    with hanging(queue, 2, concurrency=2, max_jobs=2) as (worker, handler, thread):
        assert handler.job is not None
        assert worker.abandon(handler.job, result="said in its place")
        thread.join(10)
        assert not thread.is_alive()
        before = queue.states()
        handler.go_on.set()
        join_handlers()
        assert queue.states() == before == {"done": 2}
        assert "said in its place" in [job.result for job in queue.jobs.values()]
        assert worker.stats.lost_leases == 0


def test_others_go_on_and_what_was_leased_with_it_is_given_back() -> None:
    queue = FakeQueue()
    with hanging(queue, 5, concurrency=1, batch=5) as (worker, handler, thread):
        assert handler.job is not None
        assert worker.abandon(handler.job, error=RetryLater(5))
        thread.join(10)
        assert not thread.is_alive(), "it was the only slot"
        assert queue.states() == {"ready": 5}
        assert [job.attempts for job in queue.jobs.values()] == [0] * 5


def test_a_job_that_is_not_running_here_cannot_be_abandoned() -> None:
    queue = FakeQueue()
    with hanging(queue, 1) as (worker, handler, _):
        assert handler.job is not None
        assert worker.abandon(handler.job, error=ValueError())
        assert not worker.abandon(handler.job, error=ValueError()), "once is enough"
        assert not worker.is_running(handler.job)
        with pytest.raises(TypeError, match="error must be an exception"):
            worker.abandon(handler.job, error="text")  # type: ignore[arg-type]
    assert not worker.abandon(handler.job, result=1), "no run"


def test_an_async_handler_that_cannot_be_cancelled_does_not_hold_the_run() -> None:
    queue = FakeQueue()
    queue.enqueue(1)
    seen: list[Job] = []
    entered, let_go = threading.Event(), threading.Event()

    async def handler(job: Job) -> None:
        seen.append(job)
        entered.set()
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    worker = Worker(queue, handler, handle_signals=False, poll_interval=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert entered.wait(10)
    worker.stop()
    assert worker.abandon(seen[0], error=TimeoutError("too long"))
    thread.join(10)
    assert not thread.is_alive()
    assert queue.states() == {"ready": 1}
    let_go.set()
