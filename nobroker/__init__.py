"""nobroker: a durable job queue that is a directory, with nobody in the middle."""

from nobroker._version import __version__
from nobroker.backoff import BackoffPolicy
from nobroker.errors import (
    CompactionError,
    CorruptLogError,
    JobNotFoundError,
    LockTimeoutError,
    NobrokerError,
    NotLeasedError,
    QueueClosedError,
    QueueFullError,
    SerializationError,
    StorageError,
)
from nobroker.job import Job, JobState
from nobroker.queue import Queue, drop_queue, list_queues
from nobroker.reports import CompactionResult, QueueStats, RecoveryReport
from nobroker.worker import Worker, WorkerStats

__all__ = [
    "BackoffPolicy",
    "CompactionError",
    "CompactionResult",
    "CorruptLogError",
    "Job",
    "JobNotFoundError",
    "JobState",
    "LockTimeoutError",
    "NobrokerError",
    "NotLeasedError",
    "Queue",
    "QueueClosedError",
    "QueueFullError",
    "QueueStats",
    "RecoveryReport",
    "SerializationError",
    "StorageError",
    "Worker",
    "WorkerStats",
    "__version__",
    "drop_queue",
    "list_queues",
]
