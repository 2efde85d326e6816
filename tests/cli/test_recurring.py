"""`nobroker recurring`: what is listed, what a check of a file says, and what `run` makes of such a file."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest

from nobroker import App, Queue
from nobroker.app.scheduler import Scheduler
from nobroker.cli.main import main
from nobroker.clock import ManualClock
from tests.cli.conftest import Ran, tree

NAME = "recurring_shop"
SPEC = f"{NAME}:app"  # applications of other tests may still be in memory
MODULE = """
from nobroker import App
app = App("data", fsync=False)

@app.recurring("0 3 * * * Europe/Berlin", name="nightly")
@app.job
def clean(): return "clean"

@app.job
def ping(to="x"): return to
"""
FILE = """
often:
  function: ping
  schedule: every second
  missed: all
bad:
  function: pong
  schedule: "@hourly"
"""


class Shop:
    """A directory with a module of jobs, where the command is typed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / f"{NAME}.py").write_text(MODULE)

    def __call__(self, *words: str) -> Ran:
        """In this process."""
        sys.modules.pop(NAME, None)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        return Ran(code, out.getvalue(), err.getvalue())

    def process(self, *words: str) -> Ran:
        env = {name: value for name, value in os.environ.items() if name != "NOBROKER_DIR"}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-m", "nobroker", *words]
        done = subprocess.run(
            command, cwd=self.home, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("NOBROKER_DIR", raising=False)
    yield Shop(tmp_path)
    sys.modules.pop(NAME, None)


def test_lists_the_next_runs_in_local_time_and_utc_and_makes_nothing(shop: Shop) -> None:
    before = set(shop.home.iterdir())
    ran = shop("--json", "recurring", SPEC)
    assert ran.code == 0
    (task,) = json.loads(ran.out)
    assert (task["task"], task["schedule"], task["timezone"]) == ("nightly", "0 3 * * *", "Europe/Berlin")
    assert (task["last"], task["paused"]) == (None, False)
    assert len(task["next"]) == len(task["next_local"]) == 3
    assert all("T03:00:00+0" in moment for moment in task["next_local"])
    assert {moment[11:] for moment in task["next"]} <= {"02:00:00Z", "01:00:00Z"}
    shown = shop("recurring", SPEC).out.splitlines()
    assert shown[0].split("\t") == [
        "TASK",
        "SCHEDULE",
        "ZONE",
        "NEXT (LOCAL)",
        "NEXT (UTC)",
        "LAST (UTC)",
        "PAUSED",
    ]
    assert len(shown) == 4
    assert set(shop.home.iterdir()) - before <= {shop.home / "__pycache__"}


def test_says_what_ran_last_and_what_is_paused(shop: Shop) -> None:
    """A paused task shows when it would run."""
    clock = ManualClock()
    app = App(shop.home / "data", fsync=False, clock=clock)
    clean = app.job(name="clean")(lambda: None)
    app.recurring("0 3 * * * Europe/Berlin", clean, name="nightly")
    app.recurring("@hourly", clean, name="paused", missed="all")
    scheduler = Scheduler(app)
    scheduler.look()
    app.pause_recurring("paused")
    clock.advance(86_400)
    scheduler.look()
    tick = app.recurring_tasks()[0].last_run
    app.close()
    assert tick is not None
    last = tick.astimezone(UTC).isoformat().replace("+00:00", "Z")
    for words in (("recurring", SPEC), ("--dir", "data", "recurring")):
        tasks = {task["task"]: task for task in json.loads(shop("--json", *words).out)}
        assert (tasks["nightly"]["last"], tasks["nightly"]["paused"]) == (last, False)
        if "paused" in tasks:
            assert (tasks["paused"]["last"], tasks["paused"]["paused"]) == (None, True)
            assert len(tasks["paused"]["next"]) == 3
    assert set(tasks) == {"nightly", "paused"}, "a queue knows them all"
    shown = shop("--dir", "data", "recurring").out.splitlines()
    assert shown[1].split("\t")[-2:] == [last, "no"]
    assert shown[4].split("\t")[-2:] == ["-", "yes"]


def test_a_check_says_each_error_in_a_line(shop: Shop) -> None:
    (shop.home / "tasks.yml").write_text(FILE + "worse:\n  function: ping\n  schedule: '60 * * * *'\n")
    ran = shop("recurring", "check", "tasks.yml", SPEC)
    assert (ran.code, ran.out) == (1, "")
    pong, worse = ran.err.splitlines()
    assert pong.startswith("error: tasks.yml, line 7, task 'bad', function: ")
    assert "did you mean ping?" in pong
    assert worse.startswith("error: tasks.yml, line 11, task 'worse', schedule: '60 * * * *' is no schedule")
    alone = shop("--json", "recurring", "check", "tasks.yml")  # without the jobs
    assert alone.code == 1
    assert [(error["line"], error["task"]) for error in json.loads(alone.out)] == [(11, "worse")]
    assert not (shop.home / "data").exists()
    (shop.home / "tasks.yml").write_text("a: {function: ping, schedule: '@daily'}")
    assert shop("recurring", "check", "tasks.yml", SPEC) == Ran(0, "", "")
    assert shop("recurring", "check", "none.yml").code == 1
    assert shop("recurring", "check").code == 2


@pytest.mark.processes
def test_run_takes_the_file_and_what_it_says_runs(shop: Shop) -> None:
    (shop.home / "recurring.yml").write_text(FILE)
    first = shop.process("run", SPEC, "--once")
    assert first.code == 0
    assert "event=recurring.refused recurring.yml, line 7, task 'bad', function" in first.err
    assert "recurring.refused" not in shop.process("run", SPEC, "--once", "--no-scheduler").err
    second = shop.process("run", SPEC, "--once")  # at least a second later
    assert second.code == 0
    with Queue(shop.home / "data", fsync=False) as queue:
        done = [job for job in queue.list_jobs("done") if job.result == "x"]
        assert done
        assert all(job.metadata["recurring"] == "often" for job in done)
        assert queue.check() == []
    listed = shop("--json", "recurring", SPEC)
    assert listed.code == 1  # for the bad one
    assert [task["task"] for task in json.loads(listed.out)] == ["nightly", "often"]
    assert json.loads(listed.out)[1]["last"] is not None
    before = tree(shop.home / "data")
    known = shop("--json", "--dir", "data", "recurring")
    assert known.code == 0
    assert [task["task"] for task in json.loads(known.out)] == ["nightly", "often"]
    assert tree(shop.home / "data") == before


@pytest.mark.parametrize(
    ("words", "variable", "file", "who"),
    [
        (["--recurring", "none.yml"], "", "", "--recurring"),
        ([], "none.yml", "", "NOBROKER_RECURRING"),
        ([], "", "scheduler:\n  recurring: none.yml\n", "queue.yml, line 2, scheduler.recurring"),
    ],
)
def test_who_names_a_file_that_is_not_there(
    shop: Shop, words: list[str], variable: str, file: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOBROKER_RECURRING", variable)
    if file:
        (shop.home / "queue.yml").write_text(file)
    ran = shop("run", SPEC, "--once", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {who}: none.yml: there is no such file\n"
    assert not (shop.home / "data").exists()
