"""Jobs as classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, BaseJob, DuplicateJobError
from tests.app.working import work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


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


def test_a_class_that_was_refused_cannot_be_enqueued(app: App) -> None:
    class Report(BaseJob):
        def perform(self) -> None: ...

    class Other(BaseJob):
        job_name = Report.__qualname__.replace("<locals>.", "")

        def perform(self) -> None: ...

    app.register(Report)
    with pytest.raises(DuplicateJobError):
        app.register(Other)
    with pytest.raises(TypeError, match="is not registered"):
        Other.perform_later()
