"""What becomes of a job that fails: rules, verdicts of its own code, kills, and classes nobody knows."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    App,
    BackoffPolicy,
    BaseJob,
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
from tests.app.working import work, work_on

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def raising(app: App, *errors: Any, **options: Any) -> Any:
    """A job that raises these in turn, then returns."""
    left = list(errors)

    @app.job(name="job", **options)
    def job() -> str:
        its = current_job()
        seen.append((its.attempts, its.executions))
        if left:
            raise left.pop(0)
        return "returned"

    return job


# -- Retry


def test_attempts_of_a_retry_mean_what_they_say_whatever_max_attempts_is(app: App, clock: ManualClock) -> None:
    assert app.queue.max_attempts == 5
    job = raising(app, *[ConnectionError()] * 50, retry=[Retry(ConnectionError, attempts=20, wait=1)])
    handle = job.perform_later()
    work_on(app, clock, 19, seconds=1)
    assert handle.status() == JobState.READY
    work_on(app, clock, 5, seconds=1)
    assert [attempts for attempts, _ in seen] == list(range(1, 21))
    assert handle.status() == JobState.DEAD
    assert "ConnectionError" in str(handle.job().last_error)


def test_a_few_attempts_of_a_retry_are_not_more_either(app: App, clock: ManualClock) -> None:
    job = raising(app, *[ConnectionError()] * 9, retry=Retry(ConnectionError, attempts=2), max_attempts=7)
    handle = job.perform_later()
    work_on(app, clock, 5)
    assert (len(seen), handle.status()) == (2, JobState.DEAD)


def test_each_rule_has_a_counter_of_its_own_and_other_errors_have_max_attempts(
    app: App, clock: ManualClock
) -> None:
    errors = [OSError(), KeyError(), OSError(), ValueError(), KeyError(), KeyError(), OSError(), ValueError()]
    job = raising(
        app, *errors, retry=[Retry(OSError, attempts=4), Retry(KeyError, attempts=4)], max_attempts=3
    )
    handle = job.perform_later()
    work_on(app, clock, 12)
    assert (len(seen), handle.result()) == (9, "returned")


def test_the_first_rule_that_matches_wins(app: App, clock: ManualClock) -> None:
    job = raising(
        app, *[ConnectionError()] * 9, retry=[Retry((OSError, KeyError), attempts=2), Retry(ConnectionError, attempts=9)]
    )
    handle = job.perform_later()
    work_on(app, clock, 5)
    assert (len(seen), handle.status()) == (2, JobState.DEAD)


@pytest.mark.parametrize(
    ("wait", "delays"),
    [
        (7, [7, 7]),
        (timedelta(minutes=1), [60, 60]),
        (lambda attempt: attempt * 10, [10, 20]),
        (lambda attempt: timedelta(seconds=attempt), [1, 2]),
        (BackoffPolicy(base=3, factor=2, jitter=0), [3, 6]),
        (0, [0, 0]),
    ],
)
def test_the_wait_of_a_retry(app: App, clock: ManualClock, wait: Any, delays: list[float]) -> None:
    job = raising(app, OSError(), OSError(), retry=[Retry(OSError, attempts=3, wait=wait)])
    handle = job.perform_later()
    for delay in delays:
        now = clock.wall_us() / 1e6
        app.run(max_jobs=1, once=True, handle_signals=False)
        assert handle.job().available_at - now == pytest.approx(delay)
        clock.advance(delay)
    work(app)
    assert handle.result() == "returned"


def test_the_default_wait_grows_and_has_jitter(app: App, clock: ManualClock) -> None:
    @app.job(retry=[Retry(OSError, attempts=3)])
    def job() -> None:
        raise OSError

    handles = app.perform_all_later([job.build() for _ in range(40)])
    waits: list[set[float]] = []
    for most in (1.0, 2.0):
        now = clock.wall_us() / 1e6
        work(app)
        waits.append({round(handle.job().available_at - now, 3) for handle in handles})
        assert all(most / 2 <= wait <= most for wait in waits[-1])
        clock.advance(10)
    assert min(len(wait) for wait in waits) > 20, "those that failed together do not come back together"


def test_a_wait_that_raises_is_a_failure_like_any_other(app: App, clock: ManualClock) -> None:
    job = raising(app, *[OSError()] * 9, retry=[Retry(OSError, wait=lambda attempt: "soon")], max_attempts=2)  # type: ignore[arg-type,return-value]
    handle = job.perform_later()
    work_on(app, clock, 4)
    assert (len(seen), handle.status()) == (2, JobState.DEAD)
    assert "TypeError: what wait returned must be seconds" in str(handle.job().last_error)


def test_the_handler_of_a_retry_ends_the_job_when_its_attempts_are_used_up(
    app: App, clock: ManualClock
) -> None:
    def returning(job: Any, error: BaseException) -> Any:
        seen.append((job.id, job.attempts, repr(error), current_job() is job))
        return "handled"

    def raising_(job: Any, error: BaseException) -> Any:
        raise RuntimeError("handler failed")

    @app.job(retry=[Retry(OSError, attempts=2, handler=returning)])
    def first() -> None:
        raise OSError("x")

    @app.job(retry=[Retry(OSError, attempts=2, handler=raising_)])
    def second() -> None:
        raise OSError("y")

    handles = [first.perform_later(), second.perform_later()]
    work_on(app, clock, 4)
    assert seen == [(handles[0].id, 2, "OSError('x')", True)]
    assert (handles[0].status(), handles[0].result()) == (JobState.DONE, "handled")
    assert handles[1].status() == JobState.DEAD
    text = str(handles[1].job().last_error)
    assert text.startswith("RuntimeError: handler failed")
    assert "OSError: y" in text, "what the handler was called for is there, too"


def test_a_requeued_job_has_all_its_attempts_again(app: App, clock: ManualClock) -> None:
    job = raising(app, *[OSError()] * 5, retry=[Retry(OSError, attempts=3)], max_attempts=1)
    handle = job.perform_later()
    work_on(app, clock, 4)
    assert (len(seen), handle.status()) == (3, JobState.DEAD)
    assert app.queue.requeue_dead(handle.id) == 1
    work_on(app, clock, 4)
    assert (len(seen), handle.status(), handle.result()) == (6, JobState.DONE, "returned")


# -- Discard, Rescue, and the order


def test_discard_ends_the_job_and_keeps_the_reason(app: App) -> None:
    job = raising(app, KeyError("gone"), discard=[Discard(LookupError, lambda job, error: seen.append(error.args))])
    handle = job.perform_later()
    stats = work(app)
    assert (stats.succeeded, stats.failed) == (1, 0)
    assert (handle.status(), handle.discarded, handle.job().last_error) == (JobState.DONE, "KeyError: 'gone'", None)
    assert seen[1] == ("gone",)


def test_a_reason_of_any_text_is_kept(app: App) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    for error, reason in (
        (ValueError("x" * 10_000), "ValueError: " + "x" * 2000),
        (ValueError("\udcff \x00"), "ValueError: \udcff \x00"),
        (Broken(), "Broken: <its text raised ZeroDivisionError>"),
    ):
        app.jobs.clear()
        handle = raising(app, error, discard=Discard(Exception)).perform_later()
        work(app)
        assert handle.discarded == reason


def test_a_handler_of_a_discard_that_raises_is_the_jobs_failure(app: App) -> None:
    def handler(job: Any, error: BaseException) -> None:
        raise RuntimeError("handler")

    handle = raising(app, KeyError(), discard=[Discard(KeyError, handler)], max_attempts=1).perform_later()
    work(app)
    assert handle.status() == JobState.DEAD
    assert str(handle.job().last_error).startswith("RuntimeError: handler")


def test_rescue_makes_a_result_of_the_error(app: App) -> None:
    job = raising(app, KeyError("x"), rescue=[Rescue(KeyError, lambda job, error: (job.job_class, error.args))])
    handle = job.perform_later()
    work(app)
    assert handle.result() == ("job", ("x",))
    assert handle.discarded is None


def test_a_rescue_that_raises_is_the_jobs_failure(app: App, clock: ManualClock) -> None:
    def handler(job: Any, error: BaseException) -> None:
        raise RuntimeError("handler")

    handle = raising(app, KeyError(), KeyError(), rescue=Rescue(KeyError, handler), max_attempts=2).perform_later()
    work(app)
    assert handle.status() == JobState.READY
    clock.advance(400)
    work(app)
    assert handle.status() == JobState.DEAD


def test_the_order_is_retry_discard_rescue_dead(app: App, clock: ManualClock) -> None:
    def rules(*kinds: str) -> dict[str, Any]:
        every = {
            "retry": [Retry(OSError, attempts=2, handler=lambda job, error: "retried")],
            "discard": [Discard(OSError)],
            "rescue": [Rescue(OSError, lambda job, error: "rescued")],
        }
        return {kind: every[kind] for kind in kinds}

    expected = {
        ("retry", "discard", "rescue"): (2, "retried", None),
        ("discard", "rescue"): (1, None, "OSError: "),
        ("rescue",): (1, "rescued", None),
    }
    for kinds, (runs, result, reason) in expected.items():
        app.jobs.clear()
        seen.clear()
        handle = raising(app, OSError(), OSError(), **rules(*kinds)).perform_later()
        work_on(app, clock, 3)
        assert (len(seen), handle.result(), handle.discarded) == (runs, result, reason), kinds


def test_what_no_rule_deals_with_has_the_queues_backoff_and_max_attempts(app: App, clock: ManualClock) -> None:
    for options, runs in (({"max_attempts": 2}, 2), ({}, 5), ({"max_attempts": 2, "retry": [Retry(KeyError)]}, 2)):
        app.jobs.clear()
        seen.clear()
        handle = raising(app, *[ValueError("text")] * 9, **options).perform_later()
        now = clock.wall_us() / 1e6
        work(app)
        assert 0 < handle.job().available_at - now <= app.queue.backoff.max_delay
        clock.advance(400)
        work_on(app, clock, 8)
        assert (len(seen), handle.status()) == (runs, JobState.DEAD)
        assert "ValueError: text" in str(handle.job().last_error)
        assert "Traceback" in str(handle.job().last_error)


def test_a_lower_or_higher_max_attempts_of_a_new_version_counts(app: App, clock: ManualClock) -> None:
    for enqueued, running in ((5, 2), (2, 5)):
        app.jobs.clear()
        seen.clear()
        handle = raising(app, max_attempts=enqueued).perform_later()
        app.jobs.clear()
        raising(app, *[ValueError()] * 9, max_attempts=running)
        work_on(app, clock, 8)
        assert (len(seen), handle.status()) == (running, JobState.DEAD)


# -- what the code says itself


def test_retry_later_counts_no_attempt_and_no_error(app: App, clock: ManualClock) -> None:
    job = raising(app, RetryLater(60), RetryLater(timedelta(seconds=60)), ValueError(), max_attempts=2)
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
    job = raising(app, Dead("no such user"), retry=[Retry(Exception)])
    job.after_dead(lambda its, error: told.append(str(error)))
    handle = job.perform_later()
    assert work(app).dead == 1
    assert (handle.status(), handle.job().last_error, told) == (JobState.DEAD, "no such user", ["no such user"])


def test_dead_of_an_exception_tells_hooks_of_that(app: App) -> None:
    told: list[Any] = []
    job = raising(app, Dead(KeyError("x")))
    job.after_dead(lambda its, error: told.append(repr(error)))
    handle = job.perform_later()
    work(app)
    assert told == ["KeyError('x')"]
    assert str(handle.job().last_error).startswith("KeyError: 'x'")


def test_failed_says_how_it_goes_on(app: App, clock: ManualClock) -> None:
    told: list[Any] = []
    app.on_job_error(lambda job, error: told.append(str(error)))
    errors = [Failed("a", delay=7, dead=False), Failed("b", dead=False), Failed("c"), Failed(ValueError("d"), delay=3)]
    job = raising(app, *errors, max_attempts=2)
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
    handle = raising(app, RetryLater(0, state=5), max_attempts=1).perform_later()
    work(app)
    assert handle.status() == JobState.DEAD
    assert "RetryLater(state=...) is for handlers of a Worker" in str(handle.job().last_error)


def test_a_bare_verdict_is_a_failure(app: App) -> None:
    handle = raising(app, Verdict("x"), max_attempts=1).perform_later()
    work(app)
    assert handle.status() == JobState.DEAD


def test_handlers_may_give_verdicts_too(app: App, clock: ManualClock) -> None:
    def later(job: Any, error: BaseException) -> Any:
        raise RetryLater(5)

    def dead(job: Any, error: BaseException) -> Any:
        raise Dead("handler")

    told: list[Any] = []
    job = raising(app, OSError(), KeyError(), rescue=[Rescue(OSError, later), Rescue(KeyError, dead)])
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


# -- rules that are none


def test_rules_that_can_not_be_meant_are_refused() -> None:
    for kind in (Retry, Discard):
        for wrong in (3, "ValueError", [ValueError], (ValueError, 3), BaseException, KeyboardInterrupt, ValueError()):
            with pytest.raises(TypeError, match="takes exception classes"):
                kind(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="of no exceptions"):
            kind(())
        with pytest.raises(TypeError, match="handler must be a function"):
            kind(OSError, handler=3)  # type: ignore[arg-type]

    async def handler(job: Any, error: BaseException) -> None: ...

    with pytest.raises(TypeError, match="not async def"):
        Retry(OSError, handler=handler)
    for wrong_wait in (-1, "5", float("nan"), True):
        with pytest.raises((TypeError, ValueError), match="wait"):
            Retry(OSError, wait=wrong_wait)  # type: ignore[arg-type]
    for attempts in (0, 10_001, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="attempts"):
            Retry(OSError, attempts=attempts)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Rescue needs a handler"):
        Rescue(OSError, None)  # type: ignore[arg-type]


# -- kills

KILLED = """
import os, signal, sys
from nobroker import App, Retry
from nobroker.clock import ManualClock

clock = ManualClock()
clock.advance(100 * int(sys.argv[2]))  # the leases of those before are over, and none ends meanwhile
app = App(sys.argv[1], fsync=False, visibility_timeout=30, clock=clock)

@app.job(name="job", retry=[Retry(ConnectionError, attempts=20, wait=0)], max_attempts=3)
def job(path, kill_in):
    with open(path, "a") as file:
        file.write("x")
    runs = os.path.getsize(path)
    if runs in kill_in:
        os.kill(os.getpid(), signal.SIGKILL)
    if runs < 15:
        raise ConnectionError
    return runs

app.run(once=True)
"""


def run_killed(app: App, clock: ManualClock, directory: Path, kill_in: list[int]) -> tuple[Any, int]:
    """Work a job off in processes that are killed in some of its runs; its handle, and how many runs it had."""
    script = directory / "killed.py"
    script.write_text(KILLED, encoding="utf-8")

    @app.job(name="job", retry=[Retry(ConnectionError, attempts=20)], max_attempts=3)
    def job(path: str, kill_in: list[int]) -> int: ...

    handle: Any = job.perform_later(str(directory / "runs"), kill_in)
    exits = []
    for number in range(1, len(kill_in) + 2):
        clock.advance(100)
        done = subprocess.run([sys.executable, script, str(app.path), str(number)], timeout=60, check=False)
        exits.append(done.returncode)
        if done.returncode == 0:
            break
    assert exits == [-signal.SIGKILL] * (len(exits) - 1) + [0]
    return handle, os.path.getsize(directory / "runs")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_kill_in_a_late_retry_does_not_make_the_job_dead(
    app: App, clock: ManualClock, tmp_path: Path
) -> None:
    handle, runs = run_killed(app, clock, tmp_path, [7, 13])
    assert (handle.status(), runs, handle.result()) == (JobState.DONE, 15, 15)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_job_that_kills_its_worker_is_dead_after_max_attempts_whatever_its_retries(
    app: App, clock: ManualClock, tmp_path: Path
) -> None:
    handle, runs = run_killed(app, clock, tmp_path, [2, 3, 4, 5, 6, 7, 8])
    assert (handle.status(), runs) == (JobState.DEAD, 4), "one retry, and three kills"
    assert "its worker ended under it" in str(handle.job().last_error)


# -- classes that nobody knows


def test_a_class_that_is_not_known_here_waits_for_a_worker_that_knows_it(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    handle = raising(app).perform_later()
    known = app.jobs.pop("job")
    work(app)
    found = handle.job()
    assert (found.state, found.attempts, found.last_error) == (JobState.READY, 0, None)
    assert found.available_at == clock.wall_us() / 1e6 + 15
    warning = caplog.records[-1]
    assert warning.levelno == logging.WARNING
    assert f"event=job.unknown id={handle.id}" in warning.getMessage()
    assert "job 'job' is not registered here" in warning.getMessage()
    clock.advance(3000)
    work(app)
    assert handle.status() == JobState.READY, "an hour is not over"
    app.jobs["job"] = known
    clock.advance(15)
    work(app)
    assert (seen, handle.result()) == ([(1, 1)], "returned")


def test_after_the_grace_it_is_dead_and_a_requeue_works_when_it_is_known(app: App, clock: ManualClock) -> None:
    handle = raising(app).perform_later()
    known = app.jobs.pop("job")
    work(app)
    clock.advance(3601)
    assert work(app).dead == 1
    assert handle.status() == JobState.DEAD
    assert "UnknownJobError: job 'job' is not registered here; it waited 3601 s" in str(handle.job().last_error)
    app.queue.requeue_dead(handle.id)
    work(app)
    assert handle.status() == JobState.READY, "requeued, it waits anew"
    app.jobs["job"] = known
    clock.advance(15)
    work(app)
    assert handle.result() == "returned"


def test_the_grace_begins_when_a_worker_first_sees_it(app: App, clock: ManualClock) -> None:
    handle = raising(app).set(wait=timedelta(days=2)).perform_later()
    app.jobs.clear()
    clock.advance(2 * 86400)
    work(app)
    assert handle.status() == JobState.READY
    clock.advance(3600)
    work(app)
    assert handle.status() == JobState.DEAD


def test_what_the_job_keeps_is_kept_while_it_is_unknown(app: App, clock: ManualClock) -> None:
    job = raising(app, *[OSError()] * 9, retry=[Retry(OSError, attempts=3)])
    handle = job.perform_later()
    work_on(app, clock, 2)
    known = app.jobs.pop("job")
    work_on(app, clock, 1)
    app.jobs["job"] = known
    work_on(app, clock, 2)
    assert (len(seen), handle.status()) == (3, JobState.DEAD)


@pytest.mark.parametrize("payload", [5, {"job": "x"}, {"job": 5, "args": []}, {"args": []}, ["job"], None])
def test_a_payload_that_is_no_call_is_treated_alike(app: App, clock: ManualClock, payload: Any) -> None:
    job = app.queue.enqueue(payload, lane="default")
    work(app)
    assert app.queue.get(job.id).state == JobState.READY
    clock.advance(3600)
    work(app)
    found = app.queue.get(job.id)
    assert found.state == JobState.DEAD
    assert "a payload that no application made" in str(found.last_error)


def test_a_grace_of_nothing(tmp_path: Path) -> None:
    app = App(tmp_path, unknown_job_grace=0, fsync=False)
    job = app.queue.enqueue({"job": "x", "args": []}, lane="default")
    work(app)
    assert app.queue.get(job.id).state == JobState.DEAD
    assert app.queue.check() == []
    app.close()


def test_rules_of_classes(app: App, clock: ManualClock) -> None:
    @app.register
    class Job(BaseJob):
        retry = Retry(OSError, attempts=2)
        discard = (Discard(KeyError),)
        max_attempts = 1

        def perform(self, error: str) -> None:
            seen.append(error)
            raise {"os": OSError, "key": KeyError, "value": ValueError}[error]

    handles = [Job.perform_later(error) for error in ("os", "key", "value")]
    work_on(app, clock, 3)
    assert sorted(seen) == ["key", "os", "os", "value"]
    assert [handle.status() for handle in handles] == ["dead", "done", "dead"]
