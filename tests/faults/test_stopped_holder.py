"""A process is stopped while it holds the lock, or a lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from nobroker import LockTimeoutError, Queue
from tests.faults.trial import Trial

HOLDER = Path(__file__).with_name("holder.py")
ROUNDS = 10
TIMEOUT_S = 0.05
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here"),
]


def start(role: str, directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(HOLDER), role, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    return process


def go_on(process: subprocess.Popen[str]) -> str:
    os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate("\n", timeout=60)
    assert process.returncode == 0
    return out.strip()


def test_who_holds_the_lock(trial: Trial, tmp_path: Path) -> None:
    """Others get a typed error that names the process; when it goes on, all go on."""
    for number, _ in trial.rounds(ROUNDS, least=20):
        directory = tmp_path / str(number)
        with Queue(directory, lock_timeout=TIMEOUT_S) as queue:
            queue.enqueue("before")
            process = start("lock", directory)
            verbs = (
                partial(queue.enqueue, 1),
                queue.lease,
                queue.compact,
                partial(Queue, directory, lock_timeout=TIMEOUT_S),
            )
            for verb in verbs:
                with pytest.raises(LockTimeoutError) as caught:
                    verb()
                assert caught.value.pid == process.pid
                assert str(process.pid) in str(caught.value)
            assert [job.payload for job in queue.list_jobs()] == ["before"]
            assert go_on(process) == "ended"
            queue.enqueue("after")
            assert {job.payload for job in queue.list_jobs()} == {"before", "held", "after"}
            assert queue.check() == []
            trial.count("stops")


def test_who_holds_a_lease(trial: Trial, tmp_path: Path) -> None:
    """Continued after its lease is over, it can neither ack nor nack nor extend; the new holder can."""
    for number, _ in trial.rounds(ROUNDS, least=20):
        directory = tmp_path / str(number)
        with Queue(directory) as queue:
            queue.enqueue("work")
            process = start("lease", directory)
            jobs = queue.lease(1, wait=20.0)
            assert [job.attempts for job in jobs] == [2]
            assert go_on(process) == "NotLeasedError " * 3 + "NotLeasedError"
            queue.ack(jobs[0])
            assert queue.stats().done == 1
            assert queue.check() == []
            trial.count("stops")
