"""The job that is running, as its code sees it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nobroker.errors import JobNotFoundError
from nobroker.job import Job
from nobroker.queue import Queue

if TYPE_CHECKING:
    from nobroker.app.application import App
    from nobroker.app.batches import Batch

_LOGGER: Final = logging.getLogger("nobroker.job")
_LOOK_EVERY_S: Final = 0.25
"""`JobContext.cancelled` looks at the queue so often at most."""

RETRIES: Final = "retries"
"""In the job's state: runs that ended in an error that a `Retry` deals with, by the rule's `key`."""
RELEASES: Final = "releases"
"""In the job's state: how often its code gave the job back."""
UNKNOWN_SINCE: Final = "unknown_since"
"""In the job's state: when a worker first saw it that does not know its class; seconds since the epoch."""


class Arguments(NamedTuple):
    """What a job was called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that says of which job each line is."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """As `logging.Logger.log`, with the job in front."""
        if self.isEnabledFor(level):
            extra = self.extra or {}
            front = f"[{extra['job_class']} {extra['job_id']}]"
            if args:  # only then is the text a format
                front = front.replace("%", "%%")
            stacklevel = kwargs.pop("stacklevel", 1) + 1
            super().log(level, f"{front} {msg}", *args, stacklevel=stacklevel, **kwargs)


class JobContext:
    """One run of a job; what `current_job()` gives, and what ``self`` is in a `BaseJob`.

    Attributes:
        id: of the job; the same in every run. None in ``perform_now`` and before it is enqueued.
        attempts: runs that counted so far, this one included; 0 while it is being enqueued.
        executions: all runs so far, this one included; also those that ended in `RetryLater`.
        queue_name: the queue it came through.
        priority: the job's.
        enqueued_at: seconds since the epoch.
        arguments: `Arguments(args, kwargs)`.
        metadata: what ``set(metadata=...)`` attached.
        job_class: the name of the job.
    """

    id: str | None
    attempts: int
    executions: int
    queue_name: str
    priority: int
    enqueued_at: float
    arguments: Arguments
    metadata: Any
    job_class: str
    _held: Job | None
    _queue: Queue | None
    _state: dict[str, Any]
    _app: App
    _batch_id: str | None
    _stopping: Callable[[], bool]
    _stale: bool
    _ended: Any
    _then: str | None
    _abandoned: bool

    def _begin(self, name: str, arguments: Arguments, queue_name: str, priority: int, now: float) -> None:
        """Say which job this is; it has not been enqueued, or does without that."""
        self.job_class = name
        self.arguments = arguments
        self.queue_name = queue_name
        self.priority = priority
        self.enqueued_at = now
        self.id = self.metadata = None
        self.attempts = self.executions = 0
        self._held = self._queue = self._batch_id = None
        self._cancelled = self._abandoned = False
        self._looked = 0.0
        self._state = {}
        self._ended = self._then = None
        self._stopping = _never
        self._stale = False

    def _hold(self, held: Job, queue: Queue) -> None:
        """Say which run of the job this is."""
        self._held = held
        self._queue = queue
        self.id = held.id
        self.attempts = held.attempts
        if type(held.job_state) is dict:
            self._state = {key: value for key, value in held.job_state.items() if key != UNKNOWN_SINCE}
            if held.attempts <= self._retried():  # it was dead, and has been requeued: all begins anew
                del self._state[RETRIES]
        self.executions = held.attempts + self._state.get(RELEASES, 0)

    def _retried(self) -> int:
        """Runs that rules for retries dealt with."""
        return sum(self._state.get(RETRIES, {}).values())

    @property
    def logger(self) -> JobLogger:
        """A `logging` adapter; each record also carries ``job_id``, ``job_class`` and ``job_queue``."""
        return JobLogger(
            _LOGGER,
            {"job_id": self.id or "-", "job_class": self.job_class, "job_queue": self.queue_name},
        )

    @property
    def batch(self) -> Batch | None:
        """The batch that the job belongs to, or whose callback it is; None for a job on its own."""
        return None if self._batch_id is None else self._app._batch(self._batch_id, self._ended)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the job to stop; a long job looks here now and then, and returns."""
        if self._cancelled or self._held is None or self._queue is None:
            return self._cancelled
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY_S:
            self._looked = now
            try:
                self._cancelled = self._queue.get(self._held.id).cancel_requested
            except JobNotFoundError:
                self._cancelled = True  # purged: nobody waits for it any more
        return self._cancelled

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the job is: seen by `JobHandle.progress` in any process. Renews the lease, too.

        Args:
            fraction: 0 to 1.
            note: a few words.

        Raises:
            NotLeasedError: the job is not this worker's any more.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
            raise TypeError(f"fraction must be a number from 0 to 1, not {fraction!r}")
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction must be a number from 0 to 1, not {fraction!r}")
        if type(note) is not str:
            raise TypeError(f"note must be a str, not {type(note).__name__}")
        if self._held is not None and self._queue is not None:
            job = self._queue.extend(
                self._held, self._queue.visibility_timeout, progress=[float(fraction), note]
            )
            self._cancelled = job.cancel_requested

    def _keep(self, **state: Any) -> None:
        """Keep values with the job across runs."""
        self._state = {**self._state, **state}
        if self._held is not None and self._queue is not None:
            job = self._queue.extend(self._held, self._queue.visibility_timeout, state=self._state)
            self._cancelled = job.cancel_requested
        self._stale = False

    def _finish(self) -> None:
        """Called when the code of an async job has returned; raises when it left something undone."""

    def _settle(self, *, interrupted: bool) -> None:
        """Called when the run ends by an error or a verdict: brings `_state` up to date. Where what is kept
        with the job is older than that, `_stale` is true.
        """


def _never() -> bool:
    return False


_current: ContextVar[JobContext | None] = ContextVar("nobroker_current_job", default=None)


def current_job() -> JobContext:
    """The job that the calling code runs in. Threads and tasks that a job starts inherit it.

    Raises:
        LookupError: no job is running here.
    """
    found = _current.get()
    if found is None:
        raise LookupError("no job is running here: current_job() is for code that a job calls")
    return found
