"""Eight processes on one queue; what they saw is checked for lost, doubled and overlapping deliveries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nobroker import Queue
from tests.faults.histories import History
from tests.faults.limited import prepare
from tests.faults.stores import scratch
from tests.faults.trial import Trial

PROCESSES = 8
SECONDS = 12.0
HISTORIAN = Path(__file__).with_name("historian.py")
pytestmark = pytest.mark.processes


def run(directory: Path, seconds: float, seed: float, program: Path = HISTORIAN) -> History:
    """Let the processes work, and read what they wrote."""
    with Queue(directory / "jobs", segment_size=65536, fsync=False) as queue:
        prepare(queue)
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                str(program),
                str(directory / "jobs"),
                str(directory / f"notes-{number}"),
                str(seconds),
                f"{seed}-{number}",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    complaints = [process.communicate(timeout=seconds + 120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES, complaints
    history = History()
    for number in range(PROCESSES):
        # All that was made first: a lease may be in notes that come before its enqueue.
        history.read(directory / f"notes-{number}")
    return history


def test_eight_processes(trial: Trial, tmp_path: Path) -> None:
    for number, rng in trial.rounds(1, least=int(60 / SECONDS)):
        with scratch(tmp_path) as directory:
            history = run(directory, SECONDS, rng.random())
            wrong = history.judge()
            assert wrong == [], f"{len(wrong)} in {history.verbs} verbs of round {number}"
            with Queue(directory / "jobs", segment_size=65536) as queue:
                states = {job.seq: str(job.state.value) for job in queue.list_jobs()}
                assert history.left(states) == []
                assert [found for found in queue.check() if found.severity != "note"] == []
            trial.count("verbs", history.verbs)
            trial.count("leases", len(history.leases))
            trial.count("processes", PROCESSES)
            assert len(history.leases) > 100
