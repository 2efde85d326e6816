"""Row `backlog`: costs, memory and opening by how much waits, up to 10 million jobs."""

from __future__ import annotations

import gc
import time
from typing import Any

from benchmarks import work
from benchmarks.figures import Plot, Section, count, point, ratios
from benchmarks.measures import filling
from benchmarks.running import Bench, settle

HOW = (
    "A queue with so many waiting jobs is filled once. Each run opens it in a new process, which measures"
    " its growth of anonymous memory, then single calls and batches, not synced, so that the disk does "
    "not hide what the queue does. Flat: the cost at the largest backlog by that at the smallest, in the "
    "same round."
)
VERBS = {
    "enqueue": "enqueue, fsync=False",
    "take": "lease_one + ack, fsync=False",
    "enqueue_many": "enqueue_many of 1,000, fsync=False",
    "take_many": "lease(1000) + ack_many, fsync=False",
}


def measure(bench: Bench) -> Section:
    section = Section("backlog", "By backlog", HOW)
    sizes: list[int] = bench.pick([1000, 10_000, 100_000], [1000, 10_000, 100_000, 1_000_000, 10_000_000])
    found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    with bench.directory() as directory:
        for size in sizes:
            bench.task("measures.filling:fill", directory=directory / str(size), waiting=size)
        largest = sizes[-1]
        disk = filling.bytes_on_disk(directory / str(largest))
        packed = bench.task("measures.filling:packed_bytes", jobs=largest)
        for _ in bench.rounds():
            for size in sizes:
                settle(0)
                found[size].append(bench.task("measures.backlog:one_run", directory=directory / str(size)))
    report(section, found)
    judge(section, found)
    section.at_most(
        1.3, f"{count(largest)} waiting: blocks of all files, of the packed payloads", [disk / packed], "x"
    )
    return section


def report(section: Section, found: dict[int, list[dict[str, float]]]) -> None:
    for size, runs in found.items():
        for verb, name in VERBS.items():
            section.figure(f"{count(size)} waiting: {name}", [r[verb] for r in runs], "us/job")
        section.figure(f"{count(size)} waiting: open", [r["open"] for r in runs], "s")
        section.figure(f"{count(size)} waiting: memory", [r["memory"] for r in runs], "MB")
    section.plots.append(
        Plot(
            "cost-by-backlog.svg",
            "Cost of a job by how many wait",
            "waiting jobs",
            "microseconds per job",
            {
                name.removesuffix(", fsync=False"): [
                    point(size, [r[verb] for r in runs]) for size, runs in found.items()
                ]
                for verb, name in VERBS.items()
            },
            log_x=True,
            log_y=True,
        )
    )
    section.plots.append(
        Plot(
            "memory-by-backlog.svg",
            "Memory of a process that opened the queue, by how many jobs wait",
            "waiting jobs",
            "MB, private, without mapped files",
            {"nobroker": [point(size, [r["memory"] for r in runs]) for size, runs in found.items()]},
            log_x=True,
            log_y=True,
        )
    )


def judge(section: Section, found: dict[int, list[dict[str, float]]]) -> None:
    smallest, largest = min(found), max(found)
    for verb, name in VERBS.items():
        section.at_most(
            1.5,
            f"{name}: cost at {count(largest)} waiting, of that at {count(smallest)}",
            ratios([r[verb] for r in found[largest]], [r[verb] for r in found[smallest]]),
            "x",
        )
    section.at_most(1, f"open, {count(largest)} waiting", [r["open"] for r in found[largest]], "s")
    section.at_most(200, f"memory, {count(largest)} waiting", [r["memory"] for r in found[largest]], "MB")


def one_run(directory: str) -> dict[str, float]:
    """Seconds of opening, MB of memory, microseconds for each job; leaves as many jobs as it found."""
    import nobroker

    with nobroker.Queue(f"{directory}/warm", fsync=False) as queue:
        exercise(queue)
    gc.collect()
    before = filling.anonymous_kib()
    began = time.perf_counter()
    queue = nobroker.Queue(directory, fsync=False)
    queue.stats()
    result = {"open": time.perf_counter() - began}
    gc.collect()
    result["memory"] = (filling.anonymous_kib() - before) * 1024 / 1e6
    exercise(queue)
    result |= exercise(queue)
    queue.close()
    return result


def exercise(queue: Any) -> dict[str, float]:
    singles, many = work.payloads(500), work.payloads(work.BATCH)
    watches = {verb: work.Stopwatch() for verb in VERBS}

    def enqueue() -> int:
        for payload in singles:
            queue.enqueue(payload)
        return len(singles)

    def take() -> int:
        for _ in singles:
            queue.ack(queue.lease_one())
        return len(singles)

    def take_many() -> int:
        jobs = queue.lease(work.BATCH)
        queue.ack_many(jobs)
        return len(jobs)

    for _ in range(4):
        watches["enqueue"].run(enqueue)
        watches["take"].run(take)
        watches["enqueue_many"].run(lambda: len(queue.enqueue_many(many)))
        watches["take_many"].run(take_many)
    return {verb: 1e6 / watch.rate for verb, watch in watches.items()}
