"""Fills a small disk, again and again: `python -m tests.faults.full_disk_child DIRECTORY CYCLES SEED`.

A process of its own, because the fault that must not happen is a signal. Prints what it did, as JSON. More
words are faults to plant.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path

from nobroker import CompactionError, Queue, StorageError
from tests.faults.account import Account, key_of
from tests.faults.book import SEGMENT
from tests.faults.plants import PLANTS

BALLAST = 512 * 1024


class Cycles:
    """One queue on a disk that is full from time to time."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.account = Account()
        self.did: Counter[str] = Counter()
        self.number = 0

    def enqueue(self, queue: Queue, size: int) -> bool:
        self.number += 1
        key = f"job-{self.number}"
        error: StorageError | None = None
        try:
            queue.enqueue({"key": key, "pad": "x" * size})
        except StorageError as caught:
            error = caught
        self.account.enqueued([key], error)
        return error is None

    def ack_some(self, queue: Queue, count: int) -> bool:
        """False when there was no room."""
        try:
            held = queue.lease(count)
            keys = [key_of(job) for job in held]
            queue.ack_many(held)
        except StorageError as error:
            if error.outcome != "not written":
                raise
            return False
        self.account.acked(keys, None)
        return True

    def cycle(self, queue: Queue) -> None:
        ballast = self.directory / "ballast"
        ballast.write_bytes(b"\1" * self.rng.randrange(BALLAST // 2, BALLAST))
        size = self.rng.choice((100, 3_000, 9_000))
        while self.enqueue(queue, size):
            self.did["enqueued"] += 1
        self.did["full"] += 1
        for count in (1, 3, 20):
            if not self.ack_some(queue, count):
                raise AssertionError("no ack on a full disk, for which space is reserved")
        self.did["acked on a full disk"] += 1
        try:
            queue.compact()
        except CompactionError:
            self.did["no room to compact"] += 1
        self.account.compare(queue)
        if self.rng.random() < 0.3:  # a full disk can be opened, or says why not
            self.reopen()
        ballast.unlink()
        if not self.enqueue(queue, size):
            raise AssertionError("there is space again, and the queue does not go on")
        while queue.stats().ready > 5:
            if not self.ack_some(queue, 50):
                raise AssertionError("there is space again, and no ack")
        queue.compact()
        self.account.compare(queue)

    def reopen(self) -> None:
        try:
            with Queue(self.directory / "jobs", segment_size=SEGMENT) as other:
                self.account.compare(other)
            self.did["opened on a full disk"] += 1
        except StorageError:
            self.did["not opened on a full disk"] += 1


def main(directory: str, cycles: str, seed: str, *planted: str) -> None:
    for name in planted:
        PLANTS[name]()
    work = Cycles(Path(directory), seed)
    with Queue(Path(directory) / "jobs", segment_size=SEGMENT) as queue:
        for _ in range(int(cycles)):
            work.cycle(queue)
            work.did["cycles"] += 1
        damage = [finding for finding in queue.check() if finding.severity != "note"]
        if damage:
            raise AssertionError(f"{damage}")
    print(json.dumps(work.did))


if __name__ == "__main__":
    main(*sys.argv[1:])
