"""Processes that are replaced when they have grown, or have done enough; and none starts processes itself."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.running.trial import Trial

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at memory and processes through /proc"),
]

MB = 2**20
BALLAST = """
if __name__ != "__main__":
    ballast = bytearray(os.urandom(4096) * (150 * 256))  # before any fork

@app.job
def grow(name):
    note(name)
    global more
    more = bytearray(os.urandom(4096) * (100 * 256))
    time.sleep(0.3)
"""
LIMITED = (
    "workers=(WorkerConfig(memory_recycle_at={limit}, memory_confirmations=2, memory_interval=0.05,"
    " processes={processes}),)"
)


def test_who_has_grown_is_replaced_once_and_what_was_inherited_counts_as_before(trial: Trial) -> None:
    trial.add(BALLAST)
    trial.later("grow", "jobs", priority=5)
    trial.later("slow", "jobs", 0.02, count=40)
    running = trial.program(LIMITED.format(limit=270 * MB, processes=1))
    trial.until("jobs", 81)
    running.says("event=process.started role=worker", 2)
    assert running.end() == 0
    assert running.log().count("event=process.started role=worker") == 2, "one recycle"
    assert "how=exit_code_75" in running.log()
    assert "bytes of memory in use, memory_recycle_at is 283,115,520" in running.log()
    assert {(job.state, job.attempts) for job in trial.jobs()} == {("done", 1)}


def test_a_limit_that_leaves_no_room_is_refused_before_any_job_is_run(trial: Trial) -> None:
    trial.add(BALLAST)
    trial.later("quick", count=5)
    running = trial.run("--processes", "2", "--memory-recycle-at", "100M")
    assert running.end(None) == 2
    last = running.log().splitlines()[-1]
    assert last.startswith("error: memory_recycle_at is 104,857,600 bytes, and a worker that has run nothing")
    taken = int(last.partition("yet takes ")[2].partition(":")[0].replace(",", ""))
    assert taken > 150 * MB
    assert trial.lines("quick") == []
    assert "role=worker" not in running.log()


HELD = """
@app.on_worker_start
def hold():
    global ballast
    if not Path("small").exists():
        ballast = bytearray(os.urandom(4096) * (150 * 256))
"""


def test_what_start_hooks_take_counts_as_before_and_no_job_is_run_either(trial: Trial) -> None:
    trial.add(HELD)
    trial.later("quick", count=5)
    running = trial.run("--processes", "2", "--memory-recycle-at", "120M", "--memory-interval", "50ms")
    assert running.end(None) == 2
    last = running.log().splitlines()[-1]
    assert last.startswith("error: memory_recycle_at is 125,829,120 bytes, and a worker that has run nothing")
    taken = int(last.partition("yet takes ")[2].partition(":")[0].replace(",", ""))
    assert taken > 150 * MB
    assert trial.lines("quick") == []
    assert "Traceback" not in running.log()
    assert {(job.state, job.attempts) for job in trial.jobs()} == {("ready", 0)}


def test_later_it_calls_off_a_restart_and_is_tried_again_in_place_of_the_dead(trial: Trial) -> None:
    trial.add(HELD)
    (trial.home / "small").touch()
    running = trial.run("--processes", "2", "--memory-recycle-at", "120M")
    workers = running.workers(2)
    (trial.home / "small").unlink()
    running.tell(signal.SIGHUP)
    running.says("event=restart.given_up")
    assert set(running.children()) == set(workers), "the old ones go on"
    os.kill(workers[0], signal.SIGKILL)
    running.says("event=process.restart_in name=worker-", 2)
    trial.later("quick")
    ((pid, _),) = trial.until("quick", 1)
    assert int(pid) == workers[1], "nobody else is there"
    (trial.home / "small").touch()
    trial.later("slow", "slow", 60, count=2)
    trial.until("slow", 2)
    (trial.home / "let_go").touch()
    assert running.end() == 0


def test_a_process_is_replaced_after_so_many_jobs(trial: Trial) -> None:
    trial.later("quick", count=20)
    running = trial.run("--processes", "2", "--max-jobs", "5", "--once")
    assert running.end(None) == 0
    pids = [pid for pid, _ in trial.lines("quick")]
    assert len(pids) == 20
    assert max(pids.count(pid) for pid in pids) <= 5
    assert "event=process.restart_in" not in running.log()
    assert "succeeded 20" in running.log()


# -- no grandchildren

NESTED = """
@app.job
def nested(how):
    if how == "call":
        try:
            app.run(processes=2, once=True)
        except Exception as error:
            note("nested", type(error).__name__)
    elif how == "single":
        note("nested", app.run(once=True, queues=["other"]).leased)
    else:
        done = subprocess.run([sys.executable, "-m", "nobroker", "run", "jobs", "--once", "--processes", "2"],
                              capture_output=True, text=True)
        note("nested", f"{done.returncode} {done.stderr.splitlines()[-1]}")

@app.job
def environment():
    note("environment", sorted(name for name in os.environ if name.startswith("NOBROKER")))
"""


SWITCHED_ON = {
    "PROCESSES": "2",
    "ISOLATION": "process",
    "MEMORY_RECYCLE_AT": "10G",
    "MAX_JOBS": "1000",
    "CGROUP_MEMORY_MAX": "10G",
}


@pytest.mark.parametrize("switch", ["option", "environment", "spawn", "isolation", "file"])
def test_no_grandchildren_whatever_made_it_a_supervisor(trial: Trial, switch: str) -> None:
    trial.add(NESTED)
    trial.later("quick", count=9)
    trial.later("environment")
    left: dict[str, str] = {}
    if switch == "option":
        running = trial.run("--processes", "2")
    elif switch == "file":
        (trial.home / "queue.yml").write_text("workers: [{processes: 2}]\n")
        running = trial.run()
    elif switch == "isolation":
        left = {"NOBROKER_THREADS": "2"}  # it takes as many processes
        running = trial.run(NOBROKER_ISOLATION="process", **left)
    else:
        left = {"NOBROKER_START_METHOD": "spawn"} if switch == "spawn" else {}
        running = trial.run(**{f"NOBROKER_{name}": value for name, value in SWITCHED_ON.items()}, **left)
    workers = running.workers(2)
    assert {int(parent) for _, parent in trial.until("quick", 9)} == {running.pid}
    assert trial.until("environment", 1)[0][1:] == [str(sorted(left))]
    trial.later("nested", "call")
    assert trial.until("nested", 1)[-1][1:] == ["NestedRunError"]
    trial.later("nested", "program")
    *_, said = trial.until("nested", 2)
    assert said[1] == "2"
    assert "processes=1" in " ".join(said)
    if switch != "file":
        trial.later("nested", "single")
        assert trial.until("nested", 3)[-1][1:] == ["0"], "one process here, and nothing to do"
    assert sorted(running.session()) == sorted([running.pid, *workers])
    assert running.end() == 0


def test_a_run_of_one_process_inside_of_a_job_is_none_of_its_business(trial: Trial) -> None:
    trial.add(NESTED)
    trial.later("quick", queue="other")
    trial.later("nested", "single")
    running = trial.run("--processes", "2", "--queues", "default")
    assert trial.until("nested", 1)[0][1:] == ["1"]
    assert running.end(signal.SIGTERM) == 0
    assert len(trial.lines("quick")) == 1
