"""Row `idle`: what it costs to find nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import work
from benchmarks.figures import Section
from benchmarks.measures import syncs
from benchmarks.running import Bench

HOW = (
    "Many leases of an open empty queue in a loop, timed; the same under strace, which counts the system "
    "calls between two marks; and a lease at once after another process said that its enqueue returned. "
    "An idle Worker: the processor time of its process over some seconds."
)
MARK = "benchmark-mark"


def measure(bench: Bench) -> Section:
    section = Section("idle", "Finding nothing", HOW)
    cost: list[float] = []
    seen: list[float] = []
    busy: list[float] = []
    calls: list[float] = []
    for _ in bench.rounds():
        with bench.directory() as directory:
            cost.append(bench.task("measures.idle:empty_lease", directory=directory / "a", calls=100_000))
            seen.append(
                bench.task("measures.idle:sees", directory=directory / "b", times=bench.pick(20, 100))
            )
            busy.append(
                bench.task(
                    "measures.idle:idle_worker", directory=directory / "c", seconds=bench.pick(1.0, 4.0)
                )
            )
            if syncs.available():
                calls.append(system_calls(bench, directory))
    section.at_most(3, "an empty lease on an open queue", cost, "us")
    if calls:
        section.at_most(0, "system calls of 10,000 empty leases", calls, "")
    else:
        section.not_judged["system calls of 10,000 empty leases"] = "no strace here"
    section.at_least(100, "leases that see what another process enqueued just before", seen, "%")
    section.at_most(0.5, "an idle worker", busy, "% of a core")
    return section


def system_calls(bench: Bench, directory: Path) -> float:
    log = directory / "strace"
    wrap = ("strace", "-f", "-qq", "-o", log, "-e", "signal=none")
    bench.task("measures.idle:marked", wrap=wrap, directory=directory / "d", calls=10_000)
    lines = log.read_text().splitlines()
    first, last = (number for number, line in enumerate(lines) if MARK in line)
    return float(last - first - 1)


def empty_lease(directory: str, calls: int) -> float:
    """Microseconds of one."""
    from nobroker import Queue

    with Queue(directory) as queue:
        lease = queue.lease
        lease()
        began = time.perf_counter()
        for _ in range(calls):
            lease()
        return (time.perf_counter() - began) / calls * 1e6


def marked(directory: str, calls: int) -> None:
    """Empty leases between two calls that strace shows."""
    from nobroker import Queue

    with Queue(directory) as queue:
        lease = queue.lease
        lease()
        numbers = range(calls)
        Path(MARK).exists()
        for _ in numbers:
            lease()
        Path(MARK).exists()


def sees(directory: str, times: int) -> float:
    """Per cent of the jobs of another process that the next lease saw."""
    from nobroker import Queue

    script = Path(sys.modules["benchmarks.task"].__file__ or "")
    command = [
        sys.executable,
        str(script),
        f"{__name__}:enqueue_when_told",
        json.dumps({"directory": directory}),
    ]
    found = 0
    with Queue(directory) as queue:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            if other.stdin is None or other.stdout is None:
                raise RuntimeError("the other process has no pipes")
            other.stdout.readline()
            for _ in range(times):
                queue.lease()
                other.stdin.write("enqueue\n")
                other.stdin.flush()
                other.stdout.readline()
                job = queue.lease_one()
                if job is not None:
                    found += 1
                    queue.ack(job)
            other.stdin.close()
    return 100 * found / times


def enqueue_when_told(directory: str) -> None:
    from benchmarks.task import answer
    from nobroker import Queue

    with Queue(directory) as queue:
        answer({"ready": True})
        while sys.stdin.readline():
            queue.enqueue(work.payload(1))
            answer({"enqueued": True})


def idle_worker(directory: str, seconds: float) -> float:
    """Per cent of a core."""
    from nobroker import Queue, Worker

    used: list[float] = []

    def watch(worker: Any) -> None:
        time.sleep(0.5)
        began, before = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        used.append((time.process_time() - before) / (time.perf_counter() - began))
        worker.stop()

    with Queue(directory) as queue:
        worker = Worker(queue, lambda job: None, handle_signals=False)
        threading.Thread(target=watch, args=(worker,)).start()
        worker.run()
    return used[0] * 100
