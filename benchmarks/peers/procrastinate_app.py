"""procrastinate on PostgreSQL: jobs go in over a blocking connection, and out through its worker."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import procrastinate
import psycopg


class Peer:
    def __init__(self, directory: str, server: str | None) -> None:
        self.server = server
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("drop schema public cascade")
            connection.execute("create schema public")
        self.app: Any = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=server))
        self.app.open()
        self.app.schema_manager.apply_schema()
        self.task = self.app.task(name="work")(work)

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        for payload in payloads:
            self.task.defer(**payload)

    def put_batch(self, payloads: Sequence[dict[str, Any]]) -> None:
        self.task.batch_defer(*payloads)

    def take(self, count: int) -> int:
        """Works off everything: its worker cannot be told to stop after so many."""
        before = self.waiting()
        if before:
            asyncio.run(self.drain())
        return before - self.waiting()

    take_batch = take

    def clear(self) -> None:
        with psycopg.connect(self.server) as connection:
            connection.execute("truncate procrastinate_jobs cascade")

    async def drain(self) -> None:
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.server))
        app.task(name="work")(work)
        async with app.open_async():
            await app.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)

    def waiting(self) -> int:
        with psycopg.connect(self.server) as connection:
            row = connection.execute(
                "select count(*) from procrastinate_jobs where status = 'todo'"
            ).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self.app.close()


async def work(**payload: Any) -> None:
    """Nothing."""
