"""What each job took: measured around the handler of a worker, while somebody wants to know.

Off, a job costs half a microsecond: a look at three words, and its place among those that run. When the
program's log takes lines of level INFO, there is one for each finished run. `Meter.start` also measures
memory and page faults, keeps sums by job, and writes rows.

Invariants
- Nothing here raises into a job, or makes one wait for a disk.
- `Meter._guard` guards what runs of different threads share. Nothing slow happens under it.
- Whoever runs is in `_running`, measured or not, so that `alone` is true only where nobody else ran.
- What is kept is bounded, whatever jobs are called: see `MAX_NAMES`.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from types import CoroutineType
from typing import Any, Final

from nobroker.app.envelope import name_in
from nobroker.app.handle import discard_reason
from nobroker.job import Job
from nobroker.running import figures
from nobroker.running.histogram import Histogram
from nobroker.running.info import JobSummary, QueueWait, Recorded
from nobroker.running.recording import Recording
from nobroker.worker import Dead, Failed, RetryLater
from nobroker.worker.facts import word
from nobroker_mmap import locking

Handler = Callable[[Job], Any]

SAMPLE_S: Final = 0.1
MAX_NAMES: Final = 1000
"""Of more jobs, or queues, than these, sums are kept together, under the name `OTHERS`."""
OTHERS: Final = "(others)"
FAILURES: Final = ("failed", "retried", "dead")
TOGGLED_ROWS: Final = 1_000_000
TOGGLED_S: Final = 3600.0
"""Limits of a recording that a signal began: nobody may come back to end it."""
_CLOSE_S: Final = 5.0

_log = logging.getLogger("nobroker.metrics")


class _Run:
    """One run that is measured."""

    __slots__ = ("alone", "began", "faults", "peak", "rss", "wait")

    def __init__(self, wait: float, rss: int | None) -> None:
        self.wait = wait
        self.alone = True
        self.rss = self.peak = rss
        self.faults = figures.thread_faults()
        self.began = time.monotonic()


class _Sums:
    """What is kept of the runs of one job."""

    __slots__ = ("failures", "lasted", "waited")

    def __init__(self) -> None:
        self.failures = 0
        self.lasted = Histogram()
        self.waited = Histogram()


class Meter:
    """Measures the runs of one application's jobs in this process.

    Args:
        now: the wall clock, in seconds.

    Attributes:
        on: whether it does more than write the log.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._guard = threading.Lock()
        self._switching = threading.Lock()  # one starts or stops at a time
        self._toggling = threading.Lock()
        self._memory = figures.OwnMemory()
        self._forget()
        locking.watch_forks(self)

    def _forget(self) -> None:
        self.on = self._toggled = False
        self._recording: Recording | None = None
        self._running: set[int] = set()  # jobs in a handler, measured or not, by where they are in memory
        self._runs: set[_Run] = set()
        self._sums: dict[str, _Sums] = {}
        self._waits: dict[str, Histogram] = {}
        self._busy = threading.Event()  # something runs, or the sampler is to end
        self._sampler: threading.Thread | None = None

    def after_fork(self) -> None:
        """In a forked child: its own jobs are another matter, and the threads are not here."""
        recording = self._recording
        self._guard, self._switching = threading.Lock(), threading.Lock()
        self._toggling = threading.Lock()
        self._memory.close()
        self._forget()
        if recording is not None:
            recording.forget()

    # -- on and off

    def start(
        self, path: str | None = None, *, max_rows: int | None = None, seconds: float | None = None
    ) -> None:
        """Begin to measure; see `App.start_job_metrics`."""
        with self._switching:
            if self._recording is not None:
                raise RuntimeError(f"job metrics go to {self._recording.path!r} already; stop that first")
            for name, limit in (("max_rows", max_rows), ("seconds", seconds)):
                if limit is not None and (path is None or not limit > 0):
                    raise ValueError(
                        f"{name} limits a recording: more than 0, and with a path, not {limit!r}"
                    )
            if path is not None:
                self._recording = Recording(path, max_rows=max_rows, seconds=seconds, ended=self._ended)
                atexit.register(self.stop)  # what is not written yet
            self._memory()  # once, by one thread: it opens a file
            self.on = True
            if self._sampler is None:
                self._sampler = threading.Thread(target=self._sample, name="nobroker-sampler", daemon=True)
                self._sampler.start()
        _log.info("event=metrics.started path=%s", path)

    def stop(self) -> Recorded | None:
        """End measuring; what became of the recording, if there was one. The sums stay."""
        with self._switching:
            recording = self._off()
        return None if recording is None else self._tell(recording.close(_CLOSE_S))

    def toggle(self, directory: str, name: str) -> None:
        """Begin a recording in a file of its own, or end the one that is on. What goes wrong is logged."""
        with self._toggling:
            if self._recording is None:
                self._start_toggled(directory, name)
            else:
                self.stop()

    def follow(self, wanted: Callable[[], bool], directory: str, name: str) -> None:
        """Have a recording in a file of its own, or none, as somebody else wants it by now."""
        with self._toggling:
            if not wanted():
                self.end_toggled()
            elif not self._toggled:
                self._start_toggled(directory, name)

    def _start_toggled(self, directory: str, name: str) -> None:
        at = datetime.fromtimestamp(self._now(), UTC)
        path = os.path.join(directory, f"{name}.metrics-{os.getpid()}-{at:%Y%m%dT%H%M%S.%f}Z.csv")
        self._toggled = True  # first: it may be over at once
        try:
            self.start(path, max_rows=TOGGLED_ROWS, seconds=TOGGLED_S)
        except (OSError, RuntimeError) as error:  # or somebody else has begun one
            self._toggled = False
            _log.warning("event=metrics.not_started path=%s error=%s", path, error)

    def end_toggled(self) -> None:
        """End a recording that `toggle` or `follow` began."""
        if self._toggled:
            self.stop()

    def _ended(self, recording: Recording) -> None:
        """A recording came to its end by itself."""
        with self._switching:
            if self._recording is recording:
                self._off()
        self._tell(recording.recorded())

    def _off(self) -> Recording | None:
        recording, self._recording = self._recording, None
        self.on = self._toggled = False
        atexit.unregister(self.stop)
        self._sampler = None  # it sees that it is not wanted any more
        self._busy.set()
        return recording

    def _tell(self, recorded: Recorded) -> Recorded:
        _log.log(logging.WARNING if recorded.dropped else logging.INFO,
                 "event=metrics.stopped path=%s rows=%d dropped=%d",
                 recorded.path, recorded.rows, recorded.dropped)  # fmt: skip
        return recorded

    # -- around each run

    def measured(self, run: Handler) -> Handler:
        """A worker's handler, measured."""

        def handler(job: Job) -> Any:
            running, me = self._running, id(job)  # in a forked child there will be another set
            running.add(me)
            value = None
            try:
                if self.on or _log.isEnabledFor(logging.INFO):
                    value = self._measure(run, job)
                else:
                    self._crowd()
                    value = run(job)
            finally:
                if type(value) is not CoroutineType:
                    running.discard(me)
            return self._until(value, running, me) if type(value) is CoroutineType else value

        return handler

    async def _until(self, value: Coroutine[Any, Any, Any], running: set[int], me: int) -> Any:
        try:
            return await value
        finally:
            running.discard(me)

    def _crowd(self) -> None:
        """Somebody runs beside those that are measured."""
        if self._runs:
            with self._guard:
                for one in self._runs:
                    one.alone = False

    def _measure(self, run: Handler, job: Job) -> Any:
        began, one = time.monotonic(), None
        if self.on:
            one = self._begin(job)
        else:
            self._crowd()
        try:
            value = run(job)
        except BaseException as error:
            self._end(job, one, began, _outcome(error))
            raise
        if type(value) is CoroutineType:
            if one is not None:
                one.faults = None  # its thread is that of all async jobs
            return self._awaited(value, job, one, began)
        self._end(job, one, began, "done" if discard_reason(value) is None else "discarded")
        return value

    async def _awaited(
        self, value: Coroutine[Any, Any, Any], job: Job, one: _Run | None, began: float
    ) -> Any:
        try:
            found = await value
        except BaseException as error:
            self._end(job, one, began, _outcome(error))
            raise
        self._end(job, one, began, "done" if discard_reason(found) is None else "discarded")
        return found

    def _begin(self, job: Job) -> _Run:
        one = _Run(max(0.0, self._now() - job.available_at), self._memory())
        self._crowd()
        with self._guard:
            self._runs.add(one)  # first: who comes now sees this one, or is seen
            one.alone = len(self._running) == 1
        self._busy.set()
        return one

    def _end(self, job: Job, one: _Run | None, began: float, outcome: str) -> None:
        seconds = time.monotonic() - began
        name = name_in(job.payload) or "?"
        facts: dict[str, Any] = {
            "id": job.id,
            "class": name,
            "queue": job.lane,
            "attempt": job.attempts,
            "outcome": outcome,
            "ms": round(seconds * 1e3, 3),
        }
        if one is not None:
            facts.update(self._keep(one, name, job.lane, seconds, outcome))
            recording = self._recording
            if recording is not None:
                recording.add((round(self._now(), 6), os.getpid(), *facts.values()))
        if _log.isEnabledFor(logging.INFO):
            text = " ".join(f"{key}={word(value)}" for key, value in facts.items())
            _log.info("event=job.finished %s", text, extra={"event": "job.finished", "facts": facts})

    def _keep(self, one: _Run, name: str, queue: str, seconds: float, outcome: str) -> dict[str, Any]:
        """Add a run to the sums; what was measured, in the order of `COLUMNS`."""
        before, after = one.faults, figures.thread_faults()
        rss = self._memory()
        with self._guard:
            self._runs.discard(one)
            sums = _of(self._sums, name, _Sums)
            sums.failures += outcome in FAILURES
            sums.lasted.add(seconds)
            sums.waited.add(one.wait)
            _of(self._waits, queue, Histogram).add(one.wait)
        faults = (
            (None, None) if before is None or after is None else (after[0] - before[0], after[1] - before[1])
        )
        return {
            "wait_ms": round(one.wait * 1e3, 3),
            "minor_faults": faults[0],
            "major_faults": faults[1],
            "rss_start": one.rss,
            "rss_peak": None if rss is None else max(rss, one.peak or 0),
            "rss_end": rss,
            "alone": one.alone,
        }

    def _sample(self) -> None:
        """The sampler's thread: what the process has in memory, while something runs."""
        me = threading.current_thread()
        while self._sampler is me:
            self._busy.wait()
            time.sleep(SAMPLE_S)
            rss = self._memory() or 0
            with self._guard:
                for one in self._runs:
                    one.peak = max(rss, one.peak or 0)
                if not self._runs and self._sampler is me:
                    self._busy.clear()

    # -- looking

    def summary(self, *, reset: bool = False) -> dict[str, JobSummary]:
        """What the runs so far took, by job; see `App.job_metrics_summary`."""
        with self._guard:
            found = {name: _summary(sums) for name, sums in self._sums.items()}
            if reset:
                self._sums, self._waits = {}, {}
        return found

    def waits(self) -> tuple[QueueWait, ...]:
        """How long jobs waited, by queue."""
        with self._guard:
            return tuple(
                QueueWait(queue=queue, count=one.count, p50=one.quantile(0.5), p95=one.quantile(0.95))
                for queue, one in self._waits.items()
            )


def _summary(sums: _Sums) -> JobSummary:
    lasted, waited = sums.lasted, sums.waited
    return JobSummary(
        count=lasted.count,
        failures=sums.failures,
        mean=lasted.mean,
        p50=lasted.quantile(0.5),
        p95=lasted.quantile(0.95),
        max=lasted.longest,
        wait_p50=waited.quantile(0.5),
        wait_p95=waited.quantile(0.95),
    )


def _of(kept: dict[str, Any], name: str, kind: type) -> Any:
    found = kept.get(name)
    if found is None:
        name = name if len(kept) < MAX_NAMES else OTHERS
        found = kept.setdefault(name, kind())
    return found


def _outcome(error: BaseException) -> str:
    """What becomes of a run that raised."""
    if isinstance(error, RetryLater):
        return "released"
    if isinstance(error, Dead) or (isinstance(error, Failed) and error.dead):
        return "dead"
    return "retried" if isinstance(error, Failed) else "failed"
