"""What is to run: plain values, checked already. Where they come from is the business of `sources`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ORDERS: Final = ("ordered", "priority", "fair")
ISOLATIONS: Final = ("thread", "process")
START_METHODS: Final = ("fork", "spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """One kind of worker process.

    Attributes:
        queues: names, and patterns such as ``beta*`` or ``*``.
        order: "ordered": a job of an earlier queue goes before one of a later queue. "priority": one global
            priority. "fair": the queues take turns.
        threads: jobs at a time in each process; with `isolation` "process", processes of one job each.
        processes: how many.
        batch: jobs that a thread takes at once; more than 1 is for tiny jobs.
        polling_interval: seconds between looks at an empty queue, for when no word of a new job comes.
        isolation: "thread": jobs share their process. "process": each job has its process for itself while it
            runs, and can be killed with it.
        memory_recycle_at: bytes of resident memory at which a process ends in good order and is replaced;
            None: never.
        memory_confirmations: looks in a row that must find it there.
        memory_interval: seconds between looks.
        max_jobs: jobs after which a process is replaced; None: never.
        cgroup_memory_max: bytes that the kernel holds each process to, with a control group of its own; None:
            as much as there is.
    """

    queues: tuple[str, ...] = ("*",)
    order: str = "ordered"
    threads: int = 1
    processes: int = 1
    batch: int = 1
    polling_interval: float = 0.25
    isolation: str = "thread"
    memory_recycle_at: int | None = None
    memory_confirmations: int = 3
    memory_interval: float = 5.0
    max_jobs: int | None = None
    cgroup_memory_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """The scheduler of recurring tasks.

    Attributes:
        enabled: whether one runs here.
        recurring: the file of recurring tasks; None: ``recurring.yml``, where there is one.
    """

    enabled: bool = True
    recurring: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """All that runs together.

    Attributes:
        workers: at least one.
        start_method: "fork": code is loaded once and its memory shared. "spawn": each process loads it again;
            the only one on Windows and macOS.
        shutdown_timeout: seconds that jobs may take to end once all is asked to stop; what is left then is
            released and killed.
        heartbeat_interval: seconds between two signs of life in the registry.
        quiet_then_exit: whether a process that was told to be quiet ends, with 0, when its jobs have ended.
        once: work off what is due, then end; each process does when nothing is due any more.
    """

    workers: tuple[WorkerConfig, ...] = (WorkerConfig(),)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    start_method: str = "fork"
    shutdown_timeout: float = 25.0
    heartbeat_interval: float = 5.0
    quiet_then_exit: bool = False
    once: bool = False
