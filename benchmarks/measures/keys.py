"""Row `keys`: what limits cost those that they hold back, and those that they do not."""

from __future__ import annotations

from typing import Any

from benchmarks import work
from benchmarks.figures import Section, count, ratios
from benchmarks.running import Bench, settle

HOW = (
    "Single leases with their acks, not synced, in turns within one process: of a queue with so many jobs of "
    "one full key ahead of the runnable ones, beside one with none; and of jobs with a key each, beside the "
    "same jobs without. A ratio is that of their sums in one run."
)


def measure(bench: Bench) -> Section:
    section = Section("keys", "Limits by key", HOW)
    jobs: int = bench.pick(5000, 100_000)
    found: dict[str, list[float]] = {}
    for _ in bench.rounds():
        settle()
        with bench.directory() as directory:
            for function in ("blocked", "keyed"):
                rates = bench.task(f"measures.keys:{function}", directory=directory / function, jobs=jobs)
                for name, rate in rates.items():
                    found.setdefault(name, []).append(rate)
    for name, values in found.items():
        section.figure(name, values, "jobs/s")
    section.at_most(
        1.5,
        f"lease_one + ack behind {count(jobs)} blocked jobs: cost, of that behind none",
        ratios(found["behind none"], found["behind blocked jobs"]),
        "x",
    )
    section.at_most(
        2,
        f"lease_one + ack of {count(jobs)} jobs with a key each: cost, of that without keys",
        ratios(found["without keys"], found["with a key each"]),
        "x",
    )
    return section


def blocked(directory: str, jobs: int) -> dict[str, float]:
    """Leases behind jobs that wait for one slot, and behind none."""
    from nobroker import Limit, Queue

    pieces, size = 20, 100
    free, behind = work.Stopwatch(), work.Stopwatch()
    with Queue(f"{directory}-free", fsync=False) as one, Queue(f"{directory}-full", fsync=False) as other:
        for payloads in work.batches(jobs):
            other.enqueue_many(payloads, limits=Limit("key", 1))
        other.lease_one(visibility_timeout=86_400)
        for queue in (one, other):
            queue.enqueue_many(work.payloads((pieces + 1) * size))
            take(queue, size)
        for _ in range(pieces):
            free.run(lambda: take(one, size))
            behind.run(lambda: take(other, size))
    return {"behind none": free.rate, "behind blocked jobs": behind.rate}


def keyed(directory: str, jobs: int) -> dict[str, float]:
    """Leases of jobs that have a record each, with a key each and without."""
    from nobroker import Limit, NewJob, Queue

    size = 100
    plain, keys = work.Stopwatch(), work.Stopwatch()
    with Queue(f"{directory}-plain", fsync=False) as one, Queue(f"{directory}-keys", fsync=False) as other:
        for payloads in work.batches(jobs):
            for payload in payloads:
                one.enqueue(payload)
            other.enqueue_all(NewJob(payload, limits=Limit(key_of(payload), 1)) for payload in payloads)
        for _ in range(min(jobs // size, 100)):
            plain.run(lambda: take(one, size))
            keys.run(lambda: take(other, size))
    return {"without keys": plain.rate, "with a key each": keys.rate}


def key_of(payload: work.Payload) -> str:
    return f"key {payload['n']}"


def take(queue: Any, number: int) -> int:
    for _ in range(number):
        queue.ack(queue.lease_one())
    return number
