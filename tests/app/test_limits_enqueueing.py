"""Calls of jobs with limits: functions that go wrong, jobs that are kept out, debounce, whole queues."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from math import nan
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nobroker import App, BaseJob, JobNotFoundError, LimitError, NobrokerError, Queue
from nobroker.clock import ManualClock
from tests.app.limits_world import define, key_of, total

Options = dict[str, Any]


# -- functions that go wrong


def raising(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("no such tenant")


def generating(*_: Any, **__: Any) -> Iterator[str]:
    yield "a"
    raise ZeroDivisionError("no such tenant")


class _Text:
    def __repr__(self) -> str:
        return "<text>"


RUBBISH: list[Any] = [True, 1.5, "", b"k", {"a": 1}, [None], ["a", 2.5], [["a"]], uuid4(), _Text(), range(17)]
RUBBISH += ["x" * 255, "a\nb", "\ud800"]


@pytest.mark.parametrize("value", RUBBISH, ids=range(len(RUBBISH)))
@pytest.mark.parametrize("option", ["concurrency_key", "rate_limit_key", "fair_key"])
def test_rubbish_for_a_key(app: App, option: str, value: Any) -> None:
    options = {"concurrency_limit": 1, "rate_limit_max": 1, "rate_limit_duration": 1}
    if option == "fair_key" and isinstance(value, str) and len(value) == 255:
        value += "x"
    job = define(app, **options, **{option: lambda account=1, **_: value})
    others = app.job(name="other")(lambda: None)
    with pytest.raises(LimitError, match=f"^{option} of job gave .*; nothing was enqueued") as caught:
        job.perform_later()
    assert (caught.value.job, caught.value.option) == ("job", option)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, NobrokerError)
    with pytest.raises(LimitError):
        app.perform_all_later([others.build(), job.build()])

    def in_a_batch() -> None:
        with app.batch():
            others.perform_later()
            job.perform_later()

    with pytest.raises(LimitError):
        in_a_batch()
    assert total(app) == 0


@pytest.mark.parametrize("option", ["concurrency_limit", "fair_weight"])
@pytest.mark.parametrize("value", [0, -1, 2**31, True, 1.0, "3", None, nan], ids=repr)
def test_rubbish_for_a_number(app: App, option: str, value: Any) -> None:
    job = define(app, **{"concurrency_limit": 1, "fair_key": key_of, option: lambda key: value})
    with pytest.raises(
        LimitError, match=f"{option} of job gave .* for '.*': it must be a whole number from 1"
    ):
        job.perform_later()
    assert total(app) == 0


@pytest.mark.parametrize(
    "option", ["concurrency_limit", "concurrency_key", "rate_limit_key", "fair_key", "fair_weight"]
)
def test_functions_that_raise(app: App, option: str) -> None:
    options = {"concurrency_limit": 1, "rate_limit_max": 1, "rate_limit_duration": 1, "fair_key": key_of}
    job = define(app, **{**options, option: raising})
    with pytest.raises(
        LimitError, match=f"^{option} of job raised ZeroDivisionError: no such tenant"
    ) as caught:
        job.perform_later()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert total(app) == 0


def test_functions_that_raise_later_or_want_to_be_awaited(app: App) -> None:
    async def key() -> str:
        return "k"

    job = define(app, concurrency_limit=1, concurrency_key=generating)
    with pytest.raises(LimitError, match="raised ZeroDivisionError"):
        job.perform_later()
    app.jobs.clear()
    job = define(app, concurrency_limit=1, concurrency_key=lambda *_, **__: key())
    with pytest.raises(LimitError, match="it gave a coroutine"):
        job.perform_later()
    app.jobs.clear()
    job = define(app, concurrency_limit=1, concurrency_key=lambda wrong: "k")
    with pytest.raises(LimitError, match="raised TypeError"):
        job.perform_later(1, more=2)
    assert total(app) == 0


def test_a_method_that_raises(app: App) -> None:
    @app.register
    class Job(BaseJob):
        concurrency_limit = 1

        def concurrency_key(self) -> str:
            return self.nothing  # type: ignore[attr-defined,no-any-return]

        def perform(self) -> None: ...

    with pytest.raises(LimitError, match=r"concurrency_key of .*Job raised AttributeError"):
        Job.perform_later()


# -- discarded


def test_a_job_that_a_limit_keeps_out(app: App) -> None:
    job = define(app, concurrency_limit=1, concurrency_key=key_of, concurrency_on_conflict="discard")
    first, second, other = job.perform_later(1), job.perform_later(1), job.perform_later(2)
    assert (first.created, second.created, other.created) == (True, False, True)
    assert "a limit" in str(second.discarded)
    assert first.discarded is None
    with pytest.raises(JobNotFoundError, match="has no id: a limit with the choice discard kept it out"):
        second.id  # noqa: B018
    with pytest.raises(JobNotFoundError, match="a limit"):
        second.result()
    assert total(app) == 2
    third = job.set(job_id="mine").perform_later(1)
    assert not third.created
    assert third.discarded == second.discarded
    again = job.set(job_id="mine").perform_later(3)
    assert again.created, "its id was not used up"
    known = job.set(job_id="mine").perform_later(4)
    assert (known.created, known.id, known.discarded) == (False, "mine", None)


def test_in_a_write_of_many(app: App) -> None:
    job = define(app, concurrency_limit=2, concurrency_on_conflict="discard")
    plain = app.job(name="plain")(lambda: None)
    handles = app.perform_all_later([job.build(), plain.build(), job.build(), job.build(), plain.build()])
    assert [handle.created for handle in handles] == [True, True, True, False, True]
    assert handles[3].discarded is not None
    assert [handle.job().state for handle in handles if handle.created] == ["ready"] * 4
    assert [handle.created for handle in app.perform_all_later([job.build()] * 3)] == [False] * 3
    assert total(app) == 4


def test_hooks_of_one_that_is_kept_out(app: App) -> None:
    told: list[Any] = []
    job = define(app, rate_limit_max=1, rate_limit_duration=60, rate_limit_on_throttle="discard")
    job.before_enqueue(lambda context: told.append("before"))
    job.after_enqueue(lambda context: told.append(context.id))
    first = job.perform_later()
    assert not job.perform_later().created
    assert told == ["before", first.id, "before"]


# -- debounce


def test_the_newest_arguments_win(app: App, clock: ManualClock) -> None:
    seen: list[Any] = []

    @app.job
    def index(page: int, version: int) -> None:
        seen.append((page, version))

    for version in range(4):
        handle = index.set(job_id="page 1", debounce=10, debounce_max=25).perform_later(1, version)
        assert handle.created == (version == 0)
        app.run(once=True)
        clock.advance(8)
    assert seen == [], "32 s have passed, of which it was pushed back three times"
    app.run(once=True)
    assert seen == [(1, 3)], "no later than the maximum"
    assert index.set(job_id="page 1", debounce=timedelta(seconds=10)).perform_later(1, 9).created
    clock.advance(10)
    app.run(once=True)
    assert seen == [(1, 3), (1, 9)]


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"debounce": 5}, ValueError, "debounce needs a job_id"),
        ({"job_id": "a", "debounce": 0}, ValueError, "debounce"),
        ({"job_id": "a", "debounce": -1}, ValueError, "debounce"),
        ({"job_id": "a", "debounce": nan}, ValueError, "debounce"),
        ({"job_id": "a", "debounce": True}, TypeError, "debounce"),
        (
            {"job_id": "a", "debounce": 5, "debounce_max": 4},
            ValueError,
            "debounce_max must be at least debounce",
        ),
        ({"job_id": "a", "debounce_max": 4}, ValueError, "debounce_max says nothing without debounce"),
        ({"job_id": "a", "debounce": 5, "wait": 5}, ValueError, "not both"),
        ({"job_id": "a", "debounc": 5}, TypeError, "did you mean debounce"),
    ],
)
def test_what_cannot_be_said_of_a_debounce(
    app: App, options: Options, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        define(app).set(**options)


def test_a_debounce_goes_with_one_call_at_a_time(app: App) -> None:
    job = define(app)
    prepared = job.set(job_id="a", debounce=5).build()
    with pytest.raises(ValueError, match=r"job is set to debounce, .* not in batches, chains and"):
        app.perform_all_later([prepared])
    with pytest.raises(ValueError, match="debounce"), app.batch():
        job.set(job_id="a", debounce=5).perform_later()
    with pytest.raises(ValueError, match="debounce"):
        app.batch(on_success=prepared)
    assert total(app) == 0
    assert [handle.created for handle in app.perform_all_later([prepared, prepared], hooks=True)] == [
        True,
        False,
    ]


# -- whole queues


def test_the_limit_of_a_queue_is_in_force_when_it_is_opened(tmp_path: Path) -> None:
    app = App(tmp_path / "jobs", fsync=False)
    app.queue_limit("reports", 2)
    app.queue_limit("mails", 9)
    app.queue_limit("mails", None)
    assert not (tmp_path / "jobs").exists(), "saying so touches no disk"
    assert app.queue.lane_limits == {"reports": 2}
    app.queue_limit("reports", 3)
    assert app.queue.lane_limits == {"reports": 3}
    app.close()
    assert app.queue.lane_limits == {"reports": 3}
    app.queue_limit("reports", None)
    assert app.queue.lane_limits == {}
    assert app.queue.check() == []
    app.close()


def test_a_limit_that_stands_is_not_written_again(tmp_path: Path) -> None:
    for _ in range(3):
        app = App(tmp_path, fsync=False)
        app.queue_limit("reports", 2)
        end = app.queue.path.stat().st_size
        before = app.queue._store._session.log.position  # type: ignore[attr-defined]
        app.queue_limit("reports", 2)
        assert app.queue._store._session.log.position == before  # type: ignore[attr-defined]
        assert app.queue.path.stat().st_size == end
        app.close()
    with Queue(tmp_path) as queue:
        assert queue.lane_limits == {"reports": 2}


def test_a_queue_that_may_only_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    Queue(tmp_path).close()
    app = App(tmp_path, read_only=True)
    app.queue_limit("reports", 2)
    assert app.queue.lane_limits == {}
    app.close()


@pytest.mark.parametrize(
    ("queue", "limit", "kind"),
    [
        ("reports", 0, ValueError),
        ("reports", -1, ValueError),
        ("reports", True, TypeError),
        ("reports", nan, TypeError),
        ("reports", "2", TypeError),
        ("", 2, ValueError),
        ("a*", 2, ValueError),
        (5, 2, TypeError),
        ("nobroker.watch", 2, ValueError),
    ],
)
def test_what_cannot_be_the_limit_of_a_queue(app: App, queue: Any, limit: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        app.queue_limit(queue, limit)
    assert app.queue.lane_limits == {}
