"""Whom the project is measured beside: one module each, all with the same four verbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Peer(Protocol):
    """What a module of this package offers as `Peer`; made with `directory`, `server` and its options."""

    def put(self, payloads: Sequence[dict[str, Any]]) -> None:
        """One call for each payload."""

    def put_batch(self, payloads: Sequence[dict[str, Any]]) -> None:
        """All in the cheapest way that there is for many."""

    def take(self, count: int) -> int:
        """Take and finish one by one; how many it were, 0 when nothing is left."""

    def take_batch(self, count: int) -> int:
        """Take and finish in the cheapest way that there is for many."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True)
class Contender:
    """One peer with one setting.

    Attributes:
        name: in tables and plots.
        module: below this package.
        who: whose packages it needs, see `Bench.task`.
        server: kind of server it needs.
        options: of its `Peer`.
        promise: what its setting says about durability; what it does is measured.
        ack: whether a worker that dies gives its jobs back.
        backlog: how many jobs there are when taking begins.
        taken: jobs taken at once; fewer where each of them takes milliseconds and many are no cheaper.
    """

    name: str
    module: str
    who: str = "peers"
    server: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    promise: str = ""
    ack: bool = True
    backlog: int = 4000
    taken: int = 1000


THIS = "nobroker"
THIS_NOSYNC = "nobroker fsync=False"
OLD = "nobroker 0.1.2"
OLD_NOSYNC = "nobroker 0.1.2 fsync=False"
REDIS = "Redis lists"

CONTENDERS = (
    Contender(THIS, "nobroker_queue", "this", promise="every call synced", backlog=200_000),
    Contender(OLD, "nobroker_queue", "old", promise="every call synced", backlog=4000),
    Contender(
        THIS_NOSYNC,
        "nobroker_queue",
        "this",
        options={"fsync": False},
        promise="no call waits for the disk",
        backlog=200_000,
    ),
    Contender(
        OLD_NOSYNC,
        "nobroker_queue",
        "old",
        options={"fsync": False},
        promise="no call waits for the disk",
        backlog=8000,
    ),
    Contender(REDIS, "redis_lists", server="redis", promise="appendfsync always", backlog=40_000),
    Contender(
        "RQ", "rq_queue", server="redis", promise="on Redis, appendfsync always", backlog=150, taken=100
    ),
    Contender(
        "procrastinate",
        "procrastinate_app",
        server="postgres",
        promise="PostgreSQL as it comes",
        backlog=150,
        taken=100,
    ),
    Contender("litequeue", "litequeue_queue", promise="SQLite, WAL, synchronous=NORMAL", taken=100),
    Contender("persist-queue", "persist_queue", promise="SQLite, WAL, synchronous=FULL", backlog=1000),
    Contender("huey SqliteHuey", "huey_sqlite", promise="SQLite, WAL, as it comes", ack=False, backlog=1000),
    Contender(
        "huey SqliteHuey fsync=True",
        "huey_sqlite",
        options={"fsync": True},
        promise="SQLite, WAL, synchronous=FULL",
        ack=False,
        backlog=1000,
    ),
    Contender(
        "huey FileHuey",
        "huey_file",
        promise="a file per job, as it comes",
        ack=False,
        backlog=2000,
        taken=100,
    ),
    Contender("diskcache.Deque", "diskcache_deque", promise="SQLite, WAL, synchronous=NORMAL", ack=False),
    Contender(
        "diskcache.Deque synchronous=2",
        "diskcache_deque",
        options={"synchronous": 2},
        promise="SQLite, WAL, synchronous=FULL",
        ack=False,
    ),
)
