"""Verdicts of a worker's handler, on a real queue."""

from __future__ import annotations

from typing import Any

from nobroker import Dead, Failed, Job, Queue, RetryLater, Worker, WorkerStats
from nobroker.clock import ManualClock

from .words import counts


def work(queue: Queue, handler: Any) -> WorkerStats:
    return Worker(queue, handler, handle_signals=False, idle_timeout=0).run()


def test_each_is_the_verb_it_stands_for(queue: Queue, clock: ManualClock) -> None:
    verdicts = {
        "later": RetryLater(60, state={"page": 2}),
        "dead": Dead("no use", state=1),
        "failed": Failed(ValueError("bad"), delay=5, dead=False, state=[2]),
        "by policy": Failed("as usual"),
    }

    def handler(job: Job) -> None:
        raise verdicts[job.payload]

    jobs = {name: queue.enqueue(name, max_attempts=1 if name == "failed" else 9) for name in verdicts}
    assert work(queue, handler) == WorkerStats(leased=4, failed=3, dead=1)
    now = clock.wall_us() / 1e6
    later, dead, failed, usual = (queue.get(job.id) for job in jobs.values())
    assert (later.state, later.attempts, later.available_at) == ("ready", 0, now + 60)
    assert (later.last_error, later.job_state) == (None, {"page": 2})
    assert (dead.state, dead.last_error, dead.job_state) == ("dead", "no use", 1)
    assert (failed.state, failed.available_at, failed.job_state) == ("ready", now + 5, [2])
    assert (failed.last_error or "").startswith("ValueError: bad")
    assert (usual.state, usual.available_at, usual.last_error) == ("ready", now + 10, "as usual")


def test_a_retry_later_of_a_cancelled_job_ends_it(queue: Queue) -> None:
    def handler(job: Job) -> None:
        queue.cancel(job.id)
        raise RetryLater(0)

    made = queue.enqueue(1)
    assert work(queue, handler) == WorkerStats(leased=1)
    assert queue.get(made.id).last_error == "cancelled"
    assert counts(queue) == (0, 0, 0, 1, 0)
