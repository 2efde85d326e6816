"""Whether a job ran alone in its process while it was measured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import App
from nobroker.job import Job

from .test_metrics import rows, work


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """An application whose queue is whole at the end."""
    made = App(tmp_path / "jobs", fsync=False)
    yield made
    made.stop_job_metrics()
    assert made.queue.check() == []
    made.close()


def test_whether_a_job_ran_alone(app: App, tmp_path: Path) -> None:
    together = threading.Barrier(2)

    @app.job
    def meet(number: int) -> None:
        together.wait(30)

    @app.job
    def single() -> None: ...

    meet.perform_later(1)
    meet.perform_later(2)
    app.start_job_metrics(tmp_path / "jobs.csv")
    work(app, threads=2)
    single.perform_later()
    work(app, threads=2)
    app.stop_job_metrics()
    found = sorted((row["class"].rpartition(".")[2], row["alone"]) for row in rows(tmp_path / "jobs.csv"))
    assert found == [("meet", "False"), ("meet", "False"), ("single", "True")]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_no_job_is_alone_beside_one_that_began_unmeasured(app: App, tmp_path: Path, is_async: bool) -> None:
    meter = app._meter()
    runs, go_on = threading.Event(), threading.Event()

    def long(job: Job) -> Any:
        async def rest() -> None:
            runs.set()
            assert go_on.wait(30)

        return rest() if is_async else asyncio.run(rest())

    def perform(handler: Callable[[Job], Any]) -> None:
        (job,) = app.queue.lease(1)
        found = meter.measured(handler)(job)
        if found is not None:
            asyncio.run(found)
        app.queue.ack(job)

    app.queue.enqueue_many([{"number": number} for number in range(3)])
    thread = threading.Thread(target=perform, args=(long,))
    thread.start()
    assert runs.wait(30)
    app.start_job_metrics(tmp_path / "jobs.csv")
    perform(lambda job: None)
    go_on.set()
    thread.join()
    perform(lambda job: None)
    app.stop_job_metrics()
    assert [row["alone"] for row in rows(tmp_path / "jobs.csv")] == ["False", "True"]


def test_one_that_goes_on_while_nothing_is_measured_is_not_alone(app: App, tmp_path: Path) -> None:
    meter = app._meter()

    def long(job: Job) -> None:
        app.stop_job_metrics()
        (other,) = app.queue.lease(1)
        meter.measured(lambda job: None)(other)  # beside it, as in another thread
        app.queue.ack(other)
        app.start_job_metrics(tmp_path / "second.csv")

    app.queue.enqueue_many(["long", "short"])
    app.start_job_metrics(tmp_path / "first.csv")
    (job,) = app.queue.lease(1)
    meter.measured(long)(job)
    app.queue.ack(job)
    app.stop_job_metrics()
    (row,) = rows(tmp_path / "second.csv")
    assert (row["id"], row["alone"]) == (job.id, "False")
