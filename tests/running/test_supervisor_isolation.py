"""Jobs that have a process for themselves, and take it down."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import App, JobState, NotLeasedError
from nobroker.running.settling import describe, settle
from nobroker.running.tasks import DIED, LET_GO, TIMED_OUT, Lost
from tests.running.trial import Trial, wait_for

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

ISOLATED = "workers=(WorkerConfig(isolation='process', threads=3),)"


def errors(trial: Trial, job_id: str) -> tuple[str, int, str]:
    (job,) = [job for job in trial.jobs() if job.id == job_id]
    return str(job.state), job.attempts, str(job.last_error).partition("\n")[0]


@pytest.mark.parametrize(
    "how, words",
    [("SIGSEGV", "SIGSEGV"), ("SIGKILL", "SIGKILL"), ("exit", "exit code 3"), ("exit 0", "exit code 0")],
)
def test_a_job_that_takes_its_process_down_fails_at_once_and_alone(
    trial: Trial, how: str, words: str
) -> None:
    (killer,) = trial.later("die", "die", how)
    trial.later("slow", "slow", 600, count=2)
    running = trial.program(ISOLATED)
    trial.until("slow", 2)
    neighbours = {int(pid) for pid, _ in trial.lines("slow")}
    assert [attempts for _, attempts in trial.until("die", 1)][:1] == ["1"]
    running.says("event=job.settled")
    trial.later("quick")
    trial.until("quick", 1)
    assert neighbours < set(running.children()), "who ran beside it has not noticed"
    with trial.queue() as queue:
        job = queue.get(killer)
    assert job.state in (JobState.READY, JobState.LEASED)
    assert str(job.last_error).startswith("WorkerDiedError: die: its process ")
    assert str(job.last_error).partition("\n")[0].endswith(f"ended with {words} under it")
    trial.until("die", 2)  # its backoff is a second or so
    running.says("event=job.settled", 2)
    state, attempts, _ = errors(trial, killer)
    assert (state, attempts) == ("dead", 2)
    assert running.end(signal.SIGQUIT) == 1


def test_rules_name_it_like_any_other_error(trial: Trial) -> None:
    trial.add(
        """
def told(job, error):
    note("told", error.code)
    return "made the best of it"

@app.job(retry=[Retry(WorkerDiedError, attempts=2, wait=0, handler=told)], max_attempts=1)
def breaks():
    note("breaks", current_job().attempts)
    os.kill(os.getpid(), signal.SIGABRT)
    time.sleep(60)  # the signal may take a moment to come
"""
    )
    (job_id,) = trial.later("breaks")
    running = trial.program(ISOLATED)
    trial.until("told", 1)
    running.says("event=job.settled", 2)
    (job,) = trial.jobs()
    assert (job.id, job.state, job.result) == (job_id, "done", "made the best of it")
    assert [code for _, code in trial.lines("told")] == [str(-signal.SIGABRT)]
    assert [attempts for _, attempts in trial.lines("breaks")] == ["1", "2"]
    assert running.end() == 0


def test_a_job_whose_time_is_up_is_killed_and_counted(trial: Trial) -> None:
    trial.add(
        """
@app.job(timeout=0.2, retry=[Retry(JobTimeoutError, attempts=2, wait=0)])
def hang():
    note("hang", current_job().attempts)
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter: no thread of it can do anything
"""
    )
    (job_id,) = trial.later("hang")
    running = trial.program(ISOLATED)
    trial.until("hang", 2)
    running.says("event=job.settled", 2)
    state, attempts, error = errors(trial, job_id)
    assert (state, attempts) == ("dead", 2)
    assert error == "JobTimeoutError: hang ran longer than 0.2 s; its process was killed"
    assert running.log().count("event=job.killed class=hang") == 2
    assert len(set(map(tuple, trial.lines("hang")))) == 2, "each time in another process"
    assert running.end() == 0


def test_code_that_ends_from_an_exception_needs_no_kill(trial: Trial) -> None:
    trial.add("@app.job(timeout=0.2, max_attempts=1)\ndef spin():\n    while True: pass\n")
    (job_id,) = trial.later("spin")
    running = trial.program(ISOLATED)
    wait_for(lambda: errors(trial, job_id)[0] == "dead", running.log)
    assert errors(trial, job_id)[2] == "JobTimeoutError: spin ran longer than 0.2 s"
    assert "event=job.killed" not in running.log()
    assert running.end() == 0


def test_a_flood_of_crashes_is_worked_off_and_nothing_is_given_up(trial: Trial) -> None:
    trial.later("die", "die", "exit", count=12)
    trial.later("quick", count=12)
    running = trial.program(ISOLATED)
    trial.until("quick", 12)
    running.says("event=job.settled", 24)
    assert "event=process.restart_in" not in running.log()
    assert {line[1] for line in trial.lines("die")} <= {"1", "2"}
    assert running.end() == 0


HELD = """
@app.job
def hold():
    libc, line = ctypes.PyDLL(None), f"{os.getpid()}\\n".encode()  # calls of it hold the interpreter
    file = os.open("hold", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    sys.setswitchinterval(600)  # no other thread comes in between the two
    libc.write(file, line, len(line))
    libc.open(b"let_go", os.O_RDONLY)  # a pipe: until somebody opens its other end
    sys.setswitchinterval(0.005)
"""


@pytest.mark.parametrize(
    "worker, waiting",
    [("isolation='process', threads=3", 0), ("processes=3", 0), ("processes=3, batch=3", 6)],
)
def test_what_can_not_let_go_itself_is_given_back_for_it(trial: Trial, worker: str, waiting: int) -> None:
    trial.add(HELD)
    os.mkfifo(trial.home / "let_go")
    trial.later("hold", count=3 + waiting)
    running = trial.program(
        f"workers=(WorkerConfig({worker}),), shutdown_timeout=0.1",
        before="from nobroker.running import children\nchildren.KILL_AFTER_S = 0.3",
    )
    trial.until("hold", 3)
    assert running.end() == 1
    assert running.log().count("how=SIGKILL") == 3
    found = sorted((str(job.state), job.attempts) for job in trial.jobs())
    assert found == [("leased", 1)] * waiting + [("ready", 0)] * 3, "what had not begun has its lease"


def test_who_holds_the_interpreter_sees_that_the_supervisor_is_gone_when_it_lets_go(trial: Trial) -> None:
    trial.add(HELD)
    os.mkfifo(trial.home / "let_go")
    trial.later("hold", count=1)
    running = trial.program("workers=(WorkerConfig(processes=2),), shutdown_timeout=0.1")
    ((pid,),) = trial.until("hold", 1)
    running.tell(signal.SIGKILL)
    running.process.wait()
    wait_for(lambda: running.session() == [int(pid)], running.log)
    told = f"event=process.orphaned pid={pid}:"
    assert told not in running.log()
    with open(os.open(trial.home / "let_go", os.O_WRONLY | os.O_NONBLOCK), "wb"):  # it still waits there
        wait_for(lambda: not running.session(), running.log)
    assert told in running.log()
    ((state, attempts),) = [(job.state, job.attempts) for job in trial.jobs()]
    assert (state, attempts) in (("done", 1), ("ready", 0)), "it had come to its end, or was given back"


# -- what was recorded in the last moment


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(tmp_path, fsync=False)
    yield made
    assert made.queue.check() == []
    made.close()


@pytest.mark.parametrize("why", [DIED, TIMED_OUT, LET_GO])
@pytest.mark.parametrize("since", ["done", "given back", "somebody else's", "gone"])
def test_what_has_been_recorded_already_stays(app: App, why: str, since: str) -> None:
    @app.job(name="job")
    def job() -> None: ...

    handle = job.perform_later()
    (held,) = app.queue.lease(1)
    assert held.lease_token is not None
    lost = Lost(id=held.id, token=held.lease_token, why=why, code=-9, text="a text")
    if since == "done":
        app.queue.ack(held)
    elif since == "given back":
        app.queue.release(held)
    elif since == "somebody else's":
        app.queue.release(held)
        app.queue.lease(1)
    else:
        app.queue.purge()
    before = app.queue.list_jobs()
    settle(app, lost)
    assert app.queue.list_jobs() == before
    if since != "gone":
        assert handle.job().last_error is None


def test_a_job_of_an_unknown_class_is_given_back(app: App) -> None:
    made = app.queue.enqueue({"job": "gone", "args": []}, lane="default")
    (held,) = app.queue.lease(1)
    assert held.lease_token is not None
    assert describe(app, held) == ("gone", None)
    settle(app, Lost(id=held.id, token=held.lease_token, why=DIED, code=-9, text="a text"))
    found = app.queue.get(made.id)
    assert (found.state, found.attempts) == (JobState.READY, 0)
    with pytest.raises(NotLeasedError):
        app.queue.ack(held)
