"""The work that is measured: payloads, and loops that are timed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Payload = dict[str, Any]
BATCH = 1000


def payload(number: int) -> Payload:
    return {"send_email_to": f"ada{number}@example.com", "template": "welcome", "n": number}


def payloads(count: int, first: int = 0) -> list[Payload]:
    return [payload(number) for number in range(first, first + count)]


def batches(count: int, size: int = BATCH) -> Iterator[list[Payload]]:
    """`count` payloads, never more than one batch of them in memory."""
    for first in range(0, count, size):
        yield payloads(min(size, count - first), first)


class Stopwatch:
    """How long something took, over many pieces.

    Pieces of two kinds of work in turn see the same machine, however its load changes meanwhile.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.done = 0

    def run(self, piece: Callable[[], int]) -> int:
        """Time one piece; it returns how many jobs it did."""
        began = time.perf_counter()
        done = piece()
        self.seconds += time.perf_counter() - began
        self.done += done
        return done

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.done / self.seconds


class BareFile:
    """What any durable write has to do at least: bytes at the end of a preallocated file, then a sync."""

    SIZE = 16 * 2**20

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self.fd, 0, self.SIZE)
        os.fsync(self.fd)
        self.end = 0

    def append(self, data: bytes, *, sync: bool = True) -> None:
        if self.end + len(data) > self.SIZE:
            self.end = 0
        self.end += os.pwrite(self.fd, data, self.end)
        if sync:
            os.fdatasync(self.fd)

    def close(self) -> None:
        os.close(self.fd)


def slow_and_count_syncs(extra_s: float) -> list[int]:
    """From now on every sync of this process takes `extra_s` seconds more; the list's one number counts them.

    Call it before the queue is imported.
    """
    counted = [0]

    def wrapped(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            counted[0] += 1
            if extra_s:
                time.sleep(extra_s)
            real(fd)

        return sync

    for name in ("fsync", "fdatasync"):
        setattr(os, name, wrapped(getattr(os, name)))
    return counted
