"""A disk that is really full: no signal, acks where space was reserved, and on it goes when space returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.mounts import small_tmpfs
from tests.faults.trial import Trial

pytestmark = pytest.mark.skipif(os.name == "nt", reason="mounts a file system")
SIZE = 1 << 20
CYCLES = 5


def fill(directory: Path, cycles: int, seed: str, *planted: str) -> subprocess.CompletedProcess[str]:
    """Have a small disk filled by a process of its own."""
    directory.mkdir()
    with small_tmpfs(directory, SIZE):
        command = [sys.executable, "-m", "tests.faults.full_disk_child", str(directory), str(cycles), seed]
        return subprocess.run([*command, *planted], capture_output=True, text=True)


def test_a_full_disk(trial: Trial, tmp_path: Path) -> None:
    for number, _ in trial.rounds(4):
        done = fill(tmp_path / str(number), CYCLES, f"{trial.options.seed}/{number}")
        assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-3000:]}"
        for what, times in json.loads(done.stdout).items():
            trial.count(what, times)
    assert trial.figures["full"] >= CYCLES
    print(dict(trial.figures))
