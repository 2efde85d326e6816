"""huey on SQLite. Taking a task deletes it: a worker that dies has lost it."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import huey

from benchmarks.peers.noop import work


class Peer:
    def __init__(self, directory: str, server: str | None, **options: Any) -> None:
        self.huey = self.opened(Path(directory), options)
        self.task = self.huey.task()(work)

    def opened(self, directory: Path, options: dict[str, Any]) -> Any:
        return huey.SqliteHuey(filename=str(directory / "huey.db"), results=False, **options)

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        for payload in payloads:
            self.task(payload)

    put_batch = put  # there is no other way for many

    def take(self, count: int) -> int:
        for number in range(count):
            task = self.huey.dequeue()
            if task is None:
                return number
            self.huey.execute(task)
        return count

    take_batch = take

    def close(self) -> None:
        self.huey.storage.close()
