"""The words in which the cases are told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nobroker import BackoffPolicy, NobrokerError, Queue

B0 = BackoffPolicy(base=0, jitter=0)


class Ran(NamedTuple):
    """A process that ended by itself."""

    code: int
    out: str
    err: str


def outcome(work: Callable[[], Any]) -> Any:
    """What a call returns, or the typed error that it raises; any other error is one of the test."""
    try:
        return work()
    except NobrokerError as error:
        return error


def sub(code: str, *words: object, timeout: float = 60) -> Ran:
    """Run `code` in a fresh interpreter; death by a signal is a negative code, a hang is a failure."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def cli(directory: Path, *words: str, timeout: float = 60) -> Ran:
    """The command line."""
    done = subprocess.run(
        [sys.executable, "-m", "nobroker", "--dir", str(directory), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def start(code: str, *words: object) -> subprocess.Popen[str]:
    """A process to talk to."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def segs(directory: Path) -> list[Path]:
    """Data files, oldest first."""
    return sorted(directory.glob("*.seg"))


def end(path: Path) -> int:
    """Offset just past the last byte that is not zero."""
    return len(path.read_bytes().rstrip(b"\0"))


def drain(queue: Queue) -> list[Any]:
    """Lease and ack until empty; the payloads in order."""
    found = []
    while jobs := queue.lease(10):
        found += [job.payload for job in jobs]
        queue.ack_many(jobs)
    return found


def no_caches(directory: Path) -> None:
    """As after a crash of the machine: only the log itself."""
    for path in directory.iterdir():
        if path.suffix != ".seg":
            path.unlink()


def hashes(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Contents and time of change of every file."""
    return {
        path.name: (path.read_bytes(), os.stat(path).st_mtime_ns)
        for path in sorted(directory.iterdir())
        if path.is_file()
    }
