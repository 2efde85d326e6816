"""litequeue."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litequeue import LiteQueue


class Peer:
    def __init__(self, directory: str, server: str | None) -> None:
        self.queue: Any = LiteQueue(str(Path(directory) / "queue.db"))

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        for payload in payloads:
            self.queue.put(json.dumps(payload))

    def put_batch(self, payloads: Sequence[dict[str, Any]]) -> None:
        with self.queue.transaction(mode="IMMEDIATE"):
            self.put(payloads)

    def take(self, count: int) -> int:
        for number in range(count):
            message = self.queue.pop()
            if message is None:
                return number
            json.loads(message.data)
            self.queue.done(message.message_id)
        return count

    take_batch = take  # taking opens a transaction of its own: there is no cheaper way for many

    def close(self) -> None:
        self.queue.close()
