"""Limits as options of jobs: what may be said, and what the queue is told of each call."""

from __future__ import annotations

from datetime import timedelta
from math import nan
from typing import Any

import pytest

from nobroker import App, BaseJob
from tests.app.limits_world import define, key_of, said

Options = dict[str, Any]

# -- definitions

WRONG: list[tuple[Options, type[Exception], str]] = [
    *(({"concurrency_limit": value}, ValueError, "concurrency_limit of define") for value in (0, -1, 2**31)),
    *(({"concurrency_limit": value}, TypeError, "concurrency_limit of") for value in (True, nan, 1.0, "2")),
    ({"concurrency_limit": 1, "concurrency_key": "account"}, TypeError, "concurrency_key of"),
    ({"concurrency_limit": 1, "concurrency_group": 5}, TypeError, "concurrency_group of"),
    ({"concurrency_limit": 1, "concurrency_group": ""}, ValueError, "concurrency_group of"),
    ({"concurrency_limit": 1, "concurrency_group": "a\n"}, ValueError, "concurrency_group of"),
    ({"concurrency_limit": 1, "concurrency_on_conflict": "drop"}, ValueError, "'wait', 'discard'"),
    ({"concurrency_limit": 1, "concurrency_on_conflict": 1}, ValueError, "concurrency_on_conflict of"),
    ({"concurrency_key": key_of}, ValueError, "concurrency_key of .* says nothing without concurrency_limit"),
    ({"concurrency_group": "g"}, ValueError, "without concurrency_limit"),
    ({"concurrency_on_conflict": "wait"}, ValueError, "without concurrency_limit"),
    ({"rate_limit_max": 5}, ValueError, "rate_limit_max of .* says nothing without rate_limit_duration"),
    ({"rate_limit_duration": 5}, ValueError, "rate_limit_duration of .* without rate_limit_max"),
    ({"rate_limit_key": key_of}, ValueError, "without rate_limit_max"),
    ({"rate_limit_group": "g"}, ValueError, "without rate_limit_max"),
    ({"rate_limit_on_throttle": "discard"}, ValueError, "without rate_limit_max"),
    *(
        ({"rate_limit_max": value, "rate_limit_duration": 1}, ValueError, "rate_limit_max of")
        for value in (0, -5, 10**6 + 1)
    ),
    *(
        ({"rate_limit_max": value, "rate_limit_duration": 1}, TypeError, "rate_limit_max of")
        for value in (True, nan, "5", lambda key: 1)
    ),
    *(
        ({"rate_limit_max": 1, "rate_limit_duration": value}, ValueError, "rate_limit_duration of")
        for value in (0, -1, nan, timedelta(0))
    ),
    ({"rate_limit_max": 1, "rate_limit_duration": True}, TypeError, "rate_limit_duration of"),
    ({"rate_limit_max": 1, "rate_limit_duration": "1m"}, TypeError, "rate_limit_duration of"),
    (
        {"rate_limit_max": 1, "rate_limit_duration": 1, "rate_limit_on_throttle": "wait"},
        ValueError,
        "'reschedule', 'discard'",
    ),
    *(({"exclusive": value}, ValueError, "exclusive of") for value in (1, 0, "yes", "App", None)),
    ({"fair_key": "tenant"}, TypeError, "fair_key of"),
    ({"fair_weight": 2}, ValueError, "fair_weight of .* says nothing without fair_key"),
    *(({"fair_key": key_of, "fair_weight": value}, ValueError, "fair_weight of") for value in (0, -1, 1001)),
    *(({"fair_key": key_of, "fair_weight": value}, TypeError, "fair_weight of") for value in (True, nan)),
]


@pytest.mark.parametrize(("options", "kind", "words"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_is_refused_where_the_job_is_defined(
    app: App, options: Options, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        define(app, **options)

    class Job(BaseJob):
        def perform(self, account: Any) -> None: ...

    for name, value in options.items():
        setattr(Job, name, staticmethod(value) if callable(value) else value)
    with pytest.raises(kind, match=words.replace("define", ".*Job")):
        app.register(Job)


@pytest.mark.parametrize(
    "option", ["concurrency_limit", "concurrency_key", "rate_limit_key", "fair_key", "fair_weight"]
)
def test_functions_are_plain(app: App, option: str) -> None:
    async def key(*args: Any) -> str:
        return "k"

    options = {
        "concurrency_limit": 1,
        "rate_limit_max": 1,
        "rate_limit_duration": 1,
        "fair_key": key_of,
        option: key,
    }
    with pytest.raises(TypeError, match=f"{option} of .* must be a plain function, not async def"):
        define(app, **options)


def test_a_misspelt_option_is_told_the_right_one(app: App) -> None:
    with pytest.raises(TypeError, match="did you mean concurrency_limit"):
        define(app, concurency_limit=3)
    with pytest.raises(TypeError, match="did you mean rate_limit_max"):
        define(app, rate_limit_maxx=3)

    class Job(BaseJob):
        concurency_key = staticmethod(key_of)

        def perform(self) -> None: ...

    with pytest.raises(TypeError, match=r"concurency_key: did you mean concurrency_key\?"):
        app.register(Job)


# -- what the queue is told


def test_a_job_without_limits_says_nothing(app: App) -> None:
    assert said(app) is None
    assert said(app, exclusive=True) is None, "which is the business of the worker process"


def test_without_a_key_it_is_the_group(app: App) -> None:
    assert said(app, concurrency_limit=3) == {"limits": [["job", 3, "wait"]]}
    found = said(app, concurrency_limit=2, concurrency_group="g", concurrency_on_conflict="discard")
    assert found == {"limits": [["g", 2, "discard"]]}
    assert said(app, rate_limit_max=5, rate_limit_duration=timedelta(minutes=1)) == {
        "rates": [["job", 5, 60.0, "reschedule"]]
    }
    found = said(
        app,
        rate_limit_max=5,
        rate_limit_duration=2.5,
        rate_limit_group="g",
        rate_limit_on_throttle="discard",
        rate_limit_key=key_of,
    )
    assert found == {"rates": [["g/7", 5, 2.5, "discard"]]}
    assert said(app, exclusive="app") == {"exclusive": "app"}
    assert said(app, fair_key=key_of) == {"fair": ["7", 1]}
    assert said(app, fair_key=key_of, fair_weight=3) == {"fair": ["7", 3]}


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        (7, ["job/7"]),
        ("7", ["job/7"]),
        ("a/b", ["job/a/b"]),
        ("Ünï 7", ["job/Ünï 7"]),
        (-1, ["job/-1"]),
        (["b", 1], ["job/1", "job/b"]),
        ((1, "1"), ["job/1"]),
        ({"b", "a"}, ["job/a", "job/b"]),
        (iter("ab"), ["job/a", "job/b"]),
        (None, None),
        ([], None),
    ],
    ids=range(11),
)
def test_the_text_of_a_key(app: App, key: Any, texts: list[str] | None) -> None:
    found = said(app, concurrency_limit=1, concurrency_key=lambda account, **_: key)
    expected = None if texts is None else {"limits": [[text, 1, "wait"] for text in texts]}
    assert found == expected


def test_numbers_by_key(app: App) -> None:
    found = said(
        app,
        concurrency_limit={"7": 3, "all": 20}.__getitem__,
        concurrency_key=lambda account, kind: [account, "all"],
        fair_key=lambda account, kind: kind,
        fair_weight=lambda key: {"x": 4}[key],
    )
    assert found == {"limits": [["job/7", 3, "wait"], ["job/all", 20, "wait"]], "fair": ["x", 4]}


def test_the_methods_of_a_class(app: App) -> None:
    seen: list[Any] = []

    @app.register
    class Report(BaseJob):
        queue = "reports"
        priority = 5
        fair_weight = 2

        def concurrency_limit(self, key: str) -> int:
            return len(key)

        def concurrency_key(self, account_id: int, **_: Any) -> Any:
            seen.append((type(self), self.id, self.arguments.args, self.arguments.kwargs))
            seen.append((self.queue_name, self.priority, self.metadata))
            return account_id

        @classmethod
        def fair_key(cls, account_id: int, day: str) -> str:
            return f"{cls.__name__}-{day}"

        @staticmethod
        def rate_limit_key(account_id: int, day: str) -> str:
            return day

        rate_limit_max = 1
        rate_limit_duration = 60

        def perform(self, account_id: int, day: str) -> None: ...

    handle = Report.set(priority=9, metadata="m").perform_later(123, day="mon")
    assert handle.job().limits == {
        "limits": [["test_the_methods_of_a_class.Report/123", 3, "wait"]],
        "rates": [["test_the_methods_of_a_class.Report/mon", 1, 60.0, "reschedule"]],
        "fair": ["Report-mon", 2],
    }
    assert seen == [(Report, None, (123,), {"day": "mon"}), ("reports", 9, "m")]


def test_options_are_inherited(app: App) -> None:
    class Base(BaseJob):
        concurrency_limit = 2

        def concurrency_key(self, *args: Any) -> str:
            return type(self).__name__

    @app.register
    class Job(Base):
        job_name = "j"

        def perform(self) -> None: ...

    assert Job.perform_later().job().limits == {"limits": [["j/Job", 2, "wait"]]}


def test_what_does_not_vary_is_made_once(app: App) -> None:
    calls: list[Any] = []
    job = define(app, concurrency_limit=1, concurrency_group="g", exclusive="app")
    by_key = app.job(name="by key", concurrency_limit=1, concurrency_key=lambda *args: calls.append(args))(
        lambda: None
    )
    for _ in range(3):
        job.perform_later()
        by_key.perform_later()
    assert len(app._enqueuer._usual) == 1
    assert calls == [()] * 3
