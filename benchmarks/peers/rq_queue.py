"""RQ on Redis. Its worker runs the jobs in its own process (`SimpleWorker`): no fork for each of them."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis
import rq

from benchmarks.peers.noop import work


class Peer:
    def __init__(self, directory: str, server: str | None) -> None:
        self.client = redis.Redis.from_url(server)
        self.client.flushdb()
        self.queue: Any = rq.Queue(connection=self.client)
        self.worker: Any = rq.SimpleWorker([self.queue], connection=self.client)

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        for payload in payloads:
            self.queue.enqueue(work, payload)

    def put_batch(self, payloads: Sequence[dict[str, Any]]) -> None:
        self.queue.enqueue_many([rq.Queue.prepare_data(work, (payload,)) for payload in payloads])

    def take(self, count: int) -> int:
        """Works off everything: starting and ending its worker would cost more than a few jobs."""
        before = self.queue.count
        if before:
            self.worker.work(burst=True, logging_level="ERROR")
        return int(before - self.queue.count)

    take_batch = take

    def clear(self) -> None:
        self.queue.empty()

    def close(self) -> None:
        self.client.close()
