"""Row `processes`: what more producing processes bring, and how many syncs they share."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import work
from benchmarks.figures import Plot, Section, point, ratios
from benchmarks.running import Bench, settle

HOW = (
    "N processes enqueue one by one, durable, into one queue, all beginning together; the sum of their "
    "rates. Slowed: each sync sleeps for 1 ms first, as on a slower disk. Syncs are counted in all of the"
    " processes."
)
SLOW_S = 0.001


def measure(bench: Bench) -> Section:
    section = Section("processes", "Producing processes", HOW)
    numbers = bench.pick((1, 8), (1, 2, 4, 8))
    rates: dict[float, dict[int, list[float]]] = {s: {n: [] for n in numbers} for s in (0.0, SLOW_S)}
    per_job: list[float] = []
    for _ in bench.rounds():
        for slow in rates:
            for number in numbers:
                settle(0.1)
                found = one_run(bench, number, slow)
                rates[slow][number].append(sum(rate for rate, _, _ in found))
                if number == 8 and not slow:
                    per_job.append(sum(s for _, s, _ in found) / sum(jobs for _, _, jobs in found))
    names = {0.0: "this disk", SLOW_S: "each sync 1 ms slower"}
    for slow, by_number in rates.items():
        for number, values in by_number.items():
            section.figure(f"{number} producing, {names[slow]}", values, "jobs/s")
    for limit, slow in ((1.2, 0.0), (2, SLOW_S)):
        section.at_least(
            limit,
            f"8 producing processes, {names[slow]}: of one",
            ratios(rates[slow][8], rates[slow][1]),
            "x",
        )
    section.at_most(0.65, "syncs for each durable enqueue of 8 processes", per_job, "")
    section.plots.append(
        Plot(
            "throughput-by-processes.svg",
            "Durable single enqueues by number of producing processes",
            "processes",
            "jobs per second",
            {names[s]: [point(n, v) for n, v in by_number.items()] for s, by_number in rates.items()},
        )
    )
    return section


def one_run(bench: Bench, number: int, slow: float) -> list[Any]:
    with bench.directory() as directory:
        args = {"directory": str(directory), "seconds": bench.pick(0.3, 1.0), "slow": slow}
        return bench.together([("measures.processes:produce", "this", args)] * number)


def produce(directory: str, seconds: float, slow: float) -> tuple[float, int, int]:
    """Jobs per second, syncs, and jobs."""
    syncs = work.slow_and_count_syncs(slow)
    from benchmarks.task import wait_for_go
    from nobroker import Queue

    with Queue(directory) as queue:
        queue.enqueue(work.payload(0))
        wait_for_go()
        began, before, jobs = time.perf_counter(), syncs[0], 0
        while time.perf_counter() - began < seconds:
            queue.enqueue(work.payload(jobs))
            jobs += 1
        return jobs / (time.perf_counter() - began), syncs[0] - before, jobs
