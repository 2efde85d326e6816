"""What can go wrong with jobs as people write them. What goes wrong with the queue: `nobroker.errors`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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


class LimitError(NobrokerError, ValueError):
    """A function that says the key or the number of a limit raised, or gave something that can't be one.
    Nothing was enqueued.

    Attributes:
        job: the name of the job.
        option: which function.
    """

    def __init__(self, job: str, option: str, problem: str) -> None:
        super().__init__(f"{option} of {job} {problem}; nothing was enqueued")
        self.job = job
        self.option = option


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


class WorkerDiedError(NobrokerError):
    """The process that ran the job has died, by a crash in its code or by a signal. `Retry` and the other
    rules may name it.

    Attributes:
        code: the process's exit code; of one that a signal ended, the signal, negative.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class RunFailedError(NobrokerError):
    """`App.run` with several processes did not end as it should.

    Attributes:
        code: what `nobroker run` would have exited with.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class NestedRunError(NobrokerError):
    """Worker processes start no workers of their own."""


class StepError(NobrokerError):
    """The steps of a job do not fit together, or not to those that an earlier run has left."""


class JobInterrupted(BaseException):
    """Raised by a step at a checkpoint, when the job is to let go here: it goes on elsewhere, later.

    No failure, and below `BaseException`, so that ``except Exception`` around one row of a thousand does not
    take it for one. Code that catches it to clear up raises it again.
    """


class MissingExtraError(NobrokerError, ImportError):
    """What this needs is not installed; the message says how to install it."""


class ScheduleError(NobrokerError, ValueError):
    """A schedule that can't be read or never fires, or a time zone that there is not.

    Attributes:
        key: which of the two it is: ``schedule`` or ``timezone``.
    """

    def __init__(self, message: str, key: str = "schedule") -> None:
        super().__init__(message)
        self.key = key


class RecurringError(NobrokerError, ValueError):
    """A recurring task that can't be as it is said.

    Attributes:
        file: where it is said; None: in code.
        line: in that file.
        task: its name, where it has one.
        key: what of it is wrong, where that is one thing.
        reason: what is wrong with it.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str | None = None,
        line: int | None = None,
        task: str | None = None,
        key: str | None = None,
    ) -> None:
        place = [] if file is None else [f"{file}, line {line}" if line is not None else file]
        place += [] if task is None else [f"task {task!r}"]
        place += [] if key is None else [key]
        super().__init__(f"{', '.join(place)}: {reason}" if place else reason)
        self.file = file
        self.line = line
        self.task = task
        self.key = key
        self.reason = reason


class ConfigProblem(NamedTuple):
    """One thing that is wrong with what says how to run.

    Attributes:
        reason: what is wrong, and what would be right.
        source: the file, or the variable of the environment, that says it; None: an argument.
        line: in that file.
        key: in that file, or the argument.
    """

    reason: str
    source: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = [] if self.source is None else [self.source]
        place += [] if self.line is None else [f"line {self.line}"]
        place += [] if self.key is None else [self.key]
        return f"{', '.join(place)}: {self.reason}" if place else self.reason


class ConfigError(NobrokerError, ValueError):
    """What says how to run can't be as it is. Its text has a line for each problem.

    Attributes:
        problems: all that were found, those of a file in the order of its lines.
    """

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class AbortEnqueue(Exception):
    """Raised by ``before_enqueue`` or ``around_enqueue``: do not enqueue this job."""
