"""diskcache.Deque: not a job queue, but used as one. Taking deletes: who dies has lost it."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import diskcache


class Peer:
    def __init__(self, directory: str, server: str | None, synchronous: int = 1) -> None:
        cache = diskcache.Cache(directory, eviction_policy="none", sqlite_synchronous=synchronous)
        self.deque: Any = diskcache.Deque.fromcache(cache)

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        for payload in payloads:
            self.deque.append(payload)

    def put_batch(self, payloads: Sequence[dict[str, Any]]) -> None:
        with self.deque.transact():
            self.put(payloads)

    def take(self, count: int) -> int:
        for number in range(count):
            try:
                self.deque.popleft()
            except IndexError:
                return number
        return count

    def take_batch(self, count: int) -> int:
        with self.deque.transact():
            return self.take(count)

    def close(self) -> None:
        self.deque.cache.close()
