"""What can go wrong with jobs as people write them. What goes wrong with the queue: `nobroker.errors`."""

from __future__ import annotations

from nobroker.errors import NobrokerError, SerializationError


class DuplicateJobError(NobrokerError):
    """Two jobs of one application have the same name."""


class UnknownJobError(NobrokerError):
    """No job of this name is registered with the application."""


class UnknownSerializerError(SerializationError):
    """A value was packed by a serializer that is not registered with the application."""


class DiscoveryError(NobrokerError):
    """A module with jobs could not be imported."""


class BatchFinishedError(NobrokerError):
    """The batch is over, so nothing can join it. Nothing was enqueued."""


class JobFailedError(NobrokerError):
    """The job whose result was asked for is dead.

    Attributes:
        job_id: of that job.
        error: its last error, with the end of the traceback.
    """

    def __init__(self, message: str, job_id: str, error: str | None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.error = error


class JobCancelledError(NobrokerError):
    """The job whose result was asked for was cancelled."""


class ResultTimeoutError(NobrokerError, TimeoutError):
    """The job did not end in time; it goes on."""


class JobTimeoutError(NobrokerError, TimeoutError):
    """Raised inside a job that ran longer than its ``timeout``.

    Attributes:
        job: whose time was up, where that is known.
    """

    job: object = None


class StepError(NobrokerError):
    """The steps of a job do not fit together, or not to those that an earlier run has left."""


class JobInterrupted(BaseException):
    """Raised by a step at a checkpoint, when the job is to let go here: it goes on elsewhere, later.

    No failure, and below `BaseException`, so that ``except Exception`` around one row of a thousand does not
    take it for one. Code that catches it to clear up raises it again.
    """


class AbortEnqueue(Exception):
    """Raised by ``before_enqueue`` or ``around_enqueue``: do not enqueue this job."""
