"""Redis alone: the least that is a queue, a list and a second one for what is being worked on."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import redis


class Peer:
    def __init__(self, directory: str, server: str | None) -> None:
        self.client: Any = redis.Redis.from_url(server)
        self.client.flushdb()

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        for payload in payloads:
            self.client.rpush("ready", msgpack.packb(payload))

    def put_batch(self, payloads: Sequence[dict[str, Any]]) -> None:
        self.client.rpush("ready", *(msgpack.packb(payload) for payload in payloads))

    def take(self, count: int) -> int:
        for number in range(count):
            found = self.client.lmove("ready", "held", "LEFT", "RIGHT")
            if found is None:
                return number
            msgpack.unpackb(found)
            self.client.lrem("held", 1, found)
        return count

    def take_batch(self, count: int) -> int:
        """There is no command that moves many: a transaction takes them, a second one ends them."""
        with self.client.pipeline(transaction=True) as pipe:
            for _ in range(count):
                pipe.lmove("ready", "held", "LEFT", "RIGHT")
            found = [one for one in pipe.execute() if one is not None]
        for one in found:
            msgpack.unpackb(one)
        if found:
            self.client.ltrim("held", len(found), -1)
        return len(found)

    def close(self) -> None:
        self.client.close()
