"""C34: failed jobs do not come back at one instant, and equals keep their order."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest

from nobroker import BackoffPolicy, Queue
from nobroker.clock import ManualClock

from .words import sub


def test_the_delays_are_spread(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(tmp_path, fsync=False, clock=clock) as queue:
        queue.enqueue_many(range(200))
        waits = [job.available_at - clock.wall_us() / 1e6 for job in queue.nack_many(queue.lease(200))]
    assert statistics.stdev(waits) > 0.05
    assert max(Counter(int(wait * 100) for wait in waits).values()) < 40
    assert all(0.5 <= wait <= 1.0 for wait in waits)


@pytest.mark.parametrize(
    "policy",
    [BackoffPolicy(), BackoffPolicy(jitter=0), BackoffPolicy(jitter=1), BackoffPolicy(0.1, 10.0, 60)],
)
def test_bounds_for_every_attempt(policy: BackoffPolicy) -> None:
    for attempt in range(1, 2001):
        whole = (
            policy.max_delay
            if attempt > 1000
            else min(policy.base * policy.factor ** min(attempt - 1, 300), policy.max_delay)
        )
        assert whole * (1 - policy.jitter) <= policy.delay_for(attempt) <= whole


@pytest.mark.processes
def test_processes_have_sequences_of_their_own() -> None:
    code = (
        "import json, os; from nobroker import BackoffPolicy\n"
        "p = BackoffPolicy(); p.delay_for(1); pipes = []\n"
        "for _ in range(4):\n"
        "    r, w = os.pipe(); pid = os.fork()\n"
        "    if not pid:\n"
        "        os.write(w, json.dumps([p.delay_for(n) for n in range(1, 9)]).encode()); os._exit(0)\n"
        "    os.waitpid(pid, 0); pipes.append(json.loads(os.read(r, 4096)))\n"
        "print(json.dumps(pipes))"
    )
    ran = sub(code)
    assert ran.code == 0, ran
    assert len({tuple(delays) for delays in json.loads(ran.out)}) == 4


def test_equals_come_in_a_stable_order_and_are_never_compared(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(tmp_path, fsync=False, clock=clock) as queue:
        queue.enqueue_many([{"n": n} for n in range(50)])
        jobs = queue.lease(20)
        queue.nack_many(jobs[5:10], delay=0)
        queue.nack_many(jobs[:5], delay=0)
        queue.nack_many(jobs[10:15], dead=True)
        queue.requeue_dead()
        queue.release_many(jobs[15:])
        order = []
        while (job := queue.lease_one()) is not None:
            order.append(job.payload["n"])
        assert sorted(order) == list(range(50))
        # All have the same time, so the order is that of insertion.
        assert order == list(range(50))


def test_a_stream_of_high_priority_starves_the_low_as_documented(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False) as queue:
        queue.enqueue("low")
        for n in range(100):
            queue.enqueue(n, priority=1)
            queue.enqueue(n, priority=1)
            job = queue.lease_one()
            assert job is not None
            assert job.priority == 1
            queue.ack(job)
        assert queue.get(queue.list_jobs("ready")[-1].id).payload == "low"
