"""A process as the registry shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentJob:
    """A job that runs now.

    Attributes:
        id: of the job.
        job_class: its name in payloads.
        queue: that it came through.
        started_at: seconds since the epoch.
    """

    id: str
    job_class: str
    queue: str
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """One process that works on a queue, as it said itself at its last sign of life.

    Attributes:
        id: host, pid and a random part; never given twice.
        kind: "supervisor", "worker" or "scheduler".
        pid, host: where it is.
        supervisor: the id of the process that looks after it; None for one that runs alone.
        state: "starting", "running", "quiet", "stopping".
        started_at, seen_at: seconds since the epoch; `seen_at` of its last sign of life.
        queues: as configured.
        threads: jobs at a time.
        memory: bytes of resident memory; None where the system does not say.
        jobs: what runs in it now.
        finished: jobs since it started.
        failed: of these, those that raised.
        recycling: why it is about to be replaced; None: it is not.
    """

    id: str
    kind: str
    pid: int
    host: str
    supervisor: str | None = None
    state: str = "starting"
    started_at: float
    seen_at: float
    queues: tuple[str, ...] = ()
    threads: int = 0
    memory: int | None = None
    jobs: tuple[CurrentJob, ...] = ()
    finished: int = 0
    failed: int = 0
    recycling: str | None = None
