"""Faults in the system calls of another process, by strace."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.kill_child import Children


def needed() -> None:
    """Skip where there is no strace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")


def go_on_with(children: Children, pid: int, *options: str) -> int:
    """Let a stopped child go on under strace with these options, to its end; its status."""
    tracer = subprocess.Popen(["strace", *options, "-p", str(pid)], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    os.kill(pid, signal.SIGCONT)
    status = children.end()
    tracer.communicate()
    if "attached" not in said:
        pytest.skip(f"strace may not watch other processes here: {said.strip()}")
    return status


def with_fault(children: Children, pid: int, fault: str) -> int:
    """The same, with a fault as strace's `inject` takes it."""
    return go_on_with(children, pid, "-o", os.devnull, "-e", f"inject={fault}")


def calls_of(children: Children, pid: int, file: Path) -> list[tuple[str, int]]:
    """The system calls of a child in their order: name, and the how manieth of this name it is."""
    status = go_on_with(children, pid, "-o", str(file))
    assert status == 0, f"ended with status {status}"
    names = re.findall(r"^(\w+)\(", file.read_text(errors="replace"), re.MULTILINE)
    seen: Counter[str] = Counter()
    calls = []
    for name in names:
        seen[name] += 1
        calls.append((name, seen[name]))
    return calls
