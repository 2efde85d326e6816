"""One worker process without a supervisor: the same signals."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from tests.running.trial import Trial

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

QUIET = [signal.SIGUSR1, signal.SIGTSTP]


def states(trial: Trial) -> list[tuple[str, int]]:
    return [(str(job.state), job.attempts) for job in trial.jobs() if job.lane == "default"]


def test_what_was_begun_ends(trial: Trial) -> None:
    trial.later("slow", "slow", 0.3, count=2)
    running = trial.run()
    trial.until("slow", 1)
    assert running.children() == []
    assert running.end() == 0
    assert sorted(states(trial)) == [("done", 1), ("ready", 0)]


@pytest.mark.parametrize("how", ["its time is up", "a second signal", "quit"])
def test_what_does_not_end_is_given_back(trial: Trial, how: str) -> None:
    trial.later("slow", "slow", 600)
    running = trial.run("--shutdown-timeout", "0.2" if how == "its time is up" else "60")
    trial.until("slow", 1)
    if how == "a second signal":
        running.tell(signal.SIGTERM)
        running.says("stopping why=")
        time.sleep(0.15)
    assert running.end(signal.SIGQUIT if how == "quit" else signal.SIGTERM) == 1
    assert states(trial) == [("ready", 0)]


@pytest.mark.parametrize("number", QUIET)
def test_quiet_takes_no_more_and_stays(trial: Trial, number: int) -> None:
    running = trial.run()
    running.says("started concurrency")
    running.tell(number)
    running.says("nobroker.worker: event=stopped")
    trial.later("quick")
    assert running.end() == 0
    assert states(trial) == [("ready", 0)]


@pytest.mark.parametrize("number", QUIET)
def test_quiet_and_then_leave(trial: Trial, number: int) -> None:
    trial.add("app.recurring('0 0 1 1 *', quick)\n")
    trial.later("slow", "slow", 0.3, count=2)
    running = trial.run("--quiet-then-exit")
    trial.until("slow", 1)
    assert running.end(number) == 0
    assert sorted(states(trial)) == [("done", 1), ("ready", 0)]


def test_a_process_that_a_job_forks_ends_as_if_there_were_no_worker(trial: Trial) -> None:
    trial.add(
        """
@app.job
def fork():
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(1)
    os.kill(pid, signal.SIGTERM)
    note("fork", os.waitpid(pid, 0)[1])
"""
    )
    trial.later("fork")
    running = trial.run()
    assert trial.until("fork", 1)[0][1] == str(int(signal.SIGTERM))
    trial.later("quick")
    trial.until("quick", 1)
    assert running.end() == 0


# -- the same by `app.run`


def test_a_program_gives_back_what_does_not_end_in_time(trial: Trial) -> None:
    trial.later("slow", "slow", 600)
    running = trial.calls("shutdown_timeout=0.2")
    trial.until("slow", 1)
    assert running.end() == 0
    assert "leased=1, succeeded=0" in running.log()
    assert states(trial) == [("ready", 0)]


def test_a_program_gives_back_at_once(trial: Trial) -> None:
    trial.later("slow", "slow", 600)
    running = trial.calls("shutdown_timeout=60")
    trial.until("slow", 1)
    assert running.end(signal.SIGQUIT) == 0
    assert states(trial) == [("ready", 0)]


@pytest.mark.parametrize("number", QUIET)
def test_a_program_is_quiet_and_leaves_or_stays(trial: Trial, number: int) -> None:
    trial.later("slow", "slow", 0.3, count=2)
    running = trial.calls("quiet_then_exit=True")
    trial.until("slow", 1)
    assert running.end(number) == 0
    assert sorted(states(trial)) == [("done", 1), ("ready", 0)]
    staying = trial.calls()
    trial.until("slow", 3)
    staying.tell(number)
    staying.says("nobroker.worker event=stopped")
    trial.later("quick")
    assert "WorkerStats" not in staying.log()
    assert staying.end() == 0
    assert "leased=1, succeeded=1" in staying.log()
    assert sorted(states(trial)) == [("done", 1), ("done", 1), ("ready", 0)]


def test_a_program_goes_on_after_so_many_jobs_with_its_signals_as_they_were(trial: Trial) -> None:
    trial.later("quick", count=3)
    running = trial.calls("max_jobs=2", before="signal.signal(signal.SIGUSR1, print)")
    assert running.end(None) == 0
    assert "leased=2, succeeded=2" in running.log()
    assert running.log().count("then True") == 2


def test_a_job_that_ends_the_program_ends_it(trial: Trial) -> None:
    trial.add("@app.job\ndef leave():\n    sys.exit(4)\n")
    trial.later("leave")
    running = trial.calls()
    assert running.end(None) == 4


def test_a_run_within_a_run_leaves_its_signals_to_both(trial: Trial) -> None:
    trial.add("""
other = App("other", fsync=False)

@app.on_worker_start
def within():
    other.run()
    note("within")
""")
    running = trial.calls()
    running.says("started concurrency")
    assert running.end() == 0
    assert len(trial.lines("within")) == 1
    assert "leased=0, succeeded=0" in running.log()


def test_where_signals_are_not_caught_they_do_what_they_did(trial: Trial) -> None:
    running = trial.calls("handle_signals=False, quiet_then_exit=True")
    running.says("started concurrency")
    assert running.end(signal.SIGUSR1) == -signal.SIGUSR1
