"""Calls onto the queue: `perform_later`, `set`, `build`, `perform_all_later`, `perform_now`."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nobroker import App, BaseJob, Dead, Discard, JobState, RetryLater, SerializationError, current_job
from nobroker import Retry as RetryRule
from nobroker.app import Rescue
from nobroker.clock import ManualClock
from tests.app.working import work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@pytest.fixture
def note(app: App) -> Any:
    @app.job(queue="notes", priority=2, expires_in=900)
    def note(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    return note


# -- signatures: refused where the call is written


def test_arguments_that_do_not_fit_are_refused_at_perform_later(app: App) -> None:
    @app.job
    def send(user: int, /, text: str, copy: bool = False, *, locale: str, size: int = 1) -> None:
        seen.append((user, text, copy, locale, size))

    send.perform_later(1, "a", locale="de")
    send.perform_later(1, text="a", copy=True, locale="de", size=3)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((), {}, "missing 2 required positional arguments"),
        ((1,), {"locale": "de"}, "missing 1 required positional argument: 'text'"),
        ((1, "a"), {}, "missing 1 required keyword-only argument: 'locale'"),
        ((1, "a", True, 3), {"locale": "de"}, "takes from 2 to 3 positional arguments but 4"),
        ((1, "a"), {"locale": "de", "extra": 1}, "unexpected keyword argument 'extra'"),
        ((1, "a"), {"locale": "de", "text": "b"}, "multiple values for argument 'text'"),
        (
            ("a",),
            {"user": 1, "text": "b", "locale": "de"},
            "positional-only arguments passed as keyword arguments: 'user'",
        ),
    ]
    for args, kwargs, words in wrong:
        for call in (send.perform_later, send.build, send.set(wait=5).perform_later, send.perform_now):
            with pytest.raises(TypeError) as refused:
                call(*args, **kwargs)
            assert words in str(refused.value)
            assert "send()" in str(refused.value)
    assert app.queue.stats().total == 2
    work(app)
    assert seen == [(1, "a", False, "de", 1), (1, "a", True, "de", 3)]


def test_the_signatures_of_methods_and_async_functions_count_without_self(app: App) -> None:
    @app.register
    class Report(BaseJob):
        async def perform(self, account: int, day: str = "today", **more: int) -> None:
            seen.append((account, day, more))

    @app.register
    class Any_(BaseJob):
        def perform(*args: int) -> None:
            seen.append(args[1:])

    Report.perform_later(1, other=2)
    Any_.perform_later(1, 2)
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((), {"day": "x"})):
        with pytest.raises(TypeError, match=r"Report\(\)"):
            Report.perform_later(*args, **kwargs)
    with pytest.raises(TypeError, match="unexpected keyword"):
        Any_.perform_later(x=1)
    work(app)
    assert seen == [(1, "today", {"other": 2}), (1, 2)]


def test_variable_arguments_and_defaults(app: App, note: Any) -> None:
    note.perform_later()
    note.perform_later(1, 2, x=3, **{"odd name": 4, "$": 5})
    work(app)
    assert seen == [((), {}), ((1, 2), {"x": 3, "odd name": 4, "$": 5})]


# -- set


def test_set_says_how_a_call_is_enqueued(app: App, note: Any, clock: ManualClock) -> None:
    now = clock.wall_us() / 1e6
    job = note.perform_later().job()
    assert (job.lane, job.priority, job.available_at, job.expires_at) == ("notes", 2, now, now + 900)
    job = note.set(wait=30, queue="own", priority=-4, expires_in=timedelta(minutes=2)).perform_later().job()
    assert (job.lane, job.priority, job.available_at, job.expires_at) == ("own", -4, now + 30, now + 120)
    assert note.set(wait=timedelta(hours=1)).perform_later().job().available_at == now + 3600
    later = datetime.fromtimestamp(now, UTC) + timedelta(days=1)
    berlin = later.astimezone(ZoneInfo("Europe/Berlin"))
    for moment in (later, berlin):
        assert note.set(wait_until=moment).perform_later().job().available_at == now + 86400
    assert note.set(metadata={"by": (1, 2)}).perform_later().job().metadata == {
        "by": {"$": ["tuple", [1, 2]]}
    }


def test_a_delayed_job_runs_when_its_time_has_come(app: App, note: Any, clock: ManualClock) -> None:
    note.set(wait=30).perform_later("late")
    work(app)
    assert seen == []
    clock.advance(30)
    work(app)
    assert seen == [(("late",), {})]


def test_a_later_word_counts_and_the_job_itself_stays_as_it_was(app: App, note: Any) -> None:
    first = note.set(wait=30, priority=1)
    second = first.set(wait=60)
    third = second.set(wait_until=datetime(2040, 1, 1, tzinfo=UTC))
    jobs = [one.perform_later().job() for one in (first, second, third, note)]
    now = jobs[3].available_at
    assert [round(job.available_at - now) for job in jobs[:2]] == [30, 60]
    assert jobs[2].available_at == datetime(2040, 1, 1, tzinfo=UTC).timestamp()
    assert [job.priority for job in jobs] == [1, 1, 1, 2]


def test_a_naive_datetime_is_refused_because_it_means_another_moment_elsewhere(app: App, note: Any) -> None:
    with pytest.raises(ValueError, match="must have a time zone"):
        note.set(wait_until=datetime(2030, 1, 1))
    with pytest.raises(TypeError, match="aware datetime, not date"):
        note.set(wait_until=date(2030, 1, 1))


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ({"wiat": 3}, TypeError, "did you mean wait?"),
        ({"run_at": 3}, TypeError, "there are: wait, wait_until, queue"),
        ({"wait": -1}, ValueError, "wait must be"),
        ({"wait": "5"}, TypeError, "wait must be"),
        ({"wait": True}, TypeError, "wait must be"),
        ({"wait": float("inf")}, ValueError, "wait must be"),
        ({"wait": 1, "wait_until": datetime(2030, 1, 1, tzinfo=UTC)}, ValueError, "not both"),
        ({"queue": "a,b"}, ValueError, "queue"),
        ({"queue": 5}, TypeError, "queue"),
        ({"priority": 1.5}, TypeError, "priority"),
        ({"priority": 2**40}, ValueError, "priority"),
        ({"job_id": 5}, TypeError, "job_id"),
        ({"expires_in": 0}, ValueError, "expires_in"),
    ],
)
def test_what_set_does_not_know_or_understand_is_refused(
    app: App, note: Any, wrong: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as refused:
        note.set(**wrong)
    assert words in str(refused.value)


def test_metadata_that_cannot_be_stored_is_refused(app: App, note: Any) -> None:
    with pytest.raises(SerializationError, match=r"metadata\['x'\] is of type builtins.object"):
        note.set(metadata={"x": object()}).perform_later()
    assert app.queue.stats().total == 0


def test_an_id_of_ones_own_is_enqueued_once(app: App, note: Any) -> None:
    first = note.set(job_id="invoice-7").perform_later(1)
    second = note.set(job_id="invoice-7").perform_later(2)
    assert (first.id, first.created, second.id, second.created) == ("invoice-7", True, "invoice-7", False)
    work(app)
    assert seen == [((1,), {})]


def test_a_job_that_is_not_begun_in_time_is_dead(app: App, note: Any, clock: ManualClock) -> None:
    handle = note.perform_later()
    clock.advance(901)
    work(app)
    assert (seen, handle.status(), handle.job().last_error) == ([], JobState.DEAD, "expired")


# -- many at once


def test_perform_all_later_is_one_write_all_or_none(app: App, note: Any) -> None:
    @app.job
    def other(x: int) -> int:
        return x

    mixed = [
        note.build(1),
        other.build(2),
        note.set(queue="own", wait=5).build(3),
        other.set(job_id="o").build(4),
    ]
    handles = app.perform_all_later(mixed)
    assert [handle.job().lane for handle in handles] == ["notes", "default", "own", "default"]
    assert handles[3].id == "o"
    assert [handle.created for handle in handles] == [True] * 4
    assert app.perform_all_later([other.set(job_id="o").build(5)])[0].created is False
    with pytest.raises(SerializationError, match="argument 0 of"):
        app.perform_all_later([note.build(1), note.build(object())])
    assert app.queue.stats().total == 4
    assert len(app.perform_all_later([])) == 0
    alike = app.perform_all_later([other.build(x) for x in range(100)])
    work(app)
    assert [handle.result() for handle in alike] == list(range(100))
    assert [handle.id for handle in alike[3:5]] == [alike[3].id, alike[4].id]
    assert alike[-1].result() == 99
    assert repr(alike) == "<100 job handles>"


def test_perform_all_later_takes_only_what_build_gives(app: App, note: Any) -> None:
    for thing in (note, 5, note.perform_later(), (1, 2)):
        with pytest.raises(TypeError, match="takes what build"):
            app.perform_all_later([note.build(), thing])
    with pytest.raises(TypeError):
        app.perform_all_later(note.build())
    assert app.queue.stats().total == 1


# -- here and now


def test_perform_now_runs_here_and_gives_what_the_job_returns(app: App) -> None:
    marker = object()

    @app.job(queue="slow", priority=3)
    def job(x: Any) -> Any:
        it = current_job()
        seen.append((it.id, it.attempts, it.executions, it.queue_name, it.priority, it.metadata))
        seen.append(it.arguments.args)
        it.progress(0.5, "half")
        return marker

    assert job.perform_now((1, [2])) is marker, "also what could not be stored"
    assert seen == [(None, 1, 1, "slow", 3, None), ((1, [2]),)]
    assert not current_job_runs()


def current_job_runs() -> bool:
    try:
        current_job()
    except LookupError:
        return False
    return True


def test_perform_now_of_async_jobs_with_and_without_a_running_loop(app: App) -> None:
    @app.job
    async def job(x: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return x * 2, current_job().job_class

    async def main() -> Any:
        return job.perform_now(4)

    expected = job.definition.name
    assert job.perform_now(3) == (6, expected)
    assert asyncio.run(main()) == (8, expected)

    @app.job
    async def failing() -> None:
        raise KeyError("x")

    async def fails() -> Any:
        return failing.perform_now()

    for call in (failing.perform_now, lambda: asyncio.run(fails())):
        with pytest.raises(KeyError):
            call()


def test_perform_now_raises_what_the_job_raises_but_for_what_rules_deal_with(app: App) -> None:
    told: list[Any] = []

    @app.job(
        retry=[
            RetryRule(ConnectionError, attempts=1, handler=lambda job, error: "given up"),
            RetryRule(OSError),
        ],
        discard=[Discard(KeyError)],
        rescue=[Rescue(IndexError, lambda job, error: (job.job_class, str(error)))],
        max_attempts=1,
    )
    def job(error: type[Exception] | None, *args: Any) -> Any:
        if error is not None:
            raise error(*args)

    job.after_dead(lambda its, error: told.append(error))
    assert job.perform_now(KeyError, "x") is None
    assert job.perform_now(IndexError, "x") == (job.definition.name, "x")
    assert job.perform_now(ConnectionError) == "given up"
    for kind in (ValueError, OSError):
        with pytest.raises(kind) as raised:
            job.perform_now(kind, "text")
        assert raised.value.__cause__ is None
    with pytest.raises(RetryLater):
        job.perform_now(RetryLater, 5)
    with pytest.raises(Dead):
        job.perform_now(Dead, "no")
    assert told == [], "nothing on the queue has died"


def test_perform_now_inside_a_job_does_not_disturb_it(app: App) -> None:
    @app.job(name="inner")
    def inner() -> str:
        return current_job().job_class

    @app.job(name="outer")
    def outer() -> list[str]:
        return [current_job().job_class, inner.perform_now(), current_job().job_class]

    handle = outer.perform_later()
    work(app)
    assert handle.result() == ["outer", "inner", "outer"]


def test_enqueueing_from_many_threads(app: App, note: Any) -> None:
    threads = [threading.Thread(target=lambda: [note.perform_later(x) for x in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work(app, threads=4).succeeded == 80
