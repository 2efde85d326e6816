"""Children that are fresh interpreters, and import the application themselves."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from nobroker import App
from nobroker.running.config import RunConfig, WorkerConfig
from nobroker.running.forking import Source
from nobroker.running.supervisor import Supervisor
from nobroker.running.tasks import DIED, SETTLE, WORK, Lost, Task, task_of
from tests.running.trial import Trial

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


def test_they_work_are_replaced_and_end(trial: Trial) -> None:
    trial.later("quick", count=10)
    running = trial.run("--processes", "2", "--start-method", "spawn")
    assert {int(parent) for _, parent in trial.until("quick", 10)} == {running.pid}
    victim, other = running.workers(2)
    os.kill(victim, signal.SIGKILL)
    running.says("started concurrency", 3)
    assert other in running.children()
    trial.later("slow", "slow", 0.3, count=2)
    trial.until("slow", 2)
    assert running.end() == 0
    assert {job.state for job in trial.jobs()} == {"done"}


def test_their_log_is_json_too(trial: Trial) -> None:
    ids = trial.later("quick", count=2)
    running = trial.run("--processes", "2", "--start-method", "spawn", "--log-format", "json")
    running.says('"event": "job.finished"', 2)
    running.says('"event": "started"', 2)
    workers = set(running.children())
    assert running.end() == 0
    *logged, report = running.log().splitlines()
    assert "2 " in report, "the last line is no log: it goes to standard output"
    lines = [json.loads(line) for line in logged]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert {line["pid"] for line in lines if line.get("event") == "process.started"} == workers
    found = [line for line in lines if line.get("event") == "job.finished"]
    assert sorted(line["id"] for line in found) == sorted(ids)
    assert {(line["class"], line["outcome"], line["logger"]) for line in found} == {
        ("quick", "done", "nobroker.metrics")
    }


def test_a_restart_loads_new_code(trial: Trial) -> None:
    running = trial.run("--processes", "2", "--start-method", "spawn")
    running.workers(2)
    trial.add("@app.job(name='quick2')\ndef newer():\n    note('newer')\n")
    running.tell(signal.SIGHUP)
    running.says("nobroker.worker: event=stopped", 2)
    trial.later("newer")
    trial.until("newer", 1)
    assert running.end() == 0


def test_what_dies_under_a_job_is_settled_by_a_fresh_interpreter_too(trial: Trial) -> None:
    (job_id,) = trial.later("die", "die", "SIGSEGV")
    running = trial.program("workers=(WorkerConfig(isolation='process'),), start_method='spawn'")
    running.says("event=process.ended role=settle")
    (job,) = trial.jobs()
    assert job.id == job_id
    assert str(job.last_error).startswith("WorkerDiedError: die: its process ")
    assert running.end(signal.SIGTERM) in (0, 1)  # the second try may be on


def test_a_stop_while_they_start(trial: Trial) -> None:
    running = trial.run("--processes", "2", "--start-method", "spawn")
    running.says("event=process.started", 1)
    assert running.end() == 0


def test_children_see_that_their_supervisor_is_gone(trial: Trial) -> None:
    running = trial.run("--processes", "2", "--start-method", "spawn")
    running.workers(2)
    assert running.end(signal.SIGKILL) == -signal.SIGKILL


def test_it_has_to_be_said_what_they_import(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="packages"):
        Supervisor(App(tmp_path), RunConfig(start_method="spawn"))


def test_jobs_of_the_program_itself_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="__main__"):
        Supervisor(App(tmp_path), RunConfig(start_method="spawn"), source=Source(("a", "__main__")))


def test_tasks_travel_as_they_are() -> None:
    lost = Lost(id="a", token=5, why=DIED, code=-11, text="t")
    for task in (
        Task(role=WORK, name="w", worker=WorkerConfig(queues=("a", "b*"), max_jobs=4), once=True),
        Task(role=SETTLE, name="s", lost=(lost,), registered="x"),
    ):
        assert task_of(json.loads(json.dumps(task.to_dict()))) == task
