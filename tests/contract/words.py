"""Small words for tests of queues."""

from __future__ import annotations

from nobroker import Job, Queue


def take(queue: Queue) -> Job:
    """Lease the one job that must be there."""
    job = queue.lease_one()
    assert job is not None
    return job


def drain(queue: Queue) -> list[object]:
    """Lease and ack until empty; the payloads in the order of delivery."""
    found: list[object] = []
    while jobs := queue.lease(7):
        found += [job.payload for job in jobs]
        queue.ack_many(jobs)
    return found


def counts(
    queue: Queue, lane: str | None = None, *, seqs: range | None = None
) -> tuple[int, int, int, int, int]:
    """(ready, delayed, leased, done, dead)"""
    stats = queue.stats(lane=lane, seqs=seqs)
    assert stats.total == stats.ready + stats.delayed + stats.leased + stats.done + stats.dead
    return (stats.ready, stats.delayed, stats.leased, stats.done, stats.dead)
