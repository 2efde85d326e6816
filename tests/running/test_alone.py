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


def states(trial: Trial) -> list[tuple[str, int]]:
    return [(str(job.state), job.attempts) for job in trial.jobs()]


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


def test_quiet_takes_no_more_and_stays(trial: Trial) -> None:
    running = trial.run()
    running.says("started concurrency")
    running.tell(signal.SIGUSR1)
    running.says("nobroker.worker: event=stopped")
    trial.later("quick")
    assert running.end() == 0
    assert states(trial) == [("ready", 0)]


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
