"""Processes that write, work and compact are killed at random moments; nothing that returned is lost,
nothing is there twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from nobroker import Queue

STORM = Path(__file__).with_name("storm.py")
SECONDS = float(os.environ.get("NOBROKER_STORM_SECONDS", "8"))
PRODUCERS = 8
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")


def start(role: str, directory: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(STORM), role, directory, *args]
    if role == "compact":
        where = ["--dir", f"{directory}/jobs"]
        command = [sys.executable, "-m", "nobroker", *where, "compact", "--watch", "0.2"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_every_job_whose_enqueue_returned_is_there_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("NOBROKER_STORM_SEED", str(random.randrange(2**32))))
    print(f"seed {seed}: NOBROKER_STORM_SEED={seed} NOBROKER_STORM_SECONDS={SECONDS:g} pytest {__file__}")
    rng = random.Random(seed)
    numbers = iter(range(10**6))
    with Queue(tmp_path / "jobs", segment_size=256 * 1024):
        pass
    producers = [start("produce", str(tmp_path), str(next(numbers))) for _ in range(PRODUCERS)]
    others = {role: start(role, str(tmp_path)) for role in ("consume", "compact")}
    end = time.monotonic() + SECONDS
    errors: list[str] = []
    while time.monotonic() < end:
        time.sleep(rng.uniform(0.3, 1.0))
        victim = rng.randrange(PRODUCERS + 2)
        if victim < PRODUCERS:
            errors += kill(producers[victim])
            producers[victim] = start("produce", str(tmp_path), str(next(numbers)))
        else:
            role = ("consume", "compact")[victim - PRODUCERS]
            errors += kill(others[role])
            others[role] = start(role, str(tmp_path))
    for process in [*producers, *others.values()]:
        errors += kill(process)
    assert not errors, "\n".join(errors)

    returned = [line for file in tmp_path.glob("returned-*") for line in file.read_text().splitlines()]
    with Queue(tmp_path / "jobs") as queue:
        assert queue.check() == []
        held = Counter(job.payload["serial"] for job in queue._iter_jobs() if job.payload is not None)
        total = queue.stats().total
        assert total == len(queue.list_jobs())
        result = queue.compact()
        assert queue.check() == []
    assert [serial for serial in returned if held[serial] != 1] == []
    assert [serial for serial, times in held.items() if times > 1] == []
    assert len(returned) > 100
    print(f"{len(returned):,} returned, {total:,} held; {result.describe()}")
    with Queue(tmp_path / "jobs") as queue:
        again = Counter(job.payload["serial"] for job in queue._iter_jobs() if job.payload is not None)
    assert again == held


def kill(process: subprocess.Popen[str]) -> list[str]:
    """SIGKILL; returns what the process had to complain about if it was dead already."""
    dead = process.poll()
    process.send_signal(signal.SIGKILL)
    _, complaints = process.communicate()
    return [] if dead is None else [f"exit {dead}: {complaints}"]
