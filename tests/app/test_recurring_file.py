"""Recurring tasks in a file: each error names file, line, task and key, and stops no other entry."""

from __future__ import annotations

import sys
import textwrap
import time
from datetime import date
from pathlib import Path

import pytest

from nobroker import App, BaseJob, ConfigError, MissingExtraError, RecurringError
from nobroker.app.recurring_file import read


@pytest.fixture
def shop(app: App) -> App:
    @app.job(name="send")
    def send(to: str = "", *, day: date | None = None) -> None: ...

    @app.register
    class Report(BaseJob):
        job_name = "Report"

        def perform(self, *days: date) -> None: ...

    return app


def take(app: App, directory: Path, text: str) -> list[str]:
    """What is wrong in the file, without its name."""
    path = directory / "recurring.yml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    app.recurring_file(path)
    errors = app.recurring_errors()
    for error in errors:
        assert error.file == str(path)
        assert str(error).startswith(f"{path}, line {error.line}")
    return [str(error).removeprefix(f"{path}, ") for error in errors]


def test_all_that_can_be_said(shop: App, tmp_path: Path) -> None:
    errors = take(
        shop,
        tmp_path,
        f"""
        # for everybody
        nightly: &usual
          class: Report
          schedule: every day at 03:00
          timezone: Europe/Berlin
          args: [2026-01-01, 2026-01-02]
          queue: reports
          priority: 5
          missed: skip
          grace: 5m
        mails:
          function: {shop.jobs["send"].module}.{shop.jobs["send"].target.__qualname__}
          schedule: "0 9 * * 1-5 America/New_York"
          kwargs: {{to: ann, day: 2026-01-01}}
        "again: ü":
          <<: *usual
          schedule: "@hourly"
        """,
    )
    assert errors == []
    again, mails, nightly = shop.recurring_tasks()
    assert (again.name, again.job, again.schedule, again.grace) == ("again: ü", "Report", "@hourly", 300)
    assert (nightly.name, nightly.job, nightly.schedule, nightly.timezone) == (
        "nightly",
        "Report",
        "every day at 03:00",
        "Europe/Berlin",
    )
    assert (nightly.queue, nightly.missed, nightly.grace) == ("reports", "skip", 300)
    assert (mails.name, mails.job, mails.schedule) == ("mails", "send", "0 9 * * 1-5")
    handle = shop.run_recurring_now("nightly")
    job = shop.queue.get(handle.id or "")
    assert (job.priority, job.payload["args"]) == (5, [date(2026, 1, 1), date(2026, 1, 2)])


BAD = [
    ("class: Reprot\n  schedule: '@daily'", 1, "class", "did you mean Report?"),
    ("class: 5\n  schedule: '@daily'", 1, "class", "the name of a job"),
    ("function: Report\n  schedule: '@daily'", 1, "function", "write class: Report"),
    ("class: send\n  schedule: '@daily'", 1, "class", "write function: send"),
    ("schedule: '@daily'", 0, "class", "either class or function"),
    ("function: send\n  class: Report\n  schedule: '@daily'", 2, "class", "either class or function"),
    ("function: send", 0, "schedule", "says no schedule"),
    ("function: send\n  schedule: 0 0 31 2 *", 2, "schedule", "never fires"),
    ("function: send\n  schedule: 15", 2, "schedule", "is a text"),
    ("function: send\n  schedule:", 2, "schedule", "is a text"),
    ("function: send\n  schedule: * * * * *", 2, "schedule", "in quotes"),
    ("function: send\n  schedule: @daily", 2, "schedule", "in quotes"),
    ("function: send\n  schedule: '@daily'\n  timezone: Berlin", 3, "timezone", "no time zone"),
    ("function: send\n  schedule: '@daily'\n  timezone: 1", 3, "timezone", "such as Europe/Berlin"),
    ("function: send\n  shedule: '@daily'", 2, "shedule", "did you mean schedule?"),
    ("function: send\n  schedule: '@daily'\n  args: x", 3, "args", "it is a list"),
    ("function: send\n  schedule: '@daily'\n  args: [1, 2]", 3, "args", "positional"),
    ("function: send\n  schedule: '@daily'\n  kwargs: [1]", 3, "kwargs", "values by names"),
    ("function: send\n  schedule: '@daily'\n  kwargs: {1: 2}", 3, "kwargs", "values by names"),
    ("function: send\n  schedule: '@daily'\n  args: [!!python/name:os.system ]", 3, "args", "malformed"),
    ("function: send\n  schedule: '@daily'\n  args: [2026-02-31]", 3, "args", "malformed"),
    ("function: send\n  schedule: '@daily'\n  priority: high", 3, "priority", "whole number"),
    ("function: send\n  schedule: '@daily'\n  queue: 'a,b'", 3, "queue", "without commas"),
    ("function: send\n  schedule: '@daily'\n  missed: maybe", 3, "missed", "once, skip, all"),
    ("function: send\n  schedule: '@daily'\n  grace: soon", 3, "grace", "'5m'"),
    ("function: send\n  schedule: '@daily'\n  schedule: '@hourly'", 3, "schedule", "said twice"),
    ("function: send\n  schedule: '@daily", 2, None, "malformed"),
    ("function: send\n   schedule: '@daily'", 2, None, "malformed"),
    ("<<: [1]\n  schedule: '@daily'", 0, "<<", "malformed"),
    ("- a list", 0, None, "indented"),
    (f"function: send\n  schedule: {'x' * 2**20}", 2, "schedule", "1,048,576 characters"),
    (f"function: send\n  schedule: '@daily'\n  args: {'[' * 5000}", None, None, "malformed"),
    ("function: send\n  schedule: '@daily'\n  args: &a [*a]", 0, None, "contains itself"),
]


@pytest.mark.parametrize("entry, line, key, why", BAD, ids=[f"{why[:20]}" for _, _, _, why in BAD])
def test_one_bad_entry(
    shop: App, tmp_path: Path, entry: str, line: int | None, key: str | None, why: str
) -> None:
    began = time.process_time()
    text = f"first:\n  class: Report\n  schedule: every day\nbad:\n  {entry}\ngood:\n"
    text += "  function: send\n  schedule: every 2 hours\n"
    errors = take(shop, tmp_path, text)
    assert time.process_time() - began < 2
    found = shop.recurring_errors()[0]
    assert (found.task, found.key) == ("bad", key) if key else found.task == "bad"
    assert why in errors[0]
    assert len(errors[0]) < 400
    if line is not None:
        assert found.line == 4 + line
    assert {task.name for task in shop.recurring_tasks()} == {"first", "good"}


def test_aliases_that_stand_for_too_much(shop: App, tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    text = "bad:\n  function: send\n  schedule: '@daily'\n  kwargs:\n    " + "\n    ".join(levels) + "\n"
    (error,) = take(shop, tmp_path, text + "good:\n  function: send\n  schedule: '@daily'\n")
    assert error.startswith("line 1, task 'bad': it has more than 100,000 values")
    assert [task.name for task in shop.recurring_tasks()] == ["good"]


def test_names(shop: App, tmp_path: Path) -> None:
    entry = "\n  function: send\n  schedule: every hour\n"
    shop.recurring("@daily", name="taken")(_send(shop))
    errors = take(
        shop, tmp_path, f"a:{entry}a:{entry}taken:{entry}{'x' * 101}:{entry}[1]:{entry}good:{entry}"
    )
    assert errors[0] == "line 4, task 'a': there is a task of this name in line 1 already"
    assert errors[1] == "line 7, task 'taken': there is another task of this name"
    assert errors[2].startswith("line 10: the name of a task has 1 to 100")
    assert errors[3].startswith("line 13: the name of a task has 1 to 100")
    assert [task.name for task in shop.recurring_tasks()] == ["a", "good", "taken"]


def _send(app: App) -> object:
    from nobroker.app.definition import JobFunction

    return JobFunction(app.jobs["send"], app.jobs["send"].target)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file(shop: App, tmp_path: Path, text: str) -> None:
    assert take(shop, tmp_path, text) == []
    assert shop.recurring_tasks() == []


@pytest.mark.parametrize(
    "raw", [b"just words", b"- a\n- b\n", b"\xff\xfe\x00", b"a: [", b"\x00", b"%x\n--- !a"]
)
def test_what_is_no_such_file(shop: App, tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "recurring.yml"
    path.write_bytes(raw)
    shop.recurring_file(path)
    assert shop.recurring_errors()
    assert all(error.file == str(path) for error in shop.recurring_errors())


def test_a_missing_file(shop: App, tmp_path: Path) -> None:
    with pytest.raises(RecurringError, match="no such file"):
        shop.recurring_file(tmp_path / "none.yml")
    (error,) = read(shop, str(tmp_path / "none.yml"), {})
    assert "can't be read" in str(error)


def test_a_missing_file_is_told_with_who_names_it(
    shop: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "queue.yml"
    path.write_text("scheduler: {recurring: none.yml}")
    with pytest.raises(ConfigError) as caught:
        shop.run(once=True)
    assert str(caught.value) == "queue.yml, line 1, scheduler.recurring: none.yml: there is no such file"
    with pytest.raises(ConfigError, match=r"^recurring: none\.yml: there is no such file$"):
        shop.run(once=True, recurring="none.yml")


def test_without_yaml(shop: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recurring.yml").write_text("a: {function: send, schedule: '@daily'}")
    shop.recurring_file(tmp_path / "recurring.yml")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'nobroker\[schedules\]'"):
        shop.recurring_file(tmp_path / "recurring.yml")
    (error,) = shop.recurring_errors()
    assert "pip install" in str(error)


def test_jobs_may_be_defined_later(app: App, tmp_path: Path) -> None:
    (error,) = take(app, tmp_path, "a:\n  function: late\n  schedule: every hour\n")
    assert "are the modules imported" in error

    @app.job(name="late")
    def late() -> None: ...

    assert app.recurring_errors() == []
    assert [task.name for task in app.recurring_tasks()] == ["a"]
