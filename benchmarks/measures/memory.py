"""Row `memory`: private memory for each waiting job, whatever it is like; own ids and delays at speed."""

from __future__ import annotations

import gc
import itertools
import random
from typing import Any

from benchmarks import work
from benchmarks.figures import Section
from benchmarks.measures import filling
from benchmarks.running import Bench

HOW = (
    "A new process opens an empty queue, enqueues, and looks how much its anonymous memory has grown "
    "(smaps_rollup), by job; another process opens the full queue, and does the same. The larger of the "
    "two counts. Mapped pages of the segments are the kernel's cache, and not in it. The rate of own ids "
    "and delays is that of the durable calls of 1,000 jobs; making the ids, delays and payloads is not in"
    " it."
)
# How jobs are made: (limit in bytes, batched, what differs between them).
MIXES = {
    "one priority, batched": (64, True, ""),
    "one priority, one by one": (64, False, ""),
    "random priorities of 2,001, one by one": (64, False, "priority"),
    "batches of random priorities": (64, True, "priority"),
    "own ids, batched": (150, True, "id"),
    "distinct delays, batched": (150, True, "delay"),
}


def measure(bench: Bench) -> Section:
    section = Section("memory", "Memory for each waiting job", HOW)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in MIXES}
    for _ in bench.rounds():
        for name, (_, batched, differs) in MIXES.items():
            jobs = bench.pick(10_000, 1_000_000 if batched else 50_000)
            found[name].append(one_run(bench, jobs, batched, differs))
    for name, (limit, _, differs) in MIXES.items():
        section.at_most(
            limit,
            f"memory for each waiting job: {name}",
            [larger(r) for r in found[name]],
            "B",
        )
        section.figure(f"{name}: in the process that enqueued", [r["grown"] for r in found[name]], "B/job")
        section.figure(f"{name}: in a process that opens it", [r["opened"] for r in found[name]], "B/job")
        if differs in ("id", "delay"):
            section.at_least(
                300_000, f"enqueue_many of 1,000: {name}", [r["rate"] for r in found[name]], "jobs/s"
            )
    if not bench.environment.why_missing("old"):
        jobs = bench.pick(3000, 20_000)
        section.figure(
            "nobroker 0.1.2: one priority, batched",
            [larger(one_run(bench, jobs, True, "", "old")) for _ in bench.rounds()],
            "B/job",
        )
    return section


def larger(run: dict[str, float]) -> float:
    return max(run["grown"], run["opened"])


def one_run(bench: Bench, jobs: int, batched: bool, differs: str, who: str = "this") -> dict[str, float]:
    with bench.directory() as directory:
        found: dict[str, float] = bench.task(
            "measures.memory:grow", who=who, directory=directory, jobs=jobs, batched=batched, differs=differs
        )
        found["opened"] = bench.task("measures.memory:opened", who=who, directory=directory) / jobs
    return found


def grow(directory: str, jobs: int, batched: bool, differs: str) -> dict[str, float]:
    """Bytes for each job, and jobs per second of the calls alone."""
    import nobroker

    chance = random.Random(1)
    watch = work.Stopwatch()
    # Singles are many: they are not synced, which changes nothing of what is kept of them.
    with nobroker.Queue(directory, fsync=batched) as queue:
        queue.enqueue_many(work.payloads(1))
        if job := queue.lease_one():
            queue.ack(job)
        gc.collect()
        before = filling.anonymous_kib()
        for batch in work.batches(jobs):
            options = differences(differs, batch, chance, batched)
            if batched:
                watch.run(lambda batch=batch, options=options: len(queue.enqueue_many(batch, **options)))  # type: ignore[misc]
            else:
                one_by_one(queue, batch, options)
        gc.collect()
        grown = filling.anonymous_kib() - before
    return {"grown": grown * 1024 / jobs, "rate": watch.rate if batched else 0.0}


def one_by_one(queue: Any, batch: list[work.Payload], options: dict[str, Any]) -> None:
    for payload, priority in zip(batch, options.get("priority") or itertools.repeat(0), strict=False):
        queue.enqueue(payload, priority=priority)


def differences(
    differs: str, batch: list[work.Payload], chance: random.Random, batched: bool
) -> dict[str, Any]:
    if differs == "id":
        return {"job_ids": [f"order-2031-{job['n']:08d}" for job in batch]}
    if differs == "delay":
        return {"delays": [3600 + chance.random() * 86_400 for _ in batch]}
    if differs == "priority":
        number = chance.randint(-1000, 1000)
        return {"priority": number if batched else [chance.randint(-1000, 1000) for _ in batch]}
    return {}


def opened(directory: str) -> float:
    """Bytes that a process has more when it has opened the queue."""
    import nobroker

    with nobroker.Queue(f"{directory}/warm") as queue:
        queue.enqueue({})
    gc.collect()
    before = filling.anonymous_kib()
    with nobroker.Queue(directory) as queue:
        queue.stats()
        gc.collect()
        return (filling.anonymous_kib() - before) * 1024
