"""Every error of the queue. The log's own come from `nobroker_mmap`, so that one family covers both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nobroker_mmap.errors import (
    CorruptLogError,
    LockTimeoutError,
    NobrokerError,
    QueueClosedError,
    StorageError,
)


class QueueFullError(NobrokerError):
    """The directory would grow over ``max_bytes``. Acks, nacks and compaction still work."""


class JobNotFoundError(NobrokerError):
    """No such job: never enqueued here, purged, dropped, or finished and forgotten."""


class JobExistsError(NobrokerError):
    """An id that was to be new is known, or was given twice; nothing was written.

    Attributes:
        job_id: the first such id.
    """

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobsDiscardedError(NobrokerError):
    """Jobs that were all to be new, and limits of theirs keep some out; nothing was written.

    Attributes:
        jobs: the indexes of those, ascending.
    """

    def __init__(self, message: str, jobs: Sequence[int]) -> None:
        super().__init__(message)
        self.jobs = list(jobs)


class NotLeasedError(NobrokerError):
    """The lease is not (or no longer) the caller's.

    Attributes:
        jobs: for the ``*_many`` calls, those of the given jobs to which it applies.
    """

    def __init__(self, message: str, jobs: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.jobs = list(jobs)


class CompactionError(NobrokerError):
    """Compaction could not finish; the queue is unharmed and works on."""


class SerializationError(NobrokerError, ValueError):
    """A value that the queue does not store. Names the place and the type; nothing was written."""


__all__ = [
    "CompactionError",
    "CorruptLogError",
    "JobExistsError",
    "JobNotFoundError",
    "JobsDiscardedError",
    "LockTimeoutError",
    "NobrokerError",
    "NotLeasedError",
    "QueueClosedError",
    "QueueFullError",
    "SerializationError",
    "StorageError",
]
