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


def library() -> Path:
    for path in LIBRARIES:
        if path.exists():
            return path
    pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")


@pytest.mark.processes
@pytest.mark.parametrize("step", STEPS)
def test_a_live_step(trial: Trial, tmp_path: Path, step: str) -> None:
    """The wall clock of a running process is set; a second handle is opened after it."""
    stamp = tmp_path / "faketime"
    stamp.write_text("+0\n")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(stamp),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    for number, _ in trial.points(1):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / str(number))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        stamp.write_text(f"{STEPS[step]:+d}\n")
        began = time.monotonic()
        out, complaint = process.communicate("\n", timeout=60)
        assert process.returncode == 0, complaint
        shown, _ = (float(word) for word in out.split())
        assert abs(shown - STEPS[step]) < 60, "the clock was not stepped"
        assert time.monotonic() - began < 15
        trial.count("steps")


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="time namespaces are of Linux")
@pytest.mark.parametrize("shift", [-30, 100_000])
def test_a_shifted_boot_clock(trial: Trial, tmp_path: Path, shift: int) -> None:
    """A process in a time namespace works with one outside: both measure the same leases."""
    program = (
        "import sys; from nobroker import Queue\n"
        "with Queue(sys.argv[1]) as q:\n"
        "    print(*[j.payload for j in q.lease(9, visibility_timeout=float(sys.argv[2]))])\n"
    )
    with Queue(tmp_path / "q") as queue:
        queue.enqueue_many(["a", "b"])
        assert [job.payload for job in queue.lease(1, visibility_timeout=3.0)] == ["a"]
        command = ["unshare", "-T", "--boottime", str(shift), "--fork", sys.executable, "-c", program]
        try:
            done = subprocess.run(
                [*command, str(tmp_path / "q"), "2.0"],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        except FileNotFoundError:
            pytest.skip("unshare is not installed")
        if "unshare" in done.stderr:
            pytest.skip(f"no time namespace here: {done.stderr.strip()}")
        assert done.stdout.split() == ["b"], done.stderr
        assert queue.lease(9) == []
        assert sorted(job.payload for job in queue.lease(1, wait=10.0) + queue.lease(1, wait=10.0)) == [
            "a",
            "b",
        ]
        assert queue.check() == []
        trial.count("namespaces")
