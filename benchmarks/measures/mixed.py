"""Row `mixed`: two producers and two workers, in four processes, durable single operations."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks import work
from benchmarks.figures import Section, ratios
from benchmarks.peers import OLD, THIS
from benchmarks.running import Bench, settle

HOW = (
    "Two processes enqueue one by one, two run a Worker with a handler that does nothing, all durable, on"
    " one queue with some jobs waiting at the start. The sum is of jobs enqueued and jobs acknowledged "
    "per second."
)

BAR = "2 producers + 2 workers, durable singles: of nobroker 0.1.2"


def measure(bench: Bench) -> Section:
    section = Section("mixed", "Two producers and two workers", HOW)
    sums: dict[str, list[float]] = {}
    parts: dict[str, list[float]] = {}
    who = {"this": THIS, "old": OLD}
    if why := bench.environment.why_missing("old"):
        del who["old"]
        section.not_judged[BAR] = f"{OLD} is missing: {why}"
    for _ in bench.rounds():
        for key, name in who.items():
            settle()
            rates = one_run(bench, key)
            sums.setdefault(name, []).append(sum(rates))
            parts.setdefault(f"{name}: enqueued", []).append(sum(rates[:2]))
            parts.setdefault(f"{name}: worked off", []).append(sum(rates[2:]))
    for name, values in sums.items():
        section.figure(f"{name}: sum", values, "jobs/s")
    for name, values in parts.items():
        section.figure(name, values, "jobs/s")
    if OLD in sums:
        section.at_least(
            3,
            BAR,
            ratios(sums[THIS], sums[OLD]),
            "x",
        )
    return section


def one_run(bench: Bench, who: str) -> list[float]:
    with bench.directory() as directory:
        bench.task("measures.mixed:fill", who=who, directory=directory)
        args = {"directory": str(directory), "seconds": bench.pick(0.7, 3.0)}
        members: list[tuple[str, str, dict[str, Any]]] = [("measures.mixed:produce", who, args)] * 2
        members += [("measures.mixed:consume", who, args)] * 2
        return [float(rate) for rate in bench.together(members)]


def fill(directory: str) -> None:
    import nobroker

    with nobroker.Queue(directory) as queue:
        queue.enqueue_many(work.payloads(work.BATCH))


def produce(directory: str, seconds: float) -> float:
    """Jobs enqueued per second."""
    import nobroker
    from benchmarks.task import wait_for_go

    with nobroker.Queue(directory) as queue:
        wait_for_go()
        began = time.perf_counter()
        count = 0
        while time.perf_counter() - began < seconds:
            queue.enqueue(work.payload(count))
            count += 1
        return count / (time.perf_counter() - began)


def consume(directory: str, seconds: float) -> float:
    """Jobs acknowledged per second."""
    import nobroker
    from benchmarks.task import wait_for_go

    with nobroker.Queue(directory) as queue:
        worker = nobroker.Worker(queue, lambda job: None, handle_signals=False)
        timer = threading.Timer(seconds, worker.stop)
        wait_for_go()
        began = time.perf_counter()
        timer.start()
        stats = worker.run()
        return float(stats.succeeded / (time.perf_counter() - began))
