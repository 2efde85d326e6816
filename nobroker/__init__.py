"""nobroker: a durable job queue that is a directory, with nobody in the middle."""

from typing import TYPE_CHECKING, Any

from nobroker._version import __version__
from nobroker.backoff import BackoffPolicy
from nobroker.errors import (
    CompactionError,
    CorruptLogError,
    JobExistsError,
    JobNotFoundError,
    JobsDiscardedError,
    LockTimeoutError,
    NobrokerError,
    NotLeasedError,
    QueueClosedError,
    QueueFullError,
    SerializationError,
    StorageError,
)
from nobroker.job import Job, JobState, NewJob
from nobroker.lanes import Lanes
from nobroker.limits import Limit, Rate
from nobroker.queue import Queue, drop_queue, list_queues
from nobroker.reports import CompactionResult, QueueStats, RecoveryReport

if TYPE_CHECKING:
    from nobroker.app import (
        AbortEnqueue,
        App,
        BaseJob,
        Batch,
        BatchCounts,
        BatchFinishedError,
        ConfigError,
        Discard,
        DiscoveryError,
        DuplicateJobError,
        JobCancelledError,
        JobContext,
        JobFailedError,
        JobHandle,
        JobInterrupted,
        JobTimeoutError,
        LimitError,
        MissingExtraError,
        NestedRunError,
        RecurringError,
        RecurringTask,
        Rescue,
        ResultTimeoutError,
        Retry,
        RunFailedError,
        ScheduleError,
        Step,
        StepError,
        UnknownJobError,
        WorkerDiedError,
        after,
        chain,
        current_job,
    )
    from nobroker.running.info import CurrentJob, JobSummary, ProcessInfo
    from nobroker.worker import Dead, Failed, RetryLater, Verdict, Worker, WorkerStats

__all__ = [
    "AbortEnqueue",
    "App",
    "BackoffPolicy",
    "BaseJob",
    "Batch",
    "BatchCounts",
    "BatchFinishedError",
    "CompactionError",
    "CompactionResult",
    "ConfigError",
    "CorruptLogError",
    "CurrentJob",
    "Dead",
    "Discard",
    "DiscoveryError",
    "DuplicateJobError",
    "Failed",
    "Job",
    "JobCancelledError",
    "JobContext",
    "JobExistsError",
    "JobFailedError",
    "JobHandle",
    "JobInterrupted",
    "JobNotFoundError",
    "JobState",
    "JobSummary",
    "JobTimeoutError",
    "JobsDiscardedError",
    "Lanes",
    "Limit",
    "LimitError",
    "LockTimeoutError",
    "MissingExtraError",
    "NestedRunError",
    "NewJob",
    "NobrokerError",
    "NotLeasedError",
    "ProcessInfo",
    "Queue",
    "QueueClosedError",
    "QueueFullError",
    "QueueStats",
    "Rate",
    "RecoveryReport",
    "RecurringError",
    "RecurringTask",
    "Rescue",
    "ResultTimeoutError",
    "RunFailedError",
    "Retry",
    "RetryLater",
    "ScheduleError",
    "SerializationError",
    "Step",
    "StepError",
    "StorageError",
    "UnknownJobError",
    "Verdict",
    "Worker",
    "WorkerDiedError",
    "WorkerStats",
    "__version__",
    "after",
    "chain",
    "current_job",
    "drop_queue",
    "list_queues",
]


_WORKERS = frozenset({"Dead", "Failed", "RetryLater", "Verdict", "Worker", "WorkerStats"})
_PROCESSES = frozenset({"CurrentJob", "JobSummary", "ProcessInfo"})
_APPS = frozenset(
    {
        "AbortEnqueue",
        "App",
        "BaseJob",
        "Batch",
        "BatchCounts",
        "BatchFinishedError",
        "ConfigError",
        "Discard",
        "DiscoveryError",
        "DuplicateJobError",
        "JobCancelledError",
        "JobContext",
        "JobFailedError",
        "JobHandle",
        "JobInterrupted",
        "JobTimeoutError",
        "LimitError",
        "MissingExtraError",
        "NestedRunError",
        "RecurringError",
        "RecurringTask",
        "Rescue",
        "ResultTimeoutError",
        "RunFailedError",
        "Retry",
        "ScheduleError",
        "Step",
        "StepError",
        "UnknownJobError",
        "WorkerDiedError",
        "after",
        "chain",
        "current_job",
    }
)


def __getattr__(name: str) -> Any:
    """The worker and the job layer are loaded when asked for: programs that only enqueue start faster."""
    if name in _WORKERS:
        from nobroker import worker

        return getattr(worker, name)
    if name in _PROCESSES:
        from nobroker.running import info

        return getattr(info, name)
    if name in _APPS:
        from nobroker import app

        return getattr(app, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
