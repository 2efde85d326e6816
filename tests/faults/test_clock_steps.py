"""Somebody sets the clock, live, under processes that work: leases, delays and retries are not moved."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nobroker import Queue
from tests.faults.trial import Trial

STEPS = {"-1 h": -3600, "+1 h": 3600, "-5 d": -5 * 86400, "+1 d": 86400}
LIBRARIES = [
    Path(directory) / "faketime" / "libfaketimeMT.so.1"
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib")
]
PROGRAM = """
import sys, time
from nobroker import Queue
queue = Queue(sys.argv[1])
held, waiting = queue.enqueue_many(["held", "waiting"])
late = queue.enqueue("late", delay=2.5)
assert [job.payload for job in queue.lease(1, visibility_timeout=2.5)] == ["held"]
before = time.time()
print("ready", flush=True)
sys.stdin.readline()
shown = time.time() - before
queue2 = Queue(sys.argv[1])
assert [job.payload for job in queue2.lease(9)] == ["waiting"], "stolen or stranded at once"
began = time.clock_gettime(time.CLOCK_MONOTONIC)
found = []
while len(found) < 2 and time.clock_gettime(time.CLOCK_MONOTONIC) < began + 20:
    found += [job.payload for job in queue2.lease(2, wait=0.2)]
took = time.clock_gettime(time.CLOCK_MONOTONIC) - began
assert sorted(found) == ["held", "late"], found
assert queue2.check() == []
print(shown, took, flush=True)
"""


WORKER = """
import select, sys, time
from nobroker import Queue, Worker
queue, other = Queue(sys.argv[1], visibility_timeout=0.6), Queue(sys.argv[1])
made = queue.enqueue("held")

def handler(job):
    before = time.time()
    print("ready", flush=True)
    sys.stdin.readline()
    shown = time.time() - before
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    while (took := time.clock_gettime(time.CLOCK_MONOTONIC) - began) < 1.5:
        assert other.lease(9) == [], "its heartbeat came too late"
        select.select([], [], [], 0.02)  # time.sleep fails under the library that sets the clock
    print(shown, took, flush=True)

stats = Worker(queue, handler, max_jobs=1).run()
job = other.get(made.id)
assert (stats.succeeded, job.state, job.attempts) == (1, "done", 1), (stats, job)
assert other.check() == []
"""


def library() -> Path:
    for path in LIBRARIES:
        if path.exists():
            return path
    pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")


def stepped(directory: Path, program: str, number: int, shift: int) -> None:
    """Run a program, and set its wall clock when it has said that it is ready."""
    stamp = directory / "faketime"
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(stamp),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    stamp.write_text("+0\n")
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(directory / str(number))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    stamp.write_text(f"{shift:+d}\n")
    began = time.monotonic()
    out, complaint = process.communicate("\n", timeout=60)
    assert process.returncode == 0, complaint
    shown, _ = (float(word) for word in out.split())
    assert abs(shown - shift) < 60, "the clock was not stepped"
    assert time.monotonic() - began < 15


@pytest.mark.processes
@pytest.mark.parametrize("step", STEPS)
def test_a_live_step(trial: Trial, tmp_path: Path, step: str) -> None:
    """The wall clock of a running process is set; a second handle is opened after it. In long runs, after the
    first round, by any step of up to ten days.
    """
    for number, rng in trial.rounds(1):
        shift = rng.randint(-10 * 86400, 10 * 86400) if number else STEPS[step]
        stepped(tmp_path, PROGRAM, number, shift)
        trial.count("steps")


@pytest.mark.processes
@pytest.mark.parametrize("step", [10**6, -(10**6)])
def test_a_live_step_under_a_worker(trial: Trial, tmp_path: Path, step: int) -> None:
    """Its heartbeat goes on, and its job is run once."""
    for number, rng in trial.rounds(1):
        stepped(tmp_path, WORKER, number, rng.randint(-(10**6), 10**6) if number else step)
        trial.count("steps")


ELSEWHERE = """
import sys
from nobroker import Queue
with Queue(sys.argv[1]) as queue:
    print(*[job.payload for job in queue.lease(9, visibility_timeout=float(sys.argv[2]))])
"""


def in_another_time(shift: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the boot clock is shifted by seconds, or skip."""
    unshare = ["unshare", "-T", "--boottime", str(shift), "--fork"]
    try:
        done = subprocess.run([*unshare, *command], capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if "unshare" in done.stderr:
        pytest.skip(f"no time namespace here: {done.stderr.strip()}")
    return done


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="time namespaces are of Linux")
@pytest.mark.parametrize("shift", [-30, 100_000])
def test_a_shifted_boot_clock(trial: Trial, tmp_path: Path, shift: int) -> None:
    """A process in a time namespace works with one outside: both measure the same leases."""
    for number, rng in trial.rounds(1):
        where = tmp_path / str(number)
        with Queue(where) as queue:
            queue.enqueue_many(["a", "b"])
            assert [job.payload for job in queue.lease(1, visibility_timeout=3.0)] == ["a"]
            by = rng.randint(-60, 10**6) if number else shift
            done = in_another_time(by, sys.executable, "-c", ELSEWHERE, str(where), "2.0")
            assert done.stdout.split() == ["b"], done.stderr
            assert queue.lease(9) == []
            again = queue.lease(1, wait=10.0) + queue.lease(1, wait=10.0)
            assert sorted(job.payload for job in again) == ["a", "b"]
            assert queue.check() == []
        trial.count("namespaces")
