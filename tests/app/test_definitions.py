"""What may be said of a job where it is defined; what can't be meant is refused there."""

from __future__ import annotations

import functools
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
    assert functools.WRAPPER_ASSIGNMENTS and double.__wrapped__(1) == 2
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


# -- classes


def test_a_class_has_the_values_of_its_run_not_the_defaults_of_its_class(app: App) -> None:
    @app.register
    class Report(BaseJob):
        queue = "reports"
        priority = 5

        def perform(self, account_id: int, *, day: str = "today") -> None:
            seen.append((self.queue, self.queue_name, self.priority, self.attempts, self.executions))
            seen.append((self.arguments.args, self.arguments.kwargs, self.metadata, self.id))
            seen.append((self.enqueued_at, self.batch_id if hasattr(self, "batch_id") else None))

    handle = Report.set(queue="slow", priority=9, metadata={"who": ("me", 1)}).perform_later(7, day="mon")
    work(app)
    assert seen[0] == ("slow", "slow", 9, 1, 1)
    assert seen[1] == ((7,), {"day": "mon"}, {"who": ("me", 1)}, handle.id)
    assert seen[2][0] == handle.job().enqueued_at
    assert (Report.queue, Report.priority) == ("reports", 5)
    Report.perform_later(8)
    work(app)
    assert seen[3] == ("reports", "reports", 5, 1, 1)


def test_two_runs_of_a_class_share_nothing(app: App) -> None:
    @app.register
    class Counting(BaseJob):
        def perform(self) -> None:
            self._count = getattr(self, "_count", 0) + 1
            seen.append(self._count)

    app.perform_all_later([Counting.build(), Counting.build()])
    work(app)
    assert seen == [1, 1]


def test_an_async_perform_is_awaited(app: App) -> None:
    @app.register
    class Waiting(BaseJob):
        async def perform(self, x: int) -> int:
            return x + self.priority

    handle = Waiting.set(priority=3).perform_later(4)
    work(app)
    assert handle.result() == 7


def test_the_queue_may_follow_from_the_arguments(app: App) -> None:
    @app.job(queue=lambda user, **_: f"shard-{user % 2}")
    def send(user: int, *, text: str = "") -> None: ...

    @app.register
    class Send(BaseJob):
        @staticmethod
        def queue(user: int) -> str:
            return f"class-{user}"

        def perform(self, user: int) -> None:
            seen.append(self.queue_name)

    assert send.perform_later(3, text="hello").job().lane == "shard-1"
    assert send.set(queue="own").perform_later(3).job().lane == "own"
    assert Send.perform_later(5).job().lane == "class-5"
    work(app)
    assert seen == ["class-5"]

    @app.job(queue=lambda: 5, name="wrong")
    def wrong() -> None: ...

    with pytest.raises(TypeError, match="what queue of wrong returned"):
        wrong.perform_later()

    async def later() -> str:
        return "x"

    with pytest.raises(TypeError, match="not async def"):
        app.job(queue=later)(wrong.__wrapped__)


def test_classes_that_would_go_wrong_later_are_refused_at_once(app: App, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is for classes below BaseJob"):
        app.register(int)  # type: ignore[type-var]

    class Empty(BaseJob):
        pass

    with pytest.raises(TypeError, match="has no method perform"):
        app.register(Empty)

    class Static(BaseJob):
        @staticmethod
        def perform() -> None: ...

    with pytest.raises(TypeError, match="must be a plain method, not staticmethod"):
        app.register(Static)

    class NoSelf(BaseJob):
        def perform() -> None: ...  # type: ignore[misc]

    with pytest.raises(TypeError, match="must begin with the parameter self"):
        app.register(NoSelf)

    class Making(BaseJob):
        def __init__(self, thing: int) -> None:
            self.thing = thing

        def perform(self) -> None: ...

    with pytest.raises(TypeError, match=r"must need no arguments.*'thing'"):
        app.register(Making)

    class Queued(BaseJob):
        def queue(self) -> str:  # type: ignore[override]
            return "x"

        def perform(self) -> None: ...

    with pytest.raises(TypeError, match="there is no self yet"):
        app.register(Queued)

    class Rows(BaseJob):
        def perform(self) -> Iterator[int]:
            yield 1

    with pytest.raises(TypeError, match="has a yield"):
        app.register(Rows)

    assert not app.jobs


@pytest.mark.parametrize(
    ("attribute", "meant"),
    [("time_out", "timeout"), ("prority", "priority"), ("max_attempt", "max_attempts"), ("retrys", "retry"),
     ("before_perfom", "before_perform"), ("discards", "discard")],
)  # fmt: skip
def test_a_misspelt_option_of_a_class_is_not_passed_over(app: App, attribute: str, meant: str) -> None:
    cls = type("Job", (BaseJob,), {"perform": lambda self: None, attribute: 3})
    with pytest.raises(TypeError, match=f"{attribute}: did you mean {meant}"):
        app.register(cls)
    own = type("Own", (BaseJob,), {"perform": lambda self: None, f"_{attribute}": 3, "account": 1})
    app.register(own)


def test_a_class_that_is_not_registered_says_so(app: App) -> None:
    class Report(BaseJob):
        def perform(self) -> None: ...

    with pytest.raises(TypeError, match=r"put @app.register before the class"):
        Report.perform_later()
    app.register(Report)

    class Below(Report):
        pass

    with pytest.raises(TypeError, match="is not registered"):
        Below.perform_later()


def test_options_are_inherited(app: App) -> None:
    class Base(BaseJob):
        queue = "low"
        max_attempts = 1

        def before_perform(self) -> None:
            seen.append("before")

    @app.register
    class Report(Base):
        def perform(self) -> None:
            raise ValueError

    assert Report.perform_later().job().lane == "low"
    assert work(app).dead == 1
    assert seen == ["before"]


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
    exec(compile(source, f"{name}.py", "exec"), made.__dict__)
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
    with pytest.raises(TypeError, match=r"App has no option 'visibility_timout'; did you mean visibility_timeout"):
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
