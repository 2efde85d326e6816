"""What can be seen of processes and of the jobs that ran in them, as plain values."""

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
class QueueWait:
    """How long jobs of a queue waited for this process, where it measures that. Times in seconds.

    Attributes:
        queue: its name.
        count: of jobs.
        p50, p95: half of them, and 95 of 100, waited no longer.
    """

    queue: str
    count: int
    p50: float
    p95: float


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
        waits: how long jobs waited, by queue; empty unless job metrics are on.
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
    waits: tuple[QueueWait, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """What the finished runs of one job took. Times in seconds.

    Attributes:
        count: of runs, those that failed included.
        failures: of these, those that failed.
        mean, max: of their durations.
        p50, p95: half of them, and 95 of 100, took no longer; 2.5 % too much or too little at most.
        wait_p50, wait_p95: the same of the times from when they might begin until they began.
    """

    count: int
    failures: int
    mean: float
    p50: float
    p95: float
    max: float
    wait_p50: float
    wait_p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recording of job metrics, when it has ended.

    Attributes:
        path: the file.
        rows: in it.
        dropped: runs that are not in it, because the disk was slower than the jobs.
        error: what went wrong; None: nothing.
    """

    path: str
    rows: int
    dropped: int
    error: str | None = None
