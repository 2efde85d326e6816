"""Row `worker`: how fast a Worker drains a backlog, with a handler that does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import work
from benchmarks.figures import Section, ratios
from benchmarks.running import Bench, settle

HOW = (
    "A Worker with durable acknowledgements runs off a backlog: once with batch=100, from beginning to "
    "end; and one by one, in runs that take turns with as many bare pwrite + fdatasync in the same "
    "process."
)


def measure(bench: Bench) -> Section:
    section = Section("worker", "A worker drains a backlog", HOW)
    found: dict[str, list[float]] = {}
    for _ in bench.rounds():
        settle()
        with bench.directory() as directory:
            batched = bench.task(
                "measures.worker:batched", directory=directory / "many", jobs=bench.pick(20_000, 200_000)
            )
            singles = bench.task(
                "measures.worker:singles",
                directory=directory / "single",
                turns=bench.pick(2, 4),
                jobs=bench.pick(500, 1000),
            )
        for name, rate in {**batched, **singles}.items():
            found.setdefault(name, []).append(rate)
    for name, values in found.items():
        section.figure(name, values, "jobs/s")
    section.at_least(60_000, "no-op worker, durable acks, batch=100", found["worker, batch=100"], "jobs/s")
    section.at_least(
        0.9,
        "no-op worker, durable acks, one by one: of a bare pwrite + fdatasync loop",
        ratios(found["worker, one by one"], found["bare pwrite + fdatasync"]),
        "x",
    )
    return section


def nothing(job: Any) -> None:
    """The handler."""


def fill(queue: Any, jobs: int) -> None:
    for batch in work.batches(jobs):
        queue.enqueue_many(batch)


def batched(directory: str, jobs: int) -> dict[str, float]:
    from nobroker import Queue, Worker

    with Queue(directory) as queue:
        fill(queue, jobs)
        watch = work.Stopwatch()
        watch.run(lambda: Worker(queue, nothing, batch=100, max_jobs=jobs).run().succeeded)
        if watch.done != jobs:
            raise RuntimeError(f"{watch.done} of {jobs} jobs were done")
    return {"worker, batch=100": watch.rate}


def singles(directory: str, turns: int, jobs: int) -> dict[str, float]:
    import msgpack

    from nobroker import Queue, Worker

    Path(directory).mkdir()
    packed = [msgpack.packb(job) for job in work.payloads(jobs)]
    bare, ours = work.Stopwatch(), work.Stopwatch()
    file = work.BareFile(Path(directory) / "bare")

    def write() -> int:
        for data in packed:
            file.append(data)
        return len(packed)

    with Queue(f"{directory}/queue") as queue:
        fill(queue, turns * jobs)
        for _ in range(turns):
            bare.run(write)
            ours.run(lambda: Worker(queue, nothing, max_jobs=jobs).run().succeeded)
    file.close()
    return {"bare pwrite + fdatasync": bare.rate, "worker, one by one": ours.rate}
