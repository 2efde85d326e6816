"""What the code of a job says itself: `RetryLater`, `Dead`, `Failed`; and what ends it from inside."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from nobroker import (
    App,
    Dead,
    Discard,
    Failed,
    JobState,
    Rescue,
    Retry,
    RetryLater,
    Verdict,
    current_job,
)
from nobroker.clock import ManualClock
from tests.app.working import raising, work, work_on

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def test_retry_later_counts_no_attempt_and_no_error(app: App, clock: ManualClock) -> None:
    job = raising(app, seen, RetryLater(60), RetryLater(timedelta(seconds=60)), ValueError(), max_attempts=2)
    handle = job.perform_later()
    now = clock.wall_us() / 1e6
    work(app)
    found = handle.job()
    assert (found.state, found.attempts, found.last_error) == (JobState.READY, 0, None)
    assert found.available_at == now + 60
    work_on(app, clock, 5)
    assert seen == [(1, 1), (1, 2), (1, 3), (2, 4)], "attempts, and executions"
    assert handle.result() == "returned"


def test_dead_ends_the_job_at_once(app: App) -> None:
    told: list[Any] = []
    job = raising(app, seen, Dead("no such user"), retry=[Retry(Exception)])
    job.after_dead(lambda its, error: told.append(str(error)))
    handle = job.perform_later()
    assert work(app).dead == 1
    assert (handle.status(), handle.job().last_error, told) == (
        JobState.DEAD,
        "no such user",
        ["no such user"],
    )


def test_dead_of_an_exception_tells_hooks_of_that(app: App) -> None:
    told: list[Any] = []
    job = raising(app, seen, Dead(KeyError("x")))
    job.after_dead(lambda its, error: told.append(repr(error)))
    handle = job.perform_later()
    work(app)
    assert told == ["KeyError('x')"]
    assert str(handle.job().last_error).startswith("KeyError: 'x'")


def test_failed_says_how_it_goes_on(app: App, clock: ManualClock) -> None:
    told: list[Any] = []
    app.on_job_error(lambda job, error: told.append(str(error)))
    errors = [
        Failed("a", delay=7, dead=False),
        Failed("b", dead=False),
        Failed("c"),
        Failed(ValueError("d"), delay=3),
    ]
    job = raising(app, seen, *errors, max_attempts=2)
    handle = job.perform_later()
    for text, delay in (("a", 7), ("b", None), ("c", None)):
        now = clock.wall_us() / 1e6
        work(app)
        found = handle.job()
        assert (found.last_error, found.state) == (text, JobState.READY)
        assert delay is None or found.available_at == now + delay
        clock.advance(400)
    work(app)
    assert handle.status() == JobState.DEAD, "those with dead=False did not count"
    assert str(handle.job().last_error).startswith("ValueError: d")
    assert told == ["a", "b", "c", "d"]


def test_the_state_of_a_verdict_is_no_place_in_an_application(app: App) -> None:
    handle = raising(app, seen, RetryLater(0, state=5), max_attempts=1).perform_later()
    work(app)
    assert handle.status() == JobState.DEAD
    assert "RetryLater(state=...) is for handlers of a Worker" in str(handle.job().last_error)


def test_a_bare_verdict_is_a_failure(app: App) -> None:
    handle = raising(app, seen, Verdict("x"), max_attempts=1).perform_later()
    work(app)
    assert handle.status() == JobState.DEAD


def test_handlers_may_give_verdicts_too(app: App, clock: ManualClock) -> None:
    def later(job: Any, error: BaseException) -> Any:
        raise RetryLater(5)

    def dead(job: Any, error: BaseException) -> Any:
        raise Dead("handler")

    told: list[Any] = []
    job = raising(app, seen, OSError(), KeyError(), rescue=[Rescue(OSError, later), Rescue(KeyError, dead)])
    job.after_dead(lambda its, error: told.append(its.executions))
    handle = job.perform_later()
    work_on(app, clock, 3, seconds=5)
    assert (seen, told) == ([(1, 1), (1, 2)], [2])
    assert handle.job().last_error == "handler"


def test_the_same_for_async_jobs(app: App, clock: ManualClock) -> None:
    left: list[Any] = [OSError(), RetryLater(1), KeyError("gone")]

    @app.job(retry=[Retry(OSError)], discard=[Discard(KeyError)])
    async def job() -> None:
        await asyncio.sleep(0)
        seen.append((current_job().attempts, current_job().executions))
        raise left.pop(0)

    handle = job.perform_later()
    work_on(app, clock, 4)
    assert seen == [(1, 1), (2, 2), (2, 3)]
    assert handle.discarded == "KeyError: 'gone'"


@pytest.mark.parametrize("wait_in_task", [True, False])
def test_something_cancelled_inside_a_job_is_that_jobs_failure_and_not_the_workers_end(
    app: App, wait_in_task: bool
) -> None:
    async def waits() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    @app.job(max_attempts=1)
    async def waiting() -> None:
        await waits()

    @app.job(max_attempts=1)
    def plain() -> None:
        asyncio.run(waits())

    @app.job
    async def other() -> int:
        return 1

    handle = (waiting if wait_in_task else plain).perform_later()
    last = other.perform_later()
    stats = work(app)
    assert (stats.dead, last.result()) == (1, 1)
    assert "something that it waited for was cancelled" in str(handle.job().last_error)


def test_an_exit_stops_the_worker_and_the_job_comes_back(app: App) -> None:
    @app.job(discard=[Discard(Exception)])
    def job() -> None:
        raise SystemExit(3)

    handle = job.perform_later()
    with pytest.raises(SystemExit):
        work(app)
    assert handle.status() == JobState.READY
