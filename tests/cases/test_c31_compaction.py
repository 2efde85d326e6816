"""C31: segments leave under readers and workers; and a compaction killed at any step."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from nobroker import Queue

from .words import start, sub

pytestmark = pytest.mark.processes

ROLES = """
import json, sys, time
from nobroker import Queue
q = Queue(sys.argv[1], fsync=False, segment_size=65536, visibility_timeout=60)
role, end = sys.argv[2], time.monotonic() + float(sys.argv[3])
seen, n = [], 0
while time.monotonic() < end:
    n += 1
    if role == "producer":
        q.enqueue_many([[n, k, "x" * 300] for k in range(20)])
        time.sleep(0.004)
    elif role == "worker":
        jobs = q.lease(30)
        for job in jobs[:3]:
            q.extend(job, 60, progress=1)
        if jobs[3:5]:
            q.release_many(jobs[3:5]); del jobs[3:5]
        q.ack_many(jobs)
        seen += [job.payload[:2] for job in jobs]
    elif role == "reader":
        q.stats()
        for job in q.list_jobs(limit=50):
            assert len(job.payload) == 3
        time.sleep(0.005)
    else:
        q.compact()
        time.sleep(0.02)
print(json.dumps([n, seen]), flush=True)
"""


def test_segments_vanish_under_readers(tmp_path: Path) -> None:
    seconds = 3.0
    roles = ["producer", "worker", "worker", "reader", "compactor"]
    processes = [start(ROLES, tmp_path, role, seconds) for role in roles]
    said = []
    for role, process in zip(roles, processes, strict=True):
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0, (role, err)
        said.append(json.loads(out.splitlines()[-1]))
    rounds = said[0][0]
    acked = Counter((n, k) for _, seen in said for n, k in seen)
    with Queue(tmp_path, fsync=False) as queue:
        while jobs := queue.lease(500):
            acked.update((job.payload[0], job.payload[1]) for job in jobs)
            queue.ack_many(jobs)
        assert acked == Counter((n, k) for n in range(1, rounds + 1) for k in range(20))
        queue.compact()
        assert queue.stats().total == 0
        assert list(queue.check()) == []


MAKE = """
import sys
from nobroker import BackoffPolicy, Queue
q = Queue(sys.argv[1], fsync=False, segment_size=65536, visibility_timeout=10**6)
q.enqueue_many([["keep", n, "x" * 200] for n in range(40)], priority=3, job_ids=[f"k{n}" for n in range(40)])
q.enqueue_many(["x" * 1000] * 150)
q.ack_many([job for job in q.lease(200) if job.payload[0] == "x"])
q.nack("k1", error="why", dead=True); q.nack("k2", error="later", delay=1000); q.release("k3")
q.extend("k4", 10**6, progress=5, state={"s": 1}); q.ack("k5", result=[7]); q.cancel("k6")
q.enqueue("waits", delay=1000, lane="l", metadata={"m": 1}); q.pause(lane="l")
q.close()
"""

KILLED = """
import os, signal, sys
left = int(sys.argv[2])
def kill_at(module, name):
    real = getattr(module, name)
    def wrapped(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    setattr(module, name, wrapped)
import nobroker
for name in "open pwrite write fsync fdatasync replace rename unlink posix_fallocate ftruncate".split():
    kill_at(os, name)
from nobroker import Queue
q = Queue(sys.argv[1], segment_size=65536, visibility_timeout=10**6)
q.compact()
q.close()
print("left", left)
"""


def told(directory: Path) -> list[str]:
    with Queue(directory, fsync=False) as queue:
        jobs = [job.to_dict() for job in queue.list_jobs() if job.state != "done"]
        assert queue.get("k5").result == [7]
        return [json.dumps(job, default=str) for job in jobs] + [job.id for job in queue.list_jobs("ready")]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL there")
def test_killed_at_any_step(tmp_path: Path) -> None:
    made = sub(MAKE, tmp_path / "made")
    assert made.code == 0, made
    expected = told(tmp_path / "made")
    began, step, kills = time.monotonic(), 1, 0
    while True:
        directory = tmp_path / "q"
        shutil.copytree(tmp_path / "made", directory, ignore=shutil.ignore_patterns("*.wake"))
        ran = sub(KILLED, directory, step)
        assert ran.code in (0, -9), ran
        assert told(directory) == expected, f"killed at step {step}"
        with Queue(directory, fsync=False, segment_size=65536) as queue:
            queue.compact()
            assert list(queue.check()) == []
        assert told(directory) == expected
        assert len(list(directory.glob("*.new"))) <= 1  # the next segment, prepared
        assert list(directory.glob("*.tmp*")) == []
        shutil.rmtree(directory)
        if ran.code == 0:
            break
        kills += 1
        step += 1 if time.monotonic() - began < 15 else 7
    assert kills > 5
