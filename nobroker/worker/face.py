"""`Worker`: its arguments, and a run as its caller sees it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from nobroker.job import Job
from nobroker.lanes import Lanes
from nobroker.worker import signals
from nobroker.worker.conductor import Conductor
from nobroker.worker.outcome import Outcome
from nobroker.worker.run import Handler, Note, Run, WorkerStats, WorkQueue

MAX_CONCURRENCY = 1024
MAX_BATCH = 10_000
MAX_SECONDS = 366 * 86400.0


class Worker:
    """Runs a handler over a queue: lease, call, ack; raise means nack.

    Handlers run in threads. For work that needs the processor, run several processes.

    Args:
        queue: where the jobs are.
        handler: called with each `Job`, in one of `concurrency` threads. May be ``async def``: then all calls
            run on one event loop, `concurrency` of them at a time. What it returns is stored as the job's
            result, unless it is None; a value that can't be stored is logged and dropped, the job is done
            all the same. An `Exception` is a failure of the job (`Queue.nack`), unless it is a verdict, which
            says itself what becomes of the job: `RetryLater` (given back, no attempt counted), `Dead` (no
            further try), `Failed` (a failure with a delay or an end of its own). `SystemExit`,
            `KeyboardInterrupt` and the like also stop the worker and are raised by `run`.
        concurrency: handlers at a time, 1 to 1,024.
        poll_interval: seconds between looks at an empty queue. New jobs wake the worker; this is for when
            that fails.
        max_jobs: stop after leasing exactly so many. None: no limit.
        idle_timeout: stop after so many seconds without a job; 0.0: as soon as nothing is ready and nothing
            is running. None: never.
        handle_signals: stop at SIGINT and SIGTERM; a second one lets go of all jobs at once. Only where `run`
            is called in the main thread. The old handlers come back afterwards.
        batch: jobs that one thread leases at a time, 1 to 10,000. More than 1 is for tiny jobs: their acks
            are recorded together.
        lanes: take jobs of these lanes only: names, or `Lanes` with patterns and an order. None: of all.

    Attributes:
        stats: the counts of the present or last run.
        ended_by: why the last run ended: "idle", "stop", "signal", "closed", "failure"; "" for `max_jobs`.

    Raises:
        TypeError: an argument of a wrong type, a bool as a number included.
        ValueError: an argument out of its range, NaN and infinities included.
    """

    def __init__(
        self,
        queue: WorkQueue,
        handler: Handler,
        *,
        concurrency: int = 1,
        poll_interval: float = 0.1,
        max_jobs: int | None = None,
        idle_timeout: float | None = None,
        handle_signals: bool = True,
        batch: int = 1,
        lanes: Iterable[str] | Lanes | None = None,
    ) -> None:
        if not callable(getattr(queue, "_settle_and_lease", None)):
            raise TypeError(f"queue must be a Queue, not {type(queue).__name__}")
        if getattr(queue, "read_only", False) is True:
            raise ValueError("queue is read_only; a worker leases and acks, so open it for writing")
        if not callable(handler):
            raise TypeError(f"handler must be callable, not {type(handler).__name__}")
        if type(handle_signals) is not bool:
            raise TypeError(f"handle_signals must be True or False, not {handle_signals!r}")
        self.queue = queue
        self.handler = handler
        self.concurrency = _whole("concurrency", concurrency, 1, MAX_CONCURRENCY)
        self.poll_interval = _seconds("poll_interval", poll_interval)
        self.max_jobs = None if max_jobs is None else _whole("max_jobs", max_jobs, 0, 2**63 - 1)
        self.idle_timeout = None if idle_timeout is None else _seconds("idle_timeout", idle_timeout)
        self.handle_signals = handle_signals
        self.batch = _whole("batch", batch, 1, MAX_BATCH)
        self.lanes = None if lanes is None else _lanes(lanes)
        self.stats = WorkerStats()
        self.ended_by = ""
        self._running = threading.Lock()
        self._stop_asked = False
        self._stopped = False
        self._run: Run | None = None
        self._conductor: Conductor | None = None

    def __repr__(self) -> str:
        return f"Worker({self.queue!r}, {self.handler!r}, concurrency={self.concurrency}, batch={self.batch})"

    def stop(self) -> None:
        """Let the running handlers end, then return from `run`. From any thread or signal handler, any time.

        Called before `run`, it holds for that run.
        """
        self._stop_asked = True
        if (run := self._run) is not None:
            run.stop("stop")

    def let_go(self) -> None:
        """As a second signal: give back at once what has not ended, no attempt counted, and return from
        `run` without waiting for its handlers; what they return later is dropped. From any thread or signal
        handler, any time.
        """
        self.stop()
        if (run := self._run) is not None:
            run.mailbox.put(Note.LET_GO)

    def is_running(self, job: Job) -> bool:
        """Whether a handler of the present run has this lease of a job in hand."""
        conductor = self._conductor
        return conductor is not None and conductor.is_running(job)

    def running(self) -> list[tuple[Job, float]]:
        """The jobs that handlers have now, each with the seconds for which they have had it."""
        conductor, now = self._conductor, time.monotonic()
        return [] if conductor is None else [(held.job, now - held.began) for held in conductor.running()]

    def abandon(self, job: Job, *, error: BaseException | None = None, result: Any = None) -> bool:
        """Record a running job as ended, although its handler has not come back, and count on the handler's
        thread no more: `run` does not wait for it, and takes no jobs with it. Whatever it returns or raises
        later is dropped. Meant for a handler that hangs, in a process that will be replaced.

        Args:
            job: as the handler got it.
            error: as if the handler had raised it; a verdict, too. None: it succeeded.
            result: as if the handler had returned it.

        Returns:
            Whether the job was running here, under this lease.

        Raises:
            TypeError: an error that is none.
        """
        if error is not None and not isinstance(error, BaseException):
            raise TypeError(f"error must be an exception, not {type(error).__name__}")
        conductor = self._conductor
        return conductor is not None and conductor.abandon(job, Outcome(result, error))

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to end: by `stop`, a signal, an idle timeout, a closed queue, a failure.

        Handlers that take long may look at it. After the run it stays what it was until the next one begins.
        """
        run = self._run
        return self._stop_asked or (self._stopped if run is None else run.stopping)

    def run(self) -> WorkerStats:
        """Work until `stop`, a signal, `max_jobs` or `idle_timeout` ends it, or the queue is closed.

        Returns:
            The counts of this run.

        Raises:
            RuntimeError: this worker is running already.
            BaseException: what a handler raised, if it is no `Exception`; nothing is left leased then.
            NobrokerError: the queue can't be worked on any more (a failed sync, damage).
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("this worker is running; raise its concurrency, or make another Worker")
        try:
            run = Run(
                self.queue,
                poll_interval=self.poll_interval,
                max_jobs=self.max_jobs,
                idle_timeout=self.idle_timeout,
                batch=self.batch,
                lanes=self.lanes,
            )
            self.stats = run.stats
            self._run = run
            if self._stop_asked:
                run.stop("stop")
            self._conductor = Conductor(run, self.handler, self.concurrency)
            catching = signals.caught(lambda: run.mailbox.put(Note.SIGNAL))
            with catching if self.handle_signals else nullcontext():
                self._conductor.conduct()
        finally:
            self._stopped, self._stop_asked = self.stopping, False
            self.ended_by = "" if self._run is None else self._run.why
            self._run = self._conductor = None
            self._running.release()
        if run.failure is not None:
            raise run.failure
        return run.stats


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low} and {high}, not {value!r}")
    return value


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not (math.isfinite(value) and 0 <= value <= MAX_SECONDS):
        raise ValueError(f"{name} must be between 0 and {MAX_SECONDS:.0f} seconds, not {value!r}")
    return float(value)


def _lanes(lanes: Any) -> tuple[str, ...] | Lanes:
    if isinstance(lanes, Lanes):
        return lanes
    if isinstance(lanes, str | bytes) or not isinstance(lanes, Iterable):
        raise TypeError(f"lanes must be a list of names, not {lanes!r}")
    names = tuple(lanes)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"lanes must be a list of names, and {name!r} is none")
    if not names:
        raise ValueError("lanes is empty, so there would be nothing to do; None means all lanes")
    return names
