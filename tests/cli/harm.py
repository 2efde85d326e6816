"""Every kind of harm that can come to the files of a queue, and a queue for it to come to."""

from __future__ import annotations

import os
from pathlib import Path

from xxhash import xxh3_64_intdigest

from nobroker import Queue

FIRST, SECOND = "default.000001.seg", "default.000002.seg"
JOBS = 30
IN_FIRST = 20
"""How many of the jobs are in the first segment, whose index is sealed."""


def two_segments(directory: Path) -> None:
    """Thirty jobs with ids of the caller's, in two segments, closed cleanly."""
    with Queue(directory, segment_size=65536) as queue:
        for number in range(JOBS):
            queue.enqueue({"n": number, "filling": f"{number:04}" * 750}, job_id=f"job-{number}")


def flip(path: Path, offset: int) -> None:
    """Change one bit."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def place_of(path: Path, number: int) -> int:
    """An offset in the record of a job."""
    return path.read_bytes().index(f"job-{number}".encode()) + 200


def newer_version(path: Path) -> None:
    """Let a segment be of the next major version of the format, with a header that verifies."""
    raw = bytearray(path.read_bytes()[:128])
    raw[8] = 2
    raw[120:128] = xxh3_64_intdigest(bytes(raw[:120])).to_bytes(8, "little")
    with path.open("r+b") as file:
        file.write(raw)


def plant(path: Path, kind: str, outside: Path) -> None:
    """Put something foreign where a file of ours belongs; links lead to `outside`."""
    if path.is_file() or path.is_symlink():
        path.unlink()
    if kind == "symlink":
        path.symlink_to(outside)
    elif kind == "dangling symlink":
        path.symlink_to(outside.with_name("nowhere"))
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    else:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 7))  # the device that is always full
