"""Queues to measure with: so many jobs waiting, so many done before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks import work

BATCH = 10_000


def fill(
    directory: str, waiting: int, finished: int = 0, killed: bool = False, **options: Any
) -> dict[str, int]:
    """Enqueue and finish `finished` jobs, then enqueue `waiting`, not synced.

    Args:
        killed: end without closing the queue, as a killed process does.
        options: of the queue.
    """
    import nobroker

    queue = nobroker.Queue(directory, fsync=False, **options)
    for batch in work.batches(finished, BATCH):
        queue.enqueue_many(batch)
        finish(queue)
    for batch in work.batches(waiting, BATCH):
        queue.enqueue_many(batch)
    if killed:
        from benchmarks.task import answer

        answer({"result": {}})
        os._exit(0)
    queue.close()
    return {}


def finish(queue: Any) -> None:
    """Lease and acknowledge all that waits."""
    while jobs := queue.lease(BATCH):
        if hasattr(queue, "ack_many"):
            queue.ack_many(jobs)
        else:
            for job in jobs:
                queue.ack(job)


def packed_bytes(jobs: int) -> int:
    """Size of the payloads of so many jobs, each packed alone."""
    import msgpack

    return sum(len(msgpack.packb(job)) for batch in work.batches(jobs) for job in batch)


def bytes_on_disk(directory: Path) -> int:
    """Blocks of all files, preallocated ones included."""
    return sum(p.stat().st_blocks * 512 for p in directory.rglob("*") if p.is_file())


def anonymous_kib() -> float:
    """Private memory of this process that is not a mapped file, in KiB.

    The kernel counts pages of a mapped file as private too while nobody else maps them; they are its cache.
    """
    return rollup("Anonymous")


def private_kib() -> float:
    """All private memory of this process, mapped files included, in KiB."""
    return rollup("Private_Clean") + rollup("Private_Dirty")


def rollup(name: str) -> float:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith(name + ":"):
            return float(line.split()[1])
    raise LookupError(f"the kernel does not say {name}")
