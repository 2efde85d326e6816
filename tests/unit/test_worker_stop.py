"""How a worker ends: by `stop`, by one signal, by two; and that nothing stays leased."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nobroker import Job, LockTimeoutError, Worker, WorkerStats
from nobroker.mailbox import Mailbox
from tests.unit.fake_queue import FakeQueue


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


@contextmanager
def running(worker: Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def kill(signum: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), signum)


class Gate:
    """A handler that waits inside until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.through = threading.Event()
        self.left = threading.Semaphore(0)

    def __call__(self, job: Job) -> str:
        self.entered.release()
        assert self.through.wait(10)
        self.left.release()
        return "late"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_stop_lets_running_handlers_end(queue: FakeQueue, concurrency: int) -> None:
    for number in range(5):
        queue.enqueue(number)
    gate = Gate()
    worker = Worker(queue, gate, concurrency=concurrency, poll_interval=60, handle_signals=False)
    with running(worker):
        for _ in range(concurrency):
            assert gate.entered.acquire(timeout=10)
        worker.stop()
        gate.through.set()
    assert queue.states() == {"done": concurrency, "ready": 5 - concurrency}
    assert worker.stats == WorkerStats(leased=concurrency, succeeded=concurrency)


def test_stop_wakes_an_idle_worker(queue: FakeQueue) -> None:
    worker = Worker(queue, print, concurrency=4, poll_interval=60, handle_signals=False)
    with running(worker):
        assert queue.wait_for(lambda: queue.idle_waiters() == 1), "one waits for all"


def test_stop_gives_back_the_rest_of_a_batch_while_the_handler_still_runs(queue: FakeQueue) -> None:
    for number in range(6):
        queue.enqueue(number)
    gate = Gate()

    def handler(job: Job) -> None:
        if job.payload == 2:
            gate(job)

    worker = Worker(queue, handler, batch=5, handle_signals=False)
    with running(worker):
        assert gate.entered.acquire(timeout=10)
        assert queue.states() == {"leased": 5, "ready": 1}
        worker.stop()
        assert queue.wait_for(lambda: queue.states() == {"leased": 1, "ready": 3, "done": 2})
        gate.through.set()
    assert queue.states() == {"done": 3, "ready": 3}
    assert [job.attempts for job in queue.jobs.values()] == [1, 1, 1, 0, 0, 0]
    assert worker.stats == WorkerStats(leased=5, succeeded=3)


def test_stop_before_run_holds_for_that_run_only(queue: FakeQueue) -> None:
    queue.enqueue(1)
    worker = Worker(queue, lambda job: None, idle_timeout=0.0)
    worker.stop()
    assert worker.run() == WorkerStats()
    assert worker.ended_by == "stop"
    assert worker.run() == WorkerStats(leased=1, succeeded=1)
    assert worker.ended_by == "idle"


def test_a_handler_may_stop_its_worker(queue: FakeQueue) -> None:
    queue.enqueue(1)
    queue.enqueue(2)
    worker = Worker(queue, lambda job: worker.stop())
    assert worker.run().succeeded == 1
    assert queue.states() == {"done": 1, "ready": 1}


def test_one_run_at_a_time(queue: FakeQueue) -> None:
    worker = Worker(queue, print, handle_signals=False)
    with running(worker):
        assert queue.wait_for(lambda: queue.idle_waiters() == 1)
        with pytest.raises(RuntimeError, match="running"):
            worker.run()


def test_a_closed_queue_ends_the_run(queue: FakeQueue) -> None:
    worker = Worker(queue, print, concurrency=2, poll_interval=60)

    def close() -> None:
        queue.wait_for(lambda: queue.idle_waiters() == 1)
        queue.close()

    closing = in_background(close)
    assert worker.run() == WorkerStats()
    assert worker.ended_by == "closed"
    closing.join()


def test_max_jobs_is_no_reason_of_its_own(queue: FakeQueue) -> None:
    queue.enqueue(1)
    queue.enqueue(2)
    worker = Worker(queue, lambda job: None, max_jobs=1)
    worker.run()
    assert worker.ended_by == ""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_is_a_graceful_stop_and_the_old_handlers_come_back(queue: FakeQueue, signum: int) -> None:
    for number in range(3):
        queue.enqueue(number)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    gate = Gate()
    worker = Worker(queue, gate, batch=2)

    def interfere() -> None:
        gate.entered.acquire(timeout=10)
        kill(signum)
        queue.wait_for(lambda: queue.states()["ready"] == 2)
        gate.through.set()

    thread = in_background(interfere)
    assert worker.run() == WorkerStats(leased=2, succeeded=1)
    assert worker.ended_by == "signal"
    thread.join()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert queue.states() == {"done": 1, "ready": 2}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_second_signal_lets_go_of_everything_and_waits_for_nobody(queue: FakeQueue, is_async: bool) -> None:
    for number in range(4):
        queue.enqueue(number)
    gate = Gate()
    cancelled = threading.Event()

    def handler(job: Job) -> None:
        if job.payload:
            gate(job)

    async def async_handler(job: Job) -> None:
        if job.payload:
            gate.entered.release()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    worker = Worker(queue, async_handler if is_async else handler, batch=4)

    def interfere() -> None:
        gate.entered.acquire(timeout=10)
        kill()
        queue.wait_for(lambda: queue.states()["ready"] == 2)
        kill()

    thread = in_background(interfere)
    stats = worker.run()
    thread.join()
    assert stats == WorkerStats(leased=4, succeeded=1)
    assert queue.states() == {"done": 1, "ready": 3}
    assert [job.attempts for job in queue.jobs.values()] == [1, 0, 0, 0]
    if is_async:
        assert cancelled.wait(10), "it can be told, so it is"
    writes = len(queue.calls)
    gate.through.set()
    assert is_async or gate.left.acquire(timeout=10)
    for thread in threading.enumerate():
        if thread.name.startswith("nobroker-worker"):
            thread.join(10)
    assert queue.calls[writes:] == [], "a late result is discarded"


def test_acks_that_only_wait_for_their_batch_are_kept_by_a_second_signal(queue: FakeQueue) -> None:
    """Both signals come while the same handler runs, before the first was acted on."""
    for number in range(3):
        queue.enqueue(number)
    gate = Gate()

    def handler(job: Job) -> None:
        if job.payload == 1:
            kill()
            kill(signal.SIGINT)
            gate(job)

    stats = Worker(queue, handler, batch=3).run()
    gate.through.set()
    assert stats.succeeded == 1
    assert queue.states() == {"done": 1, "ready": 2}


def test_a_second_signal_ends_the_patience_with_a_busy_queue(queue: FakeQueue) -> None:
    queue.enqueue(1)
    queue.troubles["settle"] = [LockTimeoutError("held for ever") for _ in range(100_000)]

    def interfere() -> None:
        queue.wait_for(lambda: bool(queue.called("settle")))
        kill()
        queue.wait_for(lambda: len(queue.called("settle")) > 1)
        kill()

    thread = in_background(interfere)
    assert Worker(queue, lambda job: None, poll_interval=60).run() == WorkerStats(leased=1)
    thread.join()


def test_an_interrupt_that_nobody_caught_stops_gracefully_and_is_raised(queue: FakeQueue) -> None:
    queue.enqueue(1)
    gate = Gate()
    worker = Worker(queue, gate, handle_signals=False)

    def interfere() -> None:
        gate.entered.acquire(timeout=10)
        kill(signal.SIGINT)
        queue.wait_for(lambda: worker._run is None or worker._run.stopping)
        gate.through.set()

    thread = in_background(interfere)
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    thread.join()
    assert queue.states() == {"done": 1}
    assert worker.stats.succeeded == 1


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of one thread")
def test_an_interrupt_that_does_not_wake_the_main_thread_is_noticed(queue: FakeQueue) -> None:
    """Another thread gets it; one that comes just before the main thread begins to wait is as quiet."""
    queue.enqueue(1)
    gate = Gate()

    def interfere() -> None:
        queue.wait_for(lambda: sys._current_frames()[main].f_code is Mailbox.get.__code__)
        kill(signal.SIGINT)
        gate.through.set()

    main = threading.get_ident()
    thread = in_background(interfere)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with pytest.raises(KeyboardInterrupt):
            Worker(queue, gate, handle_signals=False).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    thread.join()
    assert queue.states() == {"done": 1}


def test_too_few_threads_end_the_run(queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.enqueue(1)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "nobroker-worker-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    worker = Worker(queue, lambda job: None, concurrency=3)
    with pytest.raises(RuntimeError, match="new thread"):
        worker.run()
    assert queue.states()["leased"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_of_a_handler_dies_of_a_signal_and_records_nothing(queue: FakeQueue) -> None:
    queue.enqueue("dies")
    queue.enqueue("returns")
    codes: list[int] = []

    def handler(job: Job) -> Any:
        ready, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            if job.payload == "returns":
                return "from the child"
            os.write(tell, b"x")
            threading.Event().wait(10)
            os._exit(99)
        if job.payload == "dies":
            os.read(ready, 1)
            os.kill(pid, signal.SIGTERM)
        os.close(ready)
        os.close(tell)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return "from the parent"

    stats = Worker(queue, handler, idle_timeout=0.0).run()
    assert codes == [-signal.SIGTERM, 0]
    assert stats.succeeded == 2
    assert [job.result for job in queue.jobs.values()] == ["from the parent"] * 2


def test_to_let_go_is_to_wait_for_nobody(queue: FakeQueue) -> None:
    queue.enqueue("hangs")
    queue.enqueue("waits")
    begun, go_on = threading.Event(), threading.Event()

    def handler(job: Job) -> None:
        begun.set()
        go_on.wait(30)

    worker = Worker(queue, handler, batch=2)
    ended = threading.Thread(target=worker.run)
    ended.start()
    assert begun.wait(30)
    worker.let_go()
    ended.join(30)
    assert not ended.is_alive()
    assert (worker.ended_by, go_on.is_set()) == ("stop", False)
    assert queue.states() == {"ready": 2}
    go_on.set()


def test_to_let_go_before_it_runs_is_to_stop(queue: FakeQueue) -> None:
    queue.enqueue("a job")
    worker = Worker(queue, lambda job: None)
    worker.let_go()
    assert worker.run().leased == 0
