"""Middleware, and events of the application."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager

import pytest

from nobroker import (
    App,
    JobContext,
    current_job,
)
from tests.app.spying import around, hook, nothing_seen, seen  # noqa: F401 - a fixture
from tests.app.working import work


def test_middleware_sees_the_job_and_wraps_every_run(app: App) -> None:
    @app.middleware
    def measure(job: JobContext) -> Iterator[None]:
        assert current_job() is job
        seen.append((job.job_class, job.queue_name, job.arguments.args))
        try:
            yield
        finally:
            seen.append("measured")

    class Connection(AbstractContextManager[None]):
        def __exit__(self, *args: object) -> None:
            seen.append(("closed", args[0]))

    class Pool:
        def __call__(self, job: JobContext) -> Iterator[None]:
            seen.append("pool")
            yield

    app.middleware(lambda job: Connection())
    app.middleware(Pool())

    @app.job(name="job", max_attempts=1)
    def job(x: int) -> None:
        raise KeyError

    @app.job(name="waiting")
    async def waiting(x: int) -> None: ...

    job.perform_later(1)
    work(app)
    assert seen == [("job", "default", (1,)), "pool", ("closed", KeyError), "measured"]
    seen.clear()
    waiting.perform_later(2)
    work(app)
    assert seen == [("waiting", "default", (2,)), "pool", ("closed", None), "measured"]


def test_middleware_that_is_none_is_an_error_that_names_it(app: App) -> None:
    with pytest.raises(TypeError, match="must be a function"):
        app.middleware(3)  # type: ignore[type-var]

    @app.middleware
    def wrong(job: JobContext) -> int:
        return 5

    @app.job(max_attempts=1)
    def job() -> None: ...

    handle = job.perform_later()
    work(app)
    text = str(handle.job().last_error)
    assert "wrong must be a generator function with one yield, or give a context manager; it gave int" in text


def test_an_async_context_manager_around_a_plain_job_is_refused(app: App) -> None:
    @asynccontextmanager
    async def later() -> AsyncIterator[None]:
        yield

    app.middleware(lambda job: later())

    @app.job(name="plain", max_attempts=1)
    def plain() -> None: ...

    @app.job
    async def waiting() -> int:
        return 1

    handles = [plain.perform_later(), waiting.perform_later()]
    work(app)
    assert "an async context manager around plain, which is not async" in str(handles[0].job().last_error)
    assert handles[1].result() == 1


@pytest.mark.parametrize("yields", [0, 2])
def test_a_generator_with_no_or_two_yields_fails_the_job_by_name(app: App, yields: int) -> None:
    @app.middleware
    def wrong(job: JobContext) -> Iterator[None]:
        for _ in range(yields):
            yield

    @app.job(max_attempts=1)
    def job() -> None: ...

    handle = job.perform_later()
    work(app)
    assert "generator didn't" in str(handle.job().last_error)
    assert "raised by the middleware" in str(handle.job().last_error)


# -- events of the application


def test_events_of_a_run(app: App, caplog: pytest.LogCaptureFixture) -> None:
    events = ["on_start", "on_worker_start", "on_worker_stop", "on_stop", "on_shutdown"]
    for event in events:
        getattr(app, event)(lambda event=event: seen.append(event))

    @app.on_worker_start
    def breaks() -> None:
        raise ValueError("x")

    @app.job
    def job() -> None:
        seen.append("job")

    job.perform_later()
    work(app)
    assert seen == ["on_start", "on_worker_start", "job", "on_worker_stop", "on_stop", "on_shutdown"]
    told = next(record for record in caplog.records if record.levelno >= logging.ERROR)
    assert "hook=on_worker_start" in told.getMessage()
    assert "breaks" in told.getMessage()
    with pytest.raises(TypeError, match="on_stop takes a plain function"):
        app.on_stop(3)  # type: ignore[type-var]


def test_the_last_events_come_also_when_the_run_ends_by_an_error(app: App) -> None:
    app.on_worker_stop(lambda: seen.append("worker stop"))
    app.on_shutdown(lambda: seen.append("shutdown"))

    @app.job
    def job() -> None:
        raise KeyboardInterrupt

    job.perform_later()
    with pytest.raises(KeyboardInterrupt):
        work(app)
    assert seen == ["worker stop", "shutdown"]
