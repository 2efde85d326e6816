"""What one keeps of an enqueued job: a handle that answers from any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from nobroker.app.errors import JobCancelledError, JobFailedError, ResultTimeoutError
from nobroker.app.records import was_cancelled
from nobroker.app.rules import seconds_of
from nobroker.app.serializers import Serializers
from nobroker.errors import JobNotFoundError
from nobroker.job import Job, JobState
from nobroker.queue import Queue

R = TypeVar("R")

DISCARDED: Final = "discarded"
"""Name of the tag that a discarded job's reason is kept under, as its result."""
KEPT_OUT: Final = "a limit with the choice discard kept it out: as many jobs of its key were there already"
"""Why a job is not on the queue that a limit discarded."""
_LOOK_S: Final = 0.001
_LOOK_MOST_S: Final = 0.05


class Progress(NamedTuple):
    """How far a job said it is.

    Attributes:
        fraction: 0 to 1.
        note: a few words.
    """

    fraction: float
    note: str = ""


class JobHandle(Generic[R]):
    """One enqueued job.

    Attributes:
        created: False when the job was not enqueued: its ``job_id`` was known already; or a hook raised
            `AbortEnqueue`, or a limit keeps it out (then there is no `id` either, and `discarded` says so).
    """

    def __init__(
        self,
        queue: Callable[[], Queue],
        serializers: Serializers,
        job_id: str | None,
        *,
        created: bool = True,
        why_none: str = "the hook before_enqueue or around_enqueue raised AbortEnqueue",
    ) -> None:
        self._queue = queue
        self._serializers = serializers
        self._id = job_id
        self._why_none = why_none
        self._kept_out = False
        self.created = created

    @property
    def id(self) -> str:
        """The job's id; it stays the same through all retries.

        Raises:
            JobNotFoundError: the job was not enqueued (yet).
        """
        if self._id is None:
            raise JobNotFoundError(f"this job has no id: {self._why_none}")
        return self._id

    def job(self) -> Job:
        """The job as the queue has it.

        Raises:
            JobNotFoundError: it was not enqueued, or has ended and is forgotten: see ``keep_done``.
        """
        return self._queue().get(self.id)

    def status(self) -> JobState:
        """READY (a delayed one, too), LEASED while it runs, DONE or DEAD.

        Raises:
            JobNotFoundError: as `job`.
        """
        return self.job().state

    def progress(self) -> Progress | None:
        """What the job reported last; None for nothing yet.

        Raises:
            JobNotFoundError: as `job`.
        """
        found = self.job().progress
        if type(found) is not list or len(found) != 2:
            return None
        return Progress(float(found[0]), str(found[1]))

    def result(self, timeout: float | timedelta | None = 0.0) -> R:
        """What the job returned.

        Args:
            timeout: seconds (or a timedelta) to wait for the job's end; None: as long as it takes; 0: do
                not wait.

        Returns:
            None for a job that was discarded, too: see `discarded`.

        Raises:
            ResultTimeoutError: it has not ended in time.
            JobFailedError: it is dead; the text is its last error.
            JobCancelledError: it was cancelled.
            JobNotFoundError: as `job`.
        """
        deadline = None if timeout is None else time.monotonic() + seconds_of("timeout", timeout)
        pause = _LOOK_S
        while True:
            job = self.job()
            if job.state is JobState.DONE:
                return self._result_of(job)
            if job.state is JobState.DEAD:
                first = (job.last_error or "no reason was kept").partition("\n")[0]
                raise JobFailedError(f"job {job.id} is dead: {first}", job.id, job.last_error)
            left = pause if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise ResultTimeoutError(f"job {job.id} has not ended: it is {job.state}; it goes on")
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LOOK_MOST_S)

    @property
    def discarded(self) -> str | None:
        """Why the job was discarded, by a rule of its own or by a limit; None when it was not.

        Raises:
            JobNotFoundError: as `job`.
        """
        if self._kept_out:
            return self._why_none
        return discard_reason(self.job().result)

    def cancel(self) -> Job:
        """Ask for the job's end: one that waits is gone at once, one that runs sees ``self.cancelled``.

        Raises:
            JobNotFoundError: as `job`.
        """
        return self._queue().cancel(self.id)

    def __repr__(self) -> str:
        return f"<JobHandle {self._id or 'of a job that was not enqueued'}>"

    def _result_of(self, job: Job) -> R:
        if was_cancelled(job):
            raise JobCancelledError(f"job {job.id} was cancelled")
        if discard_reason(job.result) is not None:
            return None  # type: ignore[return-value]  # it has none: it was discarded
        found: R = self._serializers.unpack(job.result)
        return found

    def _enqueued(self, job_id: str, *, created: bool) -> None:
        self._id, self.created = job_id, created

    def _not_enqueued(self, why: str, *, kept_out: bool = False) -> None:
        self._why_none, self._kept_out, self.created = why, kept_out, False


def handle_of(queue: Callable[[], Queue], serializers: Serializers, job: Job) -> JobHandle[Any]:
    """The handle of a job as an enqueue has given it."""
    if job.created or job.seq:
        return JobHandle(queue, serializers, job.id, created=job.created)
    handle: JobHandle[Any] = JobHandle(queue, serializers, None)
    handle._not_enqueued(KEPT_OUT, kept_out=True)
    return handle


def discarded(reason: str) -> dict[str, Any]:
    """What is stored as the result of a discarded job: no serializer can make the like."""
    return {"$": [DISCARDED, reason]}


def discard_reason(result: Any) -> str | None:
    """Why a job was discarded that has this result; None when it was not."""
    if type(result) is not dict or len(result) != 1:
        return None
    tag = result.get("$")
    return str(tag[1]) if type(tag) is list and len(tag) == 2 and tag[0] == DISCARDED else None


class Handles(Sequence[JobHandle[Any]]):
    """The handles of jobs that were enqueued together, made when looked at."""

    def __init__(self, queue: Callable[[], Queue], serializers: Serializers, jobs: Sequence[Job]) -> None:
        self._queue = queue
        self._serializers = serializers
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, index: int) -> JobHandle[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[JobHandle[Any]]: ...
    def __getitem__(self, index: int | slice) -> JobHandle[Any] | list[JobHandle[Any]]:
        if isinstance(index, slice):
            return [self._handle(job) for job in self._jobs[index]]
        return self._handle(self._jobs[index])

    def __repr__(self) -> str:
        return f"<{len(self)} job handles>"

    def _handle(self, job: Job) -> JobHandle[Any]:
        return handle_of(self._queue, self._serializers, job)
