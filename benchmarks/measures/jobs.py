"""Row `jobs`: what jobs as functions and classes cost on top of the queue, and beside others that do that."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import work
from benchmarks.figures import Section, ratios
from benchmarks.measures.peer_jobs import PEERS, THREADS
from benchmarks.running import Bench, TaskError, settle

if TYPE_CHECKING:
    from nobroker import App

HOW = (
    "A job class whose perform does nothing. perform_later with fsync=False; perform_all_later, durable, of"
    f" {work.BATCH:,} that build() makes in that time; then a Service with {THREADS} threads and durable"
    " acknowledgements in a fresh process runs such jobs off, one by one and with batch=100. The peers do"
    f" the same in the same round, with {THREADS} threads of their own, as they come, but that quebec looks"
    " for jobs every millisecond and not ten times a second."
)
SINGLE = "drain, one by one"
BATCHED = "drain, batch=100"


def measure(bench: Bench) -> Section:
    section = Section("jobs", "Jobs as functions and classes", HOW)
    found: dict[str, list[float]] = {}
    for _ in bench.rounds():
        settle()
        with bench.directory() as directory:
            rates = ours(bench, directory)
            for name, options in PEERS.items():
                if (rate := peer(bench, name, directory, options)) is not None:
                    rates[f"{name}: drain"] = rate
        for name, rate in rates.items():
            found.setdefault(name, []).append(rate)
    for name, values in found.items():
        section.figure(name, values, "jobs/s")
    section.at_least(40_000, "perform_later, fsync=False", found["perform_later, fsync=False"], "jobs/s")
    section.at_least(250_000, "perform_all_later, durable", found["perform_all_later"], "jobs/s")
    section.at_least(5_000, f"no-op jobs, durable, {SINGLE}", found[SINGLE], "jobs/s")
    section.at_least(25_000, f"no-op jobs, durable, {BATCHED}", found[BATCHED], "jobs/s")
    for name in PEERS:
        bar = f"no-op jobs, durable, {BATCHED}: of {name}"
        values = found.get(f"{name}: drain")
        if values is None:
            section.not_judged[bar] = bench.missing[name]
            section.notes.append(f"missing: {name}: {bench.missing[name]}")
        else:
            section.at_least(10, bar, ratios(found[BATCHED], values), "x")
            section.figure(f"{SINGLE}: of {name}", ratios(found[SINGLE], values), "x")
    return section


def ours(bench: Bench, directory: Path) -> dict[str, float]:
    many, few = bench.pick(5_000, 30_000), bench.pick(500, 4_000)
    rates: dict[str, float] = bench.task(
        "measures.jobs:enqueued", directory=directory, later=bench.pick(2_000, 20_000), many=many, few=few
    )
    for name, folder, jobs, batch in ((SINGLE, "few", few, 1), (BATCHED, "many", many, 100)):
        rates[name] = bench.task(
            "measures.jobs:drained", directory=directory / folder, jobs=jobs, batch=batch
        )
    return rates


def peer(bench: Bench, name: str, directory: Path, options: dict[str, Any]) -> float | None:
    """Jobs a second; None, and a reason among what is missing, where it can't be measured."""
    if name in bench.missing:
        return None
    if why := bench.environment.why_missing(options["who"]):
        bench.missing[name] = why
        return None
    bench.say(name)
    settle(0.05)
    path = directory / name
    path.mkdir()
    try:
        rate: float = bench.task(
            f"measures.peer_jobs:{name}",
            who=options["who"],
            directory=path,
            jobs=bench.pick(options["quick"], options["full"]),
        )
    except TaskError as error:
        bench.missing[name] = f"failed here: {error}"
        return None
    return rate


def application(directory: str, **options: Any) -> tuple[App, Any]:
    """An application, and its job."""
    from nobroker import App, BaseJob

    app = App(directory, **options)

    @app.register
    class Noop(BaseJob):
        def perform(self, payload: dict[str, Any]) -> None:
            """Nothing."""

    return app, Noop


def enqueued(directory: str, later: int, many: int, few: int) -> dict[str, float]:
    """Rates of enqueueing; leaves jobs behind, in the folders that are drained."""
    watches = work.Stopwatch(), work.Stopwatch()
    app, noop = application(f"{directory}/later", fsync=False)
    payloads = work.payloads(later)
    noop.perform_later(payloads[0])  # opens the queue

    def one_by_one() -> int:
        for payload in payloads:
            noop.perform_later(payload)
        return later

    watches[0].run(one_by_one)
    app.close()
    for folder, jobs in (("few", few), ("many", many)):
        app, noop = application(f"{directory}/{folder}")
        app.queue.stats()  # opened

        def all_later(batch: list[work.Payload], app: Any = app, noop: Any = noop) -> int:
            return len(app.perform_all_later([noop.build(payload) for payload in batch]))

        for batch in work.batches(jobs):
            watch = watches[1] if folder == "many" else work.Stopwatch()
            watch.run(lambda batch=batch, run=all_later: run(batch))  # type: ignore[misc]
        app.close()
    return {"perform_later, fsync=False": watches[0].rate, "perform_all_later": watches[1].rate}


def drained(directory: str, jobs: int, batch: int) -> float:
    """Jobs a second, from the start of the service to its end."""
    app, _ = application(directory)
    app.queue.stats()
    watch = work.Stopwatch()
    watch.run(lambda: app.run(threads=THREADS, batch=batch, once=True).succeeded)
    if watch.done != jobs or threading.active_count() > 1:
        raise RuntimeError(f"{watch.done} of {jobs} jobs were done")
    app.close()
    return watch.rate
