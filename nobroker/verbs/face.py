"""What all verbs share."""

from __future__ import annotations

from typing import Any

from nobroker.backoff import BackoffPolicy
from nobroker.job import Job
from nobroker.stores.base import JobRef, Store


class Face:
    """A store, and the defaults of the queue that uses it."""

    _store: Store
    _visibility_us: int
    max_attempts: int
    backoff: BackoffPolicy


def ref(job: Any) -> JobRef:
    if isinstance(job, Job):
        return job
    return id_of(job)


def id_of(job_id: Any) -> str:
    if isinstance(job_id, Job):
        return job_id.id
    if type(job_id) is not str:
        raise TypeError(f"expected a Job or the id of one, not {type(job_id).__name__}")
    return job_id
