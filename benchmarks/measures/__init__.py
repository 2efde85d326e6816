"""The rows of the report: one module each, with `measure(bench)` and the functions that it has run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Section
from benchmarks.measures import (
    backlog,
    compaction,
    files,
    idle,
    jobs,
    keys,
    latency,
    limits,
    memory,
    mixed,
    opening,
    processes,
    throughput,
    worker,
)
from benchmarks.running import Bench

ROWS: dict[str, Callable[[Bench], Section]] = {
    "limits": limits.measure,
    "peers": throughput.measure,
    "mixed": mixed.measure,
    "processes": processes.measure,
    "worker": worker.measure,
    "jobs": jobs.measure,
    "latency": latency.measure,
    "idle": idle.measure,
    "opening": opening.measure,
    "memory": memory.measure,
    "backlog": backlog.measure,
    "keys": keys.measure,
    "compaction": compaction.measure,
    "files": files.measure,
}
