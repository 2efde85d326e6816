"""persist-queue's SQLiteAckQueue, with JSON instead of its pickles."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import persistqueue
import persistqueue.serializers.json


class Peer:
    def __init__(self, directory: str, server: str | None) -> None:
        self.queue: Any = persistqueue.SQLiteAckQueue(directory, serializer=persistqueue.serializers.json)

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        for payload in payloads:
            self.queue.put(payload)

    put_batch = put  # its queue with acknowledgements always commits at once

    def take(self, count: int) -> int:
        for number in range(count):
            try:
                found = self.queue.get(block=False, raw=True)
            except persistqueue.Empty:
                return number
            self.queue.ack(id=found["pqid"])
        return count

    take_batch = take

    def close(self) -> None:
        self.queue.close()
