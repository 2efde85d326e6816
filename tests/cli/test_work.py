"""`nobroker work`: a function of the current directory over the jobs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from .conftest import CommandLine

TASKS = """
import os, sys, threading

def record(job):
    print("handling", job.payload, file=sys.stderr, flush=True)
    return {"pid": os.getpid()}

def fail(job):
    raise ValueError("no \\x1b[31m paper\\nnot even one sheet")

def leave(job):
    sys.exit(4)

def interrupt(job):
    raise KeyboardInterrupt

class Odd(BaseException):
    pass

def odd(job):
    raise Odd

async def later(job):
    return "later"

class Mailer:
    @staticmethod
    def send(job):
        return job.payload

barrier = threading.Barrier(3)

def meet(job):
    barrier.wait(20)

number = 5
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with handlers, where the tests stand."""
    place = tmp_path / "app"
    place.mkdir()
    (place / "cli_test_tasks.py").write_text(TASKS)
    (place / "cli_test_broken.py").write_text("def f(:\n")
    (place / "cli_test_leaves.py").write_text("import sys; sys.exit('bye')\n")
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    return place


def test_it_works_off_the_queue_and_prints_what_it_did(nobroker: CommandLine, tasks: Path) -> None:
    nobroker("enqueue", "1", "--count", "5")
    ran = nobroker("work", "cli_test_tasks:Mailer.send", "--idle-timeout", "0.2", "--batch", "2")
    assert ran.code == 0
    assert ran.out == "leased 5  succeeded 5  failed 0  dead 0  lost leases 0\n"
    assert [job["result"] for job in nobroker.json("list", "--state", "done")] == [1] * 5


def test_max_jobs_lanes_and_json(nobroker: CommandLine, tasks: Path) -> None:
    nobroker("enqueue", "1", "--count", "5", "--lane", "a")
    nobroker("enqueue", "2")
    stats = nobroker.json("work", "cli_test_tasks:later", "--max-jobs", "3", "--lane", "a")
    assert stats == {"leased": 3, "succeeded": 3, "failed": 0, "dead": 0, "lost_leases": 0}
    assert nobroker.json("stats")["ready"] == 3


def test_several_threads(nobroker: CommandLine, tasks: Path) -> None:
    nobroker("enqueue", "1", "--count", "3")
    assert nobroker.json("work", "cli_test_tasks:meet", "-c", "3", "--max-jobs", "3")["succeeded"] == 3


def test_failures_are_counted_and_logged_safely(nobroker: CommandLine, tasks: Path) -> None:
    nobroker("enqueue", "1", "--max-attempts", "1")
    ran = nobroker("--json", "work", "cli_test_tasks:fail", "--max-jobs", "1")
    assert ran.code == 0
    assert ran.json["dead"] == 1
    assert "\x1b" not in ran.err
    assert "Traceback" not in ran.err
    assert "ValueError: no \\u001b[31m paper" in nobroker("dlq").out


@pytest.mark.parametrize(
    "handler, says",
    [
        ("nothing", "module:function"),
        (":f", "module:function"),
        ("m:", "module:function"),
        ("cli_test_no_such_module:f", "cli_test_no_such_module"),
        ("cli_test_tasks:no_such", "no_such"),
        ("cli_test_tasks:number", "int"),
        ("cli_test_broken:f", "SyntaxError"),
        ("cli_test_leaves:f", "bye"),
        ("..x:f", "..x"),
    ],
)
def test_a_handler_that_can_not_be_had(nobroker: CommandLine, tasks: Path, handler: str, says: str) -> None:
    ran = nobroker("work", handler)
    assert ran.code == 1
    assert says in ran.said_in_one_line()
    assert not nobroker.dir.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "0"],
        ["--batch", "0"],
        ["--max-jobs", "-1"],
        ["--visibility-timeout", "0"],
        ["--idle-timeout", "nan"],
    ],
    ids=" ".join,
)
def test_numbers_out_of_range(nobroker: CommandLine, tasks: Path, words: list[str]) -> None:
    ran = nobroker("work", "cli_test_tasks:record", *words)
    assert ran.code == 1
    ran.said_in_one_line()


@pytest.mark.parametrize("handler, code", [("leave", 1), ("odd", 1), ("interrupt", 130)])
def test_handlers_that_end_the_worker(nobroker: CommandLine, tasks: Path, handler: str, code: int) -> None:
    nobroker("enqueue", "1", "--id", "a")
    ran = nobroker("work", f"cli_test_tasks:{handler}", "--idle-timeout", "5")
    assert ran.code == code
    assert "Traceback" not in ran.err
    job = nobroker.json("show", "a")
    assert (job["state"], job["attempts"]) == ("ready", 1)
    assert job["last_error"]


@pytest.mark.processes
def test_a_signal_ends_it_cleanly(nobroker: CommandLine, tasks: Path) -> None:
    nobroker("enqueue", "1")
    with nobroker.start("--json", "work", "cli_test_tasks:record") as worker:
        assert any("handling 1" in line for line in worker.stderr)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        assert json.loads(worker.stdout.read())["succeeded"] == 1
    assert nobroker.json("stats")["done"] == 1
