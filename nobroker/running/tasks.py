"""What a child process is told to do: plain values, so that they can be handed over a fork or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nobroker.running.config import WorkerConfig

WORK = "worker"
SCHEDULE = "scheduler"
MEASURE = "measure"
SETTLE = "settle"

DIED = "died"
TIMED_OUT = "timed out"
LET_GO = "let go"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A lease whose process has gone.

    Attributes:
        id, token: of the lease.
        why: `DIED`, `TIMED_OUT`, or `LET_GO`: nobody is to blame.
        code: how the process ended: its exit code, or a signal, negative.
        text: for people.
    """

    id: str
    token: int
    why: str
    code: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a child process is there for.

    Attributes:
        role: `WORK`, `SCHEDULE`; `MEASURE`: say how large a worker is before it has worked; `SETTLE`: say
            what becomes of jobs whose processes died.
        name: for logs.
        worker: of `WORK` and `MEASURE`.
        scheduler: whether a worker also enqueues recurring tasks.
        once, quiet_then_exit, shutdown_timeout, heartbeat_interval: as in `RunConfig`.
        supervisor: pid of the supervisor.
        registered: its id in the registry.
        metrics_dir: see `Service`.
        lost: of `SETTLE`.
    """

    role: str
    name: str
    worker: WorkerConfig | None = None
    scheduler: bool = False
    once: bool = False
    quiet_then_exit: bool = False
    shutdown_timeout: float = 25.0
    heartbeat_interval: float = 5.0
    supervisor: int = 0
    registered: str | None = None
    metrics_dir: str | None = None
    lost: tuple[Lost, ...] = field(default=())

    @property
    def threads(self) -> int:
        """Jobs at a time."""
        if self.worker is None:
            return 1
        return 1 if self.worker.isolation == "process" else self.worker.threads

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def task_of(said: dict[str, Any]) -> Task:
    """The task that `Task.to_dict` gave, through JSON."""
    worker = said["worker"]
    if worker is not None:
        worker = WorkerConfig(**{key: _tuples(value) for key, value in worker.items()})
    values = {name.name: said[name.name] for name in fields(Task)}
    values |= {"worker": worker, "lost": tuple(Lost(**one) for one in said["lost"])}
    return Task(**values)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
