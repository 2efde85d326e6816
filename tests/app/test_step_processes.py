"""Jobs in steps go on in another process, after a stop and after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from nobroker import JobState, Queue
from nobroker.app.steps import STEPS

PROGRAM = """
import os, sys, time
from nobroker import BackoffPolicy
from nobroker.app import App, BaseJob

app = App(sys.argv[1], fsync=False, visibility_timeout=1.0, backoff=BackoffPolicy(base=0, jitter=0))

@app.register
class Count(BaseJob):
    def perform(self):
        self.step("before", lambda step: self.say("before"))
        self.step("count", self.count, start=0)

    def count(self, step):
        while step.cursor < 30:
            self.say(step.cursor)
            step.advance()
            step.checkpoint(force=True)
            time.sleep(0.02)

    def say(self, what):
        os.write(1, f"{what} {self.attempts}\\n".encode())

if sys.argv[2] == "work":
    app.run(poll_interval=0.05, once=len(sys.argv) > 3)
else:
    Count.perform_later()
app.close()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("how", "attempts", "code"),
    [
        pytest.param(
            signal.SIGTERM,
            1,
            0,
            marks=pytest.mark.skipif(os.name == "nt", reason="signals that a process can catch"),
        ),
        pytest.param(
            getattr(signal, "SIGKILL", signal.SIGTERM),
            2,
            -9,
            marks=pytest.mark.skipif(os.name == "nt", reason="exit codes of signals"),
        ),
    ],
    ids=["stopped", "killed"],
)
def test_a_job_goes_on_in_another_process(tmp_path: Path, how: int, attempts: int, code: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    jobs = str(tmp_path / "jobs")
    call = [sys.executable, str(program), jobs]
    subprocess.run([*call, "enqueue"], check=True, timeout=60)
    with subprocess.Popen([*call, "work"], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        lines = [first.stdout.readline().strip() for _ in range(8)]
        first.send_signal(how)
        lines += first.stdout.read().split("\n")[:-1]
        assert first.wait(timeout=60) == code
    assert lines[:3] == ["before 1", "0 1", "1 1"]
    with Queue(jobs) as queue:
        (waiting,) = queue.list_jobs()
        assert (waiting.attempts, waiting.state) == ((0, "ready") if how == signal.SIGTERM else (1, "leased"))
        cursor = waiting.job_state[STEPS]["cursors"]["count"]
    assert cursor in (len(lines) - 1, len(lines) - 2)  # killed between saying and keeping
    if how != signal.SIGTERM:
        deadline = time.monotonic() + 30
        with Queue(jobs) as queue:
            while queue.stats().ready == 0 and time.monotonic() < deadline:
                time.sleep(0.05)  # its lease is that of a real process, by a real clock
    second = subprocess.run([*call, "work", "once"], capture_output=True, text=True, timeout=60, check=True)
    assert second.stdout.split("\n")[:-1] == [f"{number} {attempts}" for number in range(cursor, 30)]
    with Queue(jobs) as queue:
        assert queue.list_jobs() == [] or queue.list_jobs()[0].state is JobState.DONE
        assert queue.check() == []
