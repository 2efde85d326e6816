"""Row `latency`: from the beginning of an enqueue in one process to the start of its handler in another."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from benchmarks.figures import Plot, Point, Section
from benchmarks.peers import OLD, THIS
from benchmarks.running import Bench, settle

HOW = (
    "A Worker waits on an empty queue; another process enqueues a job, durable, every 20 ms or so. The "
    "monotonic clock, one for all processes, is read before enqueue is called and when the handler "
    "starts: the sync is part of it."
)
SHARES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)


def measure(bench: Bench) -> Section:
    section = Section("latency", "From enqueue to the handler's start", HOW)
    who = {"this": THIS, "old": OLD}
    if why := bench.environment.why_missing("old"):
        del who["old"]
        section.notes.append(f"missing: {OLD}: {why}")
    runs: dict[str, list[list[float]]] = {name: [] for name in who.values()}
    for _ in bench.rounds():
        for key, name in who.items():
            settle()
            runs[name].append(one_run(bench, key, bench.pick(40, 300)))
    for name, found in runs.items():
        for share in (0.5, 0.99):
            section.figure(f"{name}: p{share * 100:g}", [share_of(r, share) for r in found], "ms")
    section.at_most(1, "enqueue -> handler starts, p50", [share_of(r, 0.5) for r in runs[THIS]], "ms")
    section.at_most(5, "enqueue -> handler starts, p99", [share_of(r, 0.99) for r in runs[THIS]], "ms")
    section.plots.append(
        Plot(
            "latency.svg",
            "From enqueue to the handler's start: share of jobs started within a time",
            "milliseconds",
            "% of jobs",
            {name: curve(found) for name, found in runs.items()},
            log_x=True,
        )
    )
    return section


def share_of(latencies: list[float], share: float) -> float:
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def curve(runs: list[list[float]]) -> list[Point]:
    """Time on the horizontal axis, so that a point's height is its share."""
    return [
        Point(statistics.median(share_of(run, share) for run in runs), share * 100, share * 100, share * 100)
        for share in SHARES
    ]


def one_run(bench: Bench, who: str, jobs: int) -> list[float]:
    """Milliseconds, one for each job."""
    with bench.directory() as directory:
        args: dict[str, Any] = {"directory": str(directory), "jobs": jobs}
        started, _ = bench.together(
            [("measures.latency:consume", who, args), ("measures.latency:produce", who, args)]
        )
    return [float(ms) for ms in started]


def consume(directory: str, jobs: int) -> list[float]:
    import nobroker
    from benchmarks.task import wait_for_go

    latencies: list[float] = []

    def handle(job: Any) -> None:
        latencies.append((time.monotonic() - job.payload["sent"]) * 1000)

    with nobroker.Queue(directory) as queue:
        worker = nobroker.Worker(queue, handle, max_jobs=jobs, handle_signals=False)
        wait_for_go()
        worker.run()
    return latencies


def produce(directory: str, jobs: int) -> None:
    import nobroker
    from benchmarks.task import wait_for_go

    pause = random.Random(1)
    with nobroker.Queue(directory) as queue:
        wait_for_go()
        time.sleep(0.5)
        for _ in range(jobs):
            time.sleep(pause.uniform(0.01, 0.03))
            queue.enqueue({"sent": time.monotonic(), "template": "welcome"})
