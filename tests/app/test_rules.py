"""What becomes of a job that fails: rules, verdicts of its own code, kills, and classes nobody knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nobroker import (
    App,
    BackoffPolicy,
    Discard,
    JobState,
    Rescue,
    Retry,
    current_job,
)
from nobroker.clock import ManualClock
from tests.app.working import raising, work, work_on

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


# -- Retry


def test_attempts_of_a_retry_mean_what_they_say_whatever_max_attempts_is(
    app: App, clock: ManualClock
) -> None:
    assert app.queue.max_attempts == 5
    job = raising(app, seen, *[ConnectionError()] * 50, retry=[Retry(ConnectionError, attempts=20, wait=1)])
    handle = job.perform_later()
    work_on(app, clock, 19, seconds=1)
    assert handle.status() == JobState.READY
    work_on(app, clock, 5, seconds=1)
    assert [attempts for attempts, _ in seen] == list(range(1, 21))
    assert handle.status() == JobState.DEAD
    assert "ConnectionError" in str(handle.job().last_error)


def test_a_few_attempts_of_a_retry_are_not_more_either(app: App, clock: ManualClock) -> None:
    job = raising(
        app, seen, *[ConnectionError()] * 9, retry=Retry(ConnectionError, attempts=2), max_attempts=7
    )
    handle = job.perform_later()
    work_on(app, clock, 5)
    assert (len(seen), handle.status()) == (2, JobState.DEAD)


def test_each_rule_has_a_counter_of_its_own_and_other_errors_have_max_attempts(
    app: App, clock: ManualClock
) -> None:
    errors = [OSError(), KeyError(), OSError(), ValueError(), KeyError(), KeyError(), OSError(), ValueError()]
    job = raising(
        app, seen, *errors, retry=[Retry(OSError, attempts=4), Retry(KeyError, attempts=4)], max_attempts=3
    )
    handle = job.perform_later()
    work_on(app, clock, 12)
    assert (len(seen), handle.result()) == (9, "returned")


def test_the_first_rule_that_matches_wins(app: App, clock: ManualClock) -> None:
    job = raising(
        app,
        seen,
        *[ConnectionError()] * 9,
        retry=[Retry((OSError, KeyError), attempts=2), Retry(ConnectionError, attempts=9)],
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
    job = raising(app, seen, OSError(), OSError(), retry=[Retry(OSError, attempts=3, wait=wait)])
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
    job = raising(
        app, seen, *[OSError()] * 9, retry=[Retry(OSError, wait=lambda attempt: "soon")], max_attempts=2
    )  # type: ignore[arg-type,return-value]
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
    job = raising(app, seen, *[OSError()] * 5, retry=[Retry(OSError, attempts=3)], max_attempts=1)
    handle = job.perform_later()
    work_on(app, clock, 4)
    assert (len(seen), handle.status()) == (3, JobState.DEAD)
    assert app.queue.requeue_dead(handle.id) == 1
    work_on(app, clock, 4)
    assert (len(seen), handle.status(), handle.result()) == (6, JobState.DONE, "returned")


# -- Discard, Rescue, and the order


def test_discard_ends_the_job_and_keeps_the_reason(app: App) -> None:
    job = raising(
        app,
        seen,
        KeyError("gone"),
        discard=[Discard(LookupError, lambda job, error: seen.append(error.args))],
    )
    handle = job.perform_later()
    stats = work(app)
    assert (stats.succeeded, stats.failed) == (1, 0)
    assert (handle.status(), handle.discarded, handle.job().last_error) == (
        JobState.DONE,
        "KeyError: 'gone'",
        None,
    )
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
        handle = raising(app, seen, error, discard=Discard(Exception)).perform_later()
        work(app)
        assert handle.discarded == reason


def test_a_handler_of_a_discard_that_raises_is_the_jobs_failure(app: App) -> None:
    def handler(job: Any, error: BaseException) -> None:
        raise RuntimeError("handler")

    handle = raising(
        app, seen, KeyError(), discard=[Discard(KeyError, handler)], max_attempts=1
    ).perform_later()
    work(app)
    assert handle.status() == JobState.DEAD
    assert str(handle.job().last_error).startswith("RuntimeError: handler")


def test_rescue_makes_a_result_of_the_error(app: App) -> None:
    job = raising(
        app, seen, KeyError("x"), rescue=[Rescue(KeyError, lambda job, error: (job.job_class, error.args))]
    )
    handle = job.perform_later()
    work(app)
    assert handle.result() == ("job", ("x",))
    assert handle.discarded is None


def test_a_rescue_that_raises_is_the_jobs_failure(app: App, clock: ManualClock) -> None:
    def handler(job: Any, error: BaseException) -> None:
        raise RuntimeError("handler")

    handle = raising(
        app, seen, KeyError(), KeyError(), rescue=Rescue(KeyError, handler), max_attempts=2
    ).perform_later()
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
        handle = raising(app, seen, OSError(), OSError(), **rules(*kinds)).perform_later()
        work_on(app, clock, 3)
        assert (len(seen), handle.result(), handle.discarded) == (runs, result, reason), kinds


def test_what_no_rule_deals_with_has_the_queues_backoff_and_max_attempts(
    app: App, clock: ManualClock
) -> None:
    for options, runs in (
        ({"max_attempts": 2}, 2),
        ({}, 5),
        ({"max_attempts": 2, "retry": [Retry(KeyError)]}, 2),
    ):
        app.jobs.clear()
        seen.clear()
        handle = raising(app, seen, *[ValueError("text")] * 9, **options).perform_later()
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
        handle = raising(app, seen, max_attempts=enqueued).perform_later()
        app.jobs.clear()
        raising(app, seen, *[ValueError()] * 9, max_attempts=running)
        work_on(app, clock, 8)
        assert (len(seen), handle.status()) == (running, JobState.DEAD)


# -- rules that are none


def test_rules_that_can_not_be_meant_are_refused() -> None:
    for kind in (Retry, Discard):
        for wrong in (
            3,
            "ValueError",
            [ValueError],
            (ValueError, 3),
            BaseException,
            KeyboardInterrupt,
            ValueError(),
        ):
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
