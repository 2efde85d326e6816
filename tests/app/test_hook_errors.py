"""Hooks of runs that fail, and hooks that fail themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from nobroker import (
    App,
    BaseJob,
    Dead,
    Discard,
    JobContext,
    JobState,
    Retry,
)
from nobroker.clock import ManualClock
from tests.app.spying import hook, nothing_seen, seen  # noqa: F401 - a fixture
from tests.app.working import work, work_on


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("where", ["before_perform", "around_perform", "leaving", "middleware"])
def test_what_a_hook_raises_counts_as_if_the_job_had_raised_it_and_names_the_hook(
    app: App, clock: ManualClock, where: str, is_async: bool
) -> None:
    def breaks(its: JobContext) -> None:
        raise OSError("from the hook")

    def breaks_around(its: JobContext) -> Iterator[None]:
        if where != "leaving":
            breaks(its)
        yield
        breaks(its)

    if is_async:

        @app.job(name="job", retry=[Retry(OSError, attempts=2)])
        async def job() -> None:
            seen.append("perform")
    else:

        @app.job(name="job", retry=[Retry(OSError, attempts=2)])
        def job() -> None:
            seen.append("perform")

    if where == "middleware":
        app.middleware(breaks_around)
    elif where == "before_perform":
        job.before_perform(breaks)
    else:
        job.around_perform(breaks_around)
    handle = job.perform_later()
    work_on(app, clock, 3)
    found = handle.job()
    assert (found.state, found.attempts) == (JobState.DEAD, 2)
    name = {"middleware": "the middleware", "leaving": "the hook around_perform of job"}.get(
        where, f"the hook {where} of job"
    )
    assert f"raised by {name}" in str(found.last_error)
    assert ("breaks" if where == "before_perform" else "breaks_around") in str(found.last_error)
    assert seen == (["perform"] * 2 if where == "leaving" else [])


def test_async_around_hooks_are_named_too(app: App) -> None:
    @app.job(name="job", max_attempts=1)
    async def job() -> None: ...

    @job.around_perform
    async def breaks_around(its: JobContext) -> AsyncIterator[None]:
        yield
        raise OSError("x")

    handle = job.perform_later()
    work(app)
    assert "raised by the hook around_perform of job: " in str(handle.job().last_error)


def test_an_error_of_the_job_passes_through_unnamed_and_may_be_dealt_with(app: App) -> None:
    @app.job(name="job", max_attempts=1)
    def job(kind: str) -> str:
        raise {"os": OSError, "key": KeyError}[kind](kind)

    @job.around_perform
    def swallows(its: JobContext) -> Iterator[None]:
        try:
            yield
        except OSError:
            seen.append("swallowed")

    class RaisesAgain(AbstractContextManager[None]):
        def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
            if error is not None:
                raise error

    app.middleware(lambda its: RaisesAgain())
    job.after_perform(hook("after"))
    os, key = job.perform_later("os"), job.perform_later("key")
    work(app)
    assert (os.result(), seen) == (None, ["swallowed"])
    assert key.status() == JobState.DEAD
    assert "raised by" not in str(key.job().last_error)


def test_what_after_perform_raises_is_told_and_changes_nothing(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(its: JobContext) -> None:
        raise ValueError("x")

    async def breaks_later(its: JobContext) -> None:
        raise ValueError("x")

    @app.job
    def plain() -> int:
        return 1

    @app.job
    async def waiting() -> int:
        return 2

    plain.after_perform(breaks)
    waiting.after_perform(breaks_later)
    handles = [plain.perform_later(), waiting.perform_later()]
    work(app)
    assert [handle.result() for handle in handles] == [1, 2]
    told = [record.getMessage() for record in caplog.records if "hook=after_perform" in record.getMessage()]
    assert len(told) == 2
    assert "breaks_later" in told[1]


def test_after_discard_and_after_dead(app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    @app.register
    class Job(BaseJob):
        retry = Retry(ConnectionError, attempts=2, wait=0)
        discard = Discard(KeyError)
        max_attempts = 2

        def perform(self, kind: type[Exception]) -> None:
            raise kind("x")

        def after_discard(self, error: BaseException) -> None:
            seen.append(("discarded", type(error), self.attempts))
            raise RuntimeError("a hook that breaks changes nothing")

        def after_dead(self, error: BaseException) -> None:
            seen.append(("dead", type(error), self.attempts))
            raise RuntimeError("a hook that breaks changes nothing")

    kinds = {"key": KeyError, "connection": ConnectionError, "value": ValueError, "dead": Dead}
    app.serializer(
        type,
        encode=lambda kind: kind.__name__,
        decode=lambda name: {k.__name__: k for k in kinds.values()}[name],
    )
    for kind, expected in (
        ("key", [("discarded", KeyError, 1)]),
        ("connection", [("dead", ConnectionError, 2)]),
        ("value", [("dead", ValueError, 2)]),
        ("dead", [("dead", Dead, 1)]),
    ):
        seen.clear()
        Job.perform_later(kinds[kind])
        work_on(app, clock, 3)
        assert seen == expected
    assert app.queue.stats().dead == 3
    assert sum("hook.failed" in record.getMessage() for record in caplog.records) == 4


def test_on_job_error_is_told_of_every_failing_run(app: App, clock: ManualClock) -> None:
    @app.on_job_error
    def told(job: JobContext, error: BaseException) -> None:
        seen.append((job.job_class, job.attempts, repr(error)))
        raise RuntimeError("and what it raises changes nothing")

    left: list[Exception] = [OSError("a"), ValueError("b"), Dead("c")]

    @app.job(name="job", retry=[Retry(OSError)])
    def job() -> None:
        raise left.pop(0)

    handle = job.perform_later()
    work_on(app, clock, 3)
    assert seen == [("job", 1, "OSError('a')"), ("job", 2, "ValueError('b')"), ("job", 3, "Dead('c')")]
    assert handle.status() == JobState.DEAD
