"""Row `opening`: how long opening takes, by what waits and by what has been."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import Plot, Point, Section, count, point
from benchmarks.peers import OLD, THIS
from benchmarks.running import Bench, settle

HOW = (
    "A process fills the queue and closes it, or is gone without closing it. Each opening is in a new "
    "process, on a copy of the directory; Queue(...) and queue.stats() are timed, imports are not. The "
    "files are in the page cache."
)

FEW = 100


def measure(bench: Bench) -> Section:
    section = Section("opening", "Opening", HOW)
    waiting = bench.pick(10_000, 1_000_000)
    most = bench.pick(40_000, 10_000_000)
    cases = {
        f"{count(waiting)} waiting, closed": (waiting, 0, False),
        f"{count(waiting)} waiting, killed": (waiting, 0, True),
        f"{count(waiting)} waiting after {count(most)} finished, closed": (waiting, most, False),
        f"{count(waiting)} waiting after {count(most)} finished, killed": (waiting, most, True),
    }
    with bench.directory() as directory:
        histories = [waiting // 100, waiting // 10, waiting, most]
        for finished in histories:
            filled(bench, "this", directory / str(finished), finished=finished)
        filled(bench, "this", directory / "0")
        for name, (jobs, finished, killed) in cases.items():
            took = opened(bench, "this", directory / str(finished), jobs, killed)
            section.at_most(0.5, f"open, {name}", took, "s")
        series = {THIS: by_history(bench, section, "this", directory, histories)}
    if why := bench.environment.why_missing("old"):
        section.notes.append(f"missing: {OLD}: {why}")
    else:
        with bench.directory() as directory:
            histories = bench.pick([100, 500], [1000, 10_000, 30_000])
            for finished in histories:
                filled(bench, "old", directory / str(finished), finished=finished)
            series[OLD] = by_history(bench, section, "old", directory, histories)
    section.plots.append(
        Plot(
            "opening-by-history.svg",
            "Opening a queue with few waiting jobs, by finished jobs before",
            "finished jobs",
            "seconds",
            series,
            log_x=True,
            log_y=True,
        )
    )
    return section


def by_history(
    bench: Bench, section: Section, who: str, directory: Path, histories: list[int]
) -> list[Point]:
    points = []
    for finished in histories:
        took = opened(bench, who, directory / str(finished), FEW, killed=False)
        name = THIS if who == "this" else OLD
        section.figure(f"{name}: open, {FEW} waiting after {count(finished)} finished", took, "s")
        points.append(point(finished, took))
    return points


def filled(bench: Bench, who: str, directory: Path, waiting: int = 0, **options: Any) -> None:
    bench.task("measures.filling:fill", who=who, directory=directory, waiting=waiting, **options)


def opened(bench: Bench, who: str, history: Path, waiting: int, killed: bool) -> list[float]:
    """Seconds, one for each run, of a copy of a queue with some history to which waiting jobs are added."""
    took = []
    with bench.directory() as directory:
        shutil.copytree(history, directory / "made")
        filled(bench, who, directory / "made", waiting, killed=killed)
        for number in bench.rounds():
            copy = directory / f"copy-{number}"
            shutil.copytree(directory / "made", copy)
            settle(0)
            took.append(
                float(bench.task("measures.opening:open_once", who=who, directory=copy, waiting=waiting))
            )
            shutil.rmtree(copy)
    return took


def open_once(directory: str, waiting: int) -> float:
    """Seconds."""
    import nobroker

    began = time.perf_counter()
    queue = nobroker.Queue(directory)
    found = queue.stats().ready
    took = time.perf_counter() - began
    if found != waiting:
        raise RuntimeError(f"{found} of {waiting} jobs are there")
    queue.close()
    return took
