"""C18: the wall clock is stepped; waits and leases follow clocks that nobody can set."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nobroker import NotLeasedError, Queue, Worker
from nobroker.clock import ManualClock


@pytest.mark.parametrize("step", [-3600.0, 3600.0, -5 * 86400.0, 86400.0, 10.0**6])
@pytest.mark.parametrize("reopened", [False, True])
def test_ready_stays_ready_and_held_comes_back(tmp_path: Path, step: float, reopened: bool) -> None:
    clock = ManualClock()
    queue = Queue(tmp_path, fsync=False, clock=clock)
    queue.enqueue_many(["held", "ready"])
    held = queue.lease(1, visibility_timeout=5)[0]
    clock.step_wall(step)
    if reopened:
        queue.close()
        queue = Queue(tmp_path, fsync=False, clock=clock)
    stats = queue.stats()
    assert (stats.ready, stats.leased) == (1, 1)
    assert [job.payload for job in queue.lease(5)] == ["ready"]
    queue.extend(held, 5)
    clock.advance(5)
    (again,) = queue.lease(5)
    assert (again.payload, again.attempts) == ("held", 2)
    with pytest.raises(NotLeasedError):
        queue.ack(held)
    queue.close()


@pytest.mark.parametrize("step", [-3600.0, 10.0**6])
def test_a_new_boot_after_a_step_never_runs_queue_time_back(tmp_path: Path, step: float) -> None:
    clock = ManualClock()
    with Queue(tmp_path, fsync=False, clock=clock) as queue:
        queue.enqueue("ready")
        queue.enqueue("delayed", delay=10)
    clock.reboot(0)
    clock.step_wall(step)
    with Queue(tmp_path, fsync=False, clock=clock) as queue:
        assert queue.lease(1)[0].payload == "ready"
        clock.advance(10)
        assert [job.payload for job in queue.lease(1)] == ["delayed"]


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_workers_waits_follow_the_monotonic_clock(tmp_path: Path, step: float) -> None:
    clock = ManualClock()
    with Queue(tmp_path, fsync=False, clock=clock) as queue:
        queue.enqueue("x")
        ran: list[Any] = []

        def handler(job: Any) -> None:
            ran.append(job.payload)
            clock.step_wall(step)

        start = time.monotonic()
        Worker(queue, handler, idle_timeout=0.3, poll_interval=0.02, handle_signals=False).run()
        assert 0.25 < time.monotonic() - start < 5
        assert ran == ["x"]


def test_a_wait_for_a_job_follows_the_monotonic_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(tmp_path, fsync=False, clock=clock) as queue:
        queue.enqueue("dated", run_at=clock.wall_us() / 1e6 + 3600)
        timer = threading.Timer(0.05, clock.step_wall, [-7200])
        timer.start()
        start = time.monotonic()
        assert queue.lease(wait=0.3) == []
        assert time.monotonic() - start < 5
        timer.join()


def test_a_forward_step_does_not_turn_a_live_lease_into_a_double_run(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(tmp_path, fsync=False, clock=clock) as one, Queue(tmp_path, fsync=False, clock=clock) as two:
        one.enqueue("x")
        job = one.lease_one()
        assert job is not None
        for _ in range(10):
            clock.step_wall(10**6)
            assert two.lease(1) == []
            clock.advance(20)
            one.extend(job, 30)
        one.ack(job)
        assert two.get(job.id).attempts == 1
