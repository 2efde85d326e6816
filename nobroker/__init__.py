"""nobroker: a durable job queue that is a directory, with nobody in the middle."""

from typing import TYPE_CHECKING, Any

from nobroker._version import __version__
from nobroker.backoff import BackoffPolicy
from nobroker.errors import (
    CompactionError,
    CorruptLogError,
    JobExistsError,
    JobNotFoundError,
    LockTimeoutError,
    NobrokerError,
    NotLeasedError,
    QueueClosedError,
    QueueFullError,
    SerializationError,
    StorageError,
)
from nobroker.job import Job, JobState, NewJob
from nobroker.limits import Limit, Rate
from nobroker.queue import Queue, drop_queue, list_queues
from nobroker.reports import CompactionResult, QueueStats, RecoveryReport

if TYPE_CHECKING:
    from nobroker.worker import Dead, Failed, RetryLater, Verdict, Worker, WorkerStats

__all__ = [
    "BackoffPolicy",
    "CompactionError",
    "CompactionResult",
    "CorruptLogError",
    "Dead",
    "Failed",
    "Job",
    "JobExistsError",
    "JobNotFoundError",
    "JobState",
    "Limit",
    "LockTimeoutError",
    "NewJob",
    "NobrokerError",
    "NotLeasedError",
    "Queue",
    "QueueClosedError",
    "QueueFullError",
    "QueueStats",
    "Rate",
    "RecoveryReport",
    "RetryLater",
    "SerializationError",
    "StorageError",
    "Verdict",
    "Worker",
    "WorkerStats",
    "__version__",
    "drop_queue",
    "list_queues",
]


_WORKERS = frozenset({"Dead", "Failed", "RetryLater", "Verdict", "Worker", "WorkerStats"})


def __getattr__(name: str) -> Any:
    """The worker is loaded when it is asked for: programs that only enqueue start faster."""
    if name in _WORKERS:
        from nobroker import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
