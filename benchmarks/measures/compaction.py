"""Row `compaction`: what it costs, and whom it holds up."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import work
from benchmarks.figures import Section, count, ratios
from benchmarks.running import Bench, settle

HOW = (
    "Queues with so many finished jobs and then so many waiting ones, made once, without compaction on the "
    "way; compact() is timed in a new process, on a copy. Then a process enqueues one by one, durable, and "
    "notes its longest call, while another one compacts; and the same while nothing compacts, for what the "
    "disk alone does."
)


def measure(bench: Bench) -> Section:
    section = Section("compaction", "Compaction", HOW)
    live, history = bench.pick((1000, 5000), (50_000, 200_000))
    cases = {
        "little": (live, history),
        "much history": (live, history * 10),
        "much live": (live * 10, history),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    longest: dict[str, list[float]] = {"compacting": [], "quiet": []}
    with bench.directory() as filled:
        for name, (waiting, finished) in cases.items():
            fill(bench, filled / name, waiting, finished)
        for _ in bench.rounds():
            for name in cases:
                with copied(bench, filled / name) as directory:
                    found[name].append(float(bench.task("measures.compaction:compact", directory=directory)))
            for name, values in longest.items():
                with copied(bench, filled / "much live") as directory:
                    values.append(held_up(bench, str(directory), name == "compacting"))
    for name, (waiting, finished) in cases.items():
        section.figure(
            f"compact with {count(waiting)} waiting, {count(finished)} finished",
            [s * 1000 for s in found[name]],
            "ms",
        )
    section.figure(
        "compact with ten times the live jobs: of before", ratios(found["much live"], found["little"]), "x"
    )
    section.figure("longest durable enqueue while nothing compacts", longest["quiet"], "ms")
    section.at_most(
        2,
        "compact after ten times the history: of before",
        ratios(found["much history"], found["little"]),
        "x",
    )
    section.at_most(50, "longest durable enqueue while another process compacts", longest["compacting"], "ms")
    return section


@contextmanager
def copied(bench: Bench, made: Path) -> Iterator[Path]:
    """A copy of a directory, on the disk."""
    with bench.directory() as directory:
        copy = directory / "copy"
        shutil.copytree(made, copy)
        settle()
        yield copy


def fill(bench: Bench, directory: Any, waiting: int, finished: int) -> None:
    bench.task(
        "measures.filling:fill", directory=directory, waiting=waiting, finished=finished, auto_compact=False
    )


def held_up(bench: Bench, directory: str, compacting: bool) -> float:
    """Milliseconds of the longest call of a producer."""
    members: list[tuple[str, str, dict[str, Any]]] = [
        ("measures.compaction:produce", "this", {"directory": directory, "seconds": bench.pick(0.8, 2.5)})
    ]
    if compacting:
        members.append(("measures.compaction:compact", "this", {"directory": directory, "together": True}))
    return float(bench.together(members)[0])


def produce(directory: str, seconds: float) -> float:
    from benchmarks.task import wait_for_go
    from nobroker import Queue

    longest = 0.0
    with Queue(directory, auto_compact=False) as queue:
        queue.enqueue(work.payload(0))
        wait_for_go()
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            queue.enqueue(work.payload(1))
            longest = max(longest, time.perf_counter() - now)
    return longest * 1000


def compact(directory: str, together: bool = False) -> float:
    """Seconds."""
    from benchmarks.task import wait_for_go
    from nobroker import Queue

    with Queue(directory, auto_compact=False) as queue:
        queue.stats()
        if together:
            wait_for_go()
            time.sleep(0.1)
        began = time.perf_counter()
        queue.compact()
        return time.perf_counter() - began
