"""This project and PyPI's nobroker 0.1.2, whichever the process has: what both have, or the better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nobroker


class Peer:
    def __init__(self, directory: str, server: str | None, fsync: bool = True) -> None:
        self.queue: Any = nobroker.Queue(directory, fsync=fsync)
        self.acks_many = hasattr(self.queue, "ack_many")

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        enqueue = self.queue.enqueue
        for payload in payloads:
            enqueue(payload)

    def put_batch(self, payloads: Sequence[dict[str, Any]]) -> None:
        self.queue.enqueue_many(payloads)

    def take(self, count: int) -> int:
        lease, ack = self.queue.lease_one, self.queue.ack
        for number in range(count):
            job = lease()
            if job is None:
                return number
            ack(job)
        return count

    def take_batch(self, count: int) -> int:
        jobs = self.queue.lease(count)
        if self.acks_many and jobs:
            self.queue.ack_many(jobs)
        else:
            for job in jobs:
                self.queue.ack(job)
        return len(jobs)

    def close(self) -> None:
        self.queue.close()
