"""Processes that a supervisor starts, replaces and ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from nobroker import App, RunFailedError
from tests.running.trial import Trial, wait_for

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


def test_workers_are_children_and_end_with_it(trial: Trial) -> None:
    trial.later("slow", "slow", 0.05, count=40)
    running = trial.run("--processes", "2")
    trial.until("slow", 8)
    workers = running.workers(2)
    assert running.end() == 0
    assert {int(pid) for pid, _ in trial.lines("slow")} == set(workers)
    assert {job.state for job in trial.jobs()} == {"done", "ready"}
    begun = [what for _, what in trial.lines("slow")]
    assert begun.count("begun") == begun.count("ended") == sum(job.state == "done" for job in trial.jobs())


def test_counts_of_all_processes_are_printed_what_schedules_have_due_included(
    trial: Trial,
) -> None:
    trial.add("@app.recurring('* * * * * *')\n@app.job\ndef tick():\n    note('ticks')\n")
    trial.look_at_schedules()
    begun = int(time.time())
    trial.later("quick", count=20)
    wait_for(lambda: time.time() >= begun + 1)
    running = trial.run("--processes", "2", "--once")
    assert running.end(None) == 0
    assert len(trial.lines("quick")) == 20
    assert trial.lines("ticks")
    count = 20 + len(trial.lines("ticks"))
    assert f"leased {count}  succeeded {count}  failed 0  dead 0  lost leases 0\n" in running.log()


@pytest.mark.parametrize(
    "words", [["--isolation", "process"], ["--max-jobs", "100"]], ids=["process", "thread"]
)
def test_a_job_that_ends_its_process_as_if_all_were_well_ends_no_run(trial: Trial, words: list[str]) -> None:
    trial.later("die", "die", "exit 0", priority=1)
    trial.later("quick", count=5)
    running = trial.run("--once", *words)
    assert running.end(None) == 0
    assert trial.lines("die")
    assert len(trial.lines("quick")) == 5
    assert "ERROR" in next(line for line in running.log().splitlines() if "in_hand=die:" in line)


def test_a_hook_that_ends_its_process_as_if_all_were_well_ends_no_run(trial: Trial) -> None:
    trial.add(
        "@app.on_worker_start\ndef leave_once():\n    if not Path('left').exists():\n"
        "        Path('left').touch()\n        os._exit(0)\n"
    )
    trial.later("quick", count=5)
    assert trial.run("--once", "--max-jobs", "100").end(None) == 0
    assert len(trial.lines("quick")) == 5


def test_a_worker_that_is_stopped_ends_no_run(trial: Trial) -> None:
    trial.add(
        "@app.job\ndef stop():\n    note('stop')\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(0.2)\n"
    )
    trial.later("stop", priority=1)
    trial.later("quick", count=5)
    assert trial.run("--once", "--max-jobs", "100").end(None) == 0
    assert len(trial.lines("stop")) == 1
    assert len(trial.lines("quick")) == 5


def test_a_job_that_ends_its_process_while_all_ends_is_told_by_the_code(trial: Trial) -> None:
    trial.add(
        "@app.job\ndef leave():\n    note('leave')\n"
        "    while not Path('go').exists():\n        time.sleep(0.01)\n    os._exit(0)\n"
    )
    trial.later("leave")
    running = trial.run("--processes", "2")
    trial.until("leave", 1)
    running.tell(signal.SIGTERM)
    running.says("event=supervisor.stopping")
    (trial.home / "go").touch()
    assert running.end(None) == 1


def test_what_dies_is_replaced_and_the_log_says_what_it_had_in_hand(trial: Trial) -> None:
    trial.later("slow", "slow", 60, job_id="the-job")
    running = trial.run("--processes", "2")
    ((victim, _),) = trial.until("slow", 1)
    others = [pid for pid in running.workers(2) if pid != int(victim)]
    os.kill(int(victim), signal.SIGKILL)
    running.says(f"pid={victim} how=SIGKILL")
    assert "jobs=0 in_hand=slow:the-job\n" in running.log()
    wait_for(lambda: len(running.children()) == 2, running.log)
    assert set(others) < set(running.children())
    assert int(victim) not in running.children()
    trial.later("quick")
    trial.until("quick", 1)
    assert running.end() == 0
    assert [job.attempts for job in trial.jobs() if job.id == "the-job"] == [1], "its lease brings it back"


def test_when_none_can_be_kept_running_it_ends_and_says_why(trial: Trial) -> None:
    trial.add("@app.on_worker_start\ndef broken():\n    os._exit(9)\n")
    running = trial.run("--processes", "4")
    assert running.end(None) == 1
    assert "event=process.restart_in name=worker-1 seconds=0.2" in running.log()
    last = running.log().splitlines()[-1]
    assert last.startswith("error: no worker can be kept running: the last one, worker-"), last
    assert last.endswith("ended with exit code 9")


def test_none_can_be_kept_running_either_where_each_takes_long_to_fail(trial: Trial) -> None:
    trial.add("@app.on_worker_start\ndef broken():\n    time.sleep(0.05)\n    os._exit(9)\n")
    running = trial.program(
        "workers=(WorkerConfig(processes=2),)",
        before="from nobroker.running import plans, supervisor\nplans.FAST_S = supervisor.FAST_S = 0.04\n"
        "plans.FIRST_PAUSE_S = 0.001",
    )
    assert running.end(None) == 1
    assert "event=process.restart_in name=worker-1 seconds=0.001" in running.log()
    assert "event=supervisor.given_up: no worker can be kept running" in running.log()
    assert running.log().count("how=exit_code_9") in (10, 11)


def test_jobs_that_end_their_process_end_no_supervisor(trial: Trial) -> None:
    trial.later("die", "die", "exit", count=12, priority=1)
    trial.later("quick")
    running = trial.program(
        "workers=(WorkerConfig(max_jobs=100),)",
        before="from nobroker.running import plans\nplans.FIRST_PAUSE_S = 0.0001",
    )
    trial.until("quick", 1)
    assert len({pid for pid, _ in trial.lines("die")}) == 12
    assert "event=process.restart_in name=worker-1 seconds=0.0512" in running.log(), (
        "the pauses go on growing"
    )
    assert running.end() == 0


def test_it_ends_children_that_do_not_come_to_their_end(trial: Trial) -> None:
    trial.add("@app.on_worker_stop\ndef hang():\n    time.sleep(600)\n")
    running = trial.program(
        "workers=(WorkerConfig(processes=2),), shutdown_timeout=0.1",
        before="from nobroker.running import children\nchildren.KILL_AFTER_S = 0.3",
    )
    running.workers(2)
    assert running.end() == 1
    assert running.log().count("how=SIGKILL") == 2


def test_one_process_enqueues_recurring_tasks_and_is_replaced_like_the_others(trial: Trial) -> None:
    trial.add("@app.recurring('* * * * * *')\n@app.job\ndef tick():\n    note('ticks', os.getppid())\n")
    running = trial.run("--processes", "2")
    running.says("event=process.started role=scheduler")
    assert {int(parent) for _, parent in trial.until("ticks", 1)} == {running.pid}
    workers = {int(pid) for pid, _ in trial.lines("ticks")}
    scheduler = int(running.log().partition("name=scheduler pid=")[2].split()[0])
    assert scheduler in running.children()
    assert scheduler not in workers
    os.kill(scheduler, signal.SIGKILL)
    running.says("event=process.started role=scheduler", 2)
    count = len(trial.lines("ticks"))
    trial.until("ticks", count + 2)
    assert running.end() == 0
    ids = [job.id for job in trial.jobs() if job.lane == "default"]
    assert len(ids) == len(set(ids)), "each tick once"


def test_without_a_scheduler_or_tasks_there_is_none(trial: Trial) -> None:
    trial.add("if os.environ.get('TICK'):\n    app.recurring('@hourly', quick)\n")
    for words, env in ((["--no-scheduler"], {"TICK": "1"}), ([], {})):
        running = trial.run("--processes", "2", *words, **env)
        running.workers(2)
        assert running.end() == 0


def test_it_runs_in_the_main_thread_only(tmp_path: Path) -> None:
    app, caught = App(tmp_path, fsync=False), []

    def run() -> None:
        try:
            app.run(processes=2)
        except RunFailedError as error:
            caught.append((error.code, str(error)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == [(2, "a supervisor catches signals, so it runs in the main thread only")]


def test_a_program_that_runs_several_processes_hears_what_they_did(trial: Trial) -> None:
    trial.later("quick", count=10)
    (trial.home / "own.py").write_text(
        "from jobs import app\nfrom nobroker import RunFailedError\n"
        "print(app.run(processes=2, once=True).succeeded)\n"
        "try:\n    app.run(processes=2, shutdown_timeout=0.1)\n"
        "except RunFailedError as error:\n    print(error.code)\n"
    )
    running = trial._start([sys.executable, "own.py"], {})
    running.says("10")
    trial.later("slow", "slow", 600)
    trial.until("slow", 1)
    assert running.end() == 0
    assert [line for line in running.log().split() if line.isdigit()] == ["10", "1"]


def test_a_closed_output_is_no_reason_not_to_work(trial: Trial) -> None:
    trial.later("quick", count=3)
    running = trial.program(
        "workers=(WorkerConfig(processes=2),), once=True",
        before="read, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)\nprint('to nobody')",
        PYTHONUNBUFFERED="",
    )
    assert running.end(None) in (0, 120), "120: the interpreter could not write what was left, at its end"
    assert len(trial.lines("quick")) == 3
