"""What may be said of a job where it is defined; what can't be meant is refused there."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nobroker import App, BaseJob, DuplicateJobError, current_job
from nobroker.app import JobFunction
from tests.app.working import work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


# -- functions


def test_a_job_is_still_the_function(app: App) -> None:
    @app.job
    def double(number: int) -> int:
        """Twice."""
        return number * 2

    @app.job(queue="numbers")
    async def halve(number: int) -> float:
        return number / 2

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert inspect.signature(double) == inspect.signature(double.__wrapped__)
    coroutine = halve(3)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value == 1.5
    assert repr(double).startswith("<job ")


def test_plain_and_async_jobs_run_beside_each_other(app: App) -> None:
    @app.job
    def plain(x: int) -> str:
        return f"plain {x}"

    @app.job
    async def waiting(x: int) -> str:
        return f"async {x}"

    handles = [job.perform_later(x) for x in range(5) for job in (plain, waiting)]
    stats = work(app, threads=3)
    assert stats.succeeded == 10
    assert [handle.result() for handle in handles] == [
        f"{kind} {x}" for x in range(5) for kind in ("plain", "async")
    ]


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"quue": "x"}, "did you mean queue?"),
        ({"timout": 3}, "did you mean timeout?"),
        ({"retries": []}, "did you mean retry?"),
        ({"zzz": 1}, "there are: name, queue, priority"),
    ],
)
def test_unknown_options_are_refused_with_the_nearest(app: App, wrong: dict[str, Any], hint: str) -> None:
    with pytest.raises(TypeError, match="has no option") as refused:
        app.job(**wrong)(lambda: None)
    assert hint in str(refused.value)
    assert not app.jobs


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"queue": 3}, TypeError),
        ({"queue": ""}, ValueError),
        ({"queue": "a*"}, ValueError),
        ({"queue": "a,b"}, ValueError),
        ({"priority": "high"}, TypeError),
        ({"priority": True}, TypeError),
        ({"priority": 2**31}, ValueError),
        ({"max_attempts": 0}, ValueError),
        ({"max_attempts": 1.5}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": "30"}, TypeError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": True}, TypeError),
        ({"expires_in": timedelta(seconds=-1)}, ValueError),
        ({"max_resumptions": -1}, ValueError),
        ({"name": ""}, TypeError),
        ({"retry": 5}, TypeError),
        ({"retry": [ValueError]}, TypeError),
        ({"discard": "ValueError"}, TypeError),
    ],
)
def test_options_of_a_wrong_type_or_range_are_refused(
    app: App, wrong: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=next(iter(wrong))):

        @app.job(**wrong)
        def job() -> None: ...

    assert not app.jobs


def test_only_functions_are_taken(app: App) -> None:
    for thing in (3, len, "text", staticmethod(len), BaseJob):
        with pytest.raises(TypeError, match=r"@app.job is for functions"):
            app.job(thing)  # type: ignore[call-overload]


def test_a_function_with_a_yield_would_run_none_of_it(app: App) -> None:
    def rows() -> Iterator[int]:
        yield 1

    async def pages() -> AsyncIterator[int]:
        yield 1

    for generator in (rows, pages):
        with pytest.raises(TypeError, match="has a yield"):
            app.job(generator)


def test_what_would_never_be_awaited_or_run_fails_the_job(app: App) -> None:
    async def waits() -> int:
        return 1

    def yields() -> Iterator[int]:
        yield 1

    @app.job(name="a", max_attempts=1)
    def a() -> Any:
        return waits()

    @app.job(name="b", max_attempts=1)
    def b() -> Any:
        return yields()

    handles = [a.perform_later(), b.perform_later()]
    assert work(app).dead == 2
    for handle, what in zip(handles, ("coroutine", "generator"), strict=True):
        assert f"returned {what}, which nothing would await or run" in str(handle.job().last_error)


# -- names


def test_names_are_the_function_and_the_class_unless_said_otherwise(app: App) -> None:
    @app.job(name="mail.send")
    def send() -> None: ...

    @app.register
    class Report(BaseJob):
        job_name = "report"

        def perform(self) -> None: ...

    assert sorted(app.jobs) == ["mail.send", "report"]
    assert send.perform_later().job().payload == {"job": "mail.send", "args": []}


def module(app: App, name: str, source: str) -> ModuleType:
    made = ModuleType(name)
    made.__dict__["app"] = app
    exec(compile(source, f"{name}.py", "exec"), made.__dict__)  # noqa: S102 - the test's own source
    return made


JOB = "@app.job\ndef send(): ...\n"


def test_two_jobs_of_one_name_are_an_error_that_names_both_modules(app: App) -> None:
    module(app, "first", JOB)
    with pytest.raises(DuplicateJobError, match=r"first \(line 1\).*second \(line 1\)"):
        module(app, "second", JOB)
    with pytest.raises(DuplicateJobError, match=r"first \(line 1\).*first \(line 3\)"):
        module(app, "first", f"\n\n{JOB}")


def test_a_module_that_is_loaded_again_is_no_duplicate(app: App) -> None:
    module(app, "first", JOB)
    again = module(app, "first", JOB)
    assert app.jobs["send"] is again.send.definition


def test_several_applications_in_one_process(app: App, tmp_path: Path) -> None:
    other = App(tmp_path / "other", fsync=False)

    @app.job(name="job")
    def mine() -> str:
        return "mine"

    @other.job(name="job")
    def theirs() -> str:
        return "theirs"

    @app.register
    class Report(BaseJob):
        def perform(self) -> None: ...

    with pytest.raises(TypeError, match="registered with another application"):
        other.register(Report)
    with pytest.raises(TypeError, match="is for functions"):
        other.job(mine)  # type: ignore[call-overload]

    @app.job
    def crossing() -> str:
        handle = theirs.perform_later()
        work(other)
        assert current_job().job_class.endswith("crossing")
        return str(handle.result())

    first, second, third = mine.perform_later(), theirs.perform_later(), crossing.perform_later()
    assert app.queue.stats().ready == 2
    work(app)
    assert (first.result(), second.result(), third.result()) == ("mine", "theirs", "theirs")
    assert other.queue.check() == []
    other.close()


# -- the application


def test_an_option_that_the_queue_does_not_have_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"App has no option 'visibility_timout'; did you mean visibility_timeout"
    ):
        App(tmp_path, visibility_timout=30)
    for wrong in (-1, "1h", float("nan")):
        with pytest.raises((TypeError, ValueError), match="unknown_job_grace"):
            App(tmp_path, unknown_job_grace=wrong)  # type: ignore[arg-type]


def test_making_an_application_touches_no_disk(tmp_path: Path) -> None:
    app = App(tmp_path / "jobs")

    @app.job
    def job() -> str:
        return "ran"

    job.build()
    assert job.perform_now() == "ran"
    assert not (tmp_path / "jobs").exists()
    app.close()


def test_the_queue_is_opened_again_after_close(app: App) -> None:
    @app.job
    def job() -> None: ...

    handle = job.perform_later()
    app.close()
    app.close()
    work(app)
    assert handle.status() == "done"


# -- the logger


def test_the_logger_is_a_real_one(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    @app.job(queue="mail", name="100%")
    def job() -> None:
        logger = current_job().logger
        logger.info("%d of %s", 3, "four", extra={"mine": 1})
        logger.info("100% sure")
        logger.warning("{braces} %(name)s")
        logger.debug("too low")
        try:
            raise ValueError("x")
        except ValueError:
            logger.exception("went %s", "wrong")

    handle = job.set(job_id="id-5%d").perform_later()
    work(app)
    records = [record for record in caplog.records if record.name == "nobroker.job"]
    front = "[100% id-5%d] "
    assert [record.getMessage() for record in records] == [
        front + "3 of four", front + "100% sure", front + "{braces} %(name)s", front + "went wrong"
    ]  # fmt: skip
    for record in records:
        assert (record.job_id, record.job_class, record.job_queue) == (handle.id, "100%", "mail")  # type: ignore[attr-defined]
        assert record.funcName == "job"
    assert records[0].mine == 1  # type: ignore[attr-defined]
    assert records[3].exc_info


def test_job_functions_are_what_app_job_gives(app: App) -> None:
    @app.job
    def job() -> None: ...

    assert isinstance(job, JobFunction)
