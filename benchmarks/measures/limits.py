"""Row `limits`: the queue beside the least that its work can cost, in turns within one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import work
from benchmarks.figures import Section, ratios
from benchmarks.running import Bench, settle

HOW = (
    "One process does a few pieces of the bare work, then as many of the queue's, in turn, so that both "
    "see the same disk; a ratio is that of their sums in one run."
)


def measure(bench: Bench) -> Section:
    section = Section("limits", "Beside the limits of the machine", HOW)
    found: dict[str, list[float]] = {}
    for _ in bench.rounds():
        settle()
        with bench.directory() as directory:
            for function in ("singles", "batches", "taking"):
                rates = bench.task(
                    f"measures.limits:{function}",
                    directory=directory / function,
                    seconds=bench.pick(0.3, 1.5),
                )
                for name, rate in rates.items():
                    found.setdefault(name, []).append(rate)
    for name, values in found.items():
        section.figure(name, values, "jobs/s")
    section.at_least(
        0.7,
        "enqueue, durable: of a bare pwrite + fdatasync loop",
        ratios(found["enqueue, durable"], found["bare pwrite + fdatasync"]),
        "x",
    )
    section.at_least(
        0.4,
        "enqueue_many, durable: of bare pack + pwrite + fdatasync",
        ratios(found["enqueue_many of 1,000, durable"], found["bare packb + pwrite + fdatasync of 1,000"]),
        "x",
    )
    section.figure(
        "lease(1000) + ack_many, reading the payloads: of bare unpackb",
        ratios(found["lease(1000) + payloads + ack_many, durable"], found["bare unpackb of 1,000"]),
        "x",
    )
    return section


def singles(directory: str, seconds: float) -> dict[str, float]:
    """Durable enqueues beside writes of the same payloads, packed beforehand."""
    import msgpack

    from nobroker import Queue

    Path(directory).mkdir()
    jobs = work.payloads(20)
    packed = [msgpack.packb(job) for job in jobs]
    bare, ours, undurable = work.Stopwatch(), work.Stopwatch(), work.Stopwatch()
    file = work.BareFile(Path(directory) / "bare")
    with Queue(f"{directory}/synced") as queue, Queue(f"{directory}/not", fsync=False) as quick:

        def write() -> int:
            for data in packed:
                file.append(data)
            return len(packed)

        def enqueue(target: Queue) -> int:
            for job in jobs:
                target.enqueue(job)
            return len(jobs)

        write()
        enqueue(queue)
        while ours.seconds < seconds:
            bare.run(write)
            ours.run(lambda: enqueue(queue))
            undurable.run(lambda: enqueue(quick))
    file.close()
    return {
        "bare pwrite + fdatasync": bare.rate,
        "enqueue, durable": ours.rate,
        "enqueue, fsync=False": undurable.rate,
    }


def batches(directory: str, seconds: float) -> dict[str, float]:
    """Durable batches beside packing, writing and syncing the same payloads."""
    import msgpack

    from nobroker import Queue

    Path(directory).mkdir()
    result = {}
    file = work.BareFile(Path(directory) / "bare")
    for size in (1000, 10_000):
        jobs = work.payloads(size)
        bare, ours = work.Stopwatch(), work.Stopwatch()
        with Queue(f"{directory}/queue-{size}") as queue:

            def write(jobs: list[work.Payload] = jobs) -> int:
                file.append(msgpack.packb(jobs))
                return len(jobs)

            def enqueue(jobs: list[work.Payload] = jobs, queue: Queue = queue) -> int:
                return len(queue.enqueue_many(jobs))

            write()
            enqueue()
            while ours.seconds < seconds and ours.done < 2_000_000:
                bare.run(write)
                ours.run(enqueue)
        result[f"bare packb + pwrite + fdatasync of {size:,}"] = bare.rate
        result[f"enqueue_many of {size:,}, durable"] = ours.rate
    file.close()
    return result


def taking(directory: str, seconds: float) -> dict[str, float]:
    """Leases and acknowledgements of thousands, with and without reading the payloads."""
    import msgpack

    from nobroker import Queue

    jobs = work.payloads(work.BATCH)
    packed = msgpack.packb(jobs)
    bare, ours, reading = work.Stopwatch(), work.Stopwatch(), work.Stopwatch()
    with Queue(directory) as queue:

        def take(read: bool) -> int:
            leased = queue.lease(work.BATCH)
            if read:
                consume(leased)
            queue.ack_many(leased)
            return len(leased)

        while ours.seconds < seconds / 2:
            for _ in range(2):
                queue.enqueue_many(jobs)
            bare.run(lambda: len(msgpack.unpackb(packed)))
            ours.run(lambda: take(False))
            reading.run(lambda: take(True))
    return {
        "bare unpackb of 1,000": bare.rate,
        "lease(1000) + ack_many, durable": ours.rate,
        "lease(1000) + payloads + ack_many, durable": reading.rate,
    }


def consume(leased: list[Any]) -> None:
    for job in leased:
        job.payload  # noqa: B018 - reading it is the work
