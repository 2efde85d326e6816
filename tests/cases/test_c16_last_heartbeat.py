"""C16: at a graceful stop the last job keeps its lease until it is acked."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from nobroker import Queue

from .words import start

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.name == "nt", reason="signals that a process can catch"),
]

WORKER = """
import json, os, sys, threading, time
from nobroker import Queue, Worker
q = Queue(sys.argv[1], visibility_timeout=1)
def handler(job):
    with open(sys.argv[2], "a") as file:
        file.write(f"{os.getpid()}\\n")
    print("begun", flush=True)
    if sys.argv[3] == "stop":
        threading.Thread(target=worker.stop).start()
    time.sleep(2.5)
one = 1 if sys.argv[3] == "max_jobs" else None
worker = Worker(q, handler, poll_interval=0.05, idle_timeout=float(sys.argv[4]), max_jobs=one)
print(json.dumps(worker.run().to_dict()), flush=True)
"""


@pytest.mark.parametrize("how", ["signal", "stop", "max_jobs"])
def test_no_second_worker_gets_it(tmp_path: Path, how: str) -> None:
    with Queue(tmp_path / "q") as queue:
        job = queue.enqueue("long")
    runs = tmp_path / "runs"
    one = start(WORKER, tmp_path / "q", runs, how, 30)
    assert one.stdout is not None
    assert one.stdout.readline() == "begun\n"
    if how == "signal":
        one.send_signal(signal.SIGTERM)
    two = start(WORKER, tmp_path / "q", runs, "second", 3.5)
    out, err = one.communicate(timeout=30)
    assert one.returncode == 0, err
    stats = json.loads(out.splitlines()[-1])
    out, err = two.communicate(timeout=30)
    assert two.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["leased"] == 0
    assert stats["lost_leases"] == 0
    assert len(runs.read_text().splitlines()) == 1
    with Queue(tmp_path / "q", read_only=True) as queue:
        found = queue.get(job.id)
        assert (found.state, found.attempts) == ("done", 1)
