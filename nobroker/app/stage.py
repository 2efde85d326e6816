"""Running jobs in a test: a queue of its own in a directory that is thrown away, a clock that stands still,
and what a `Worker` does with each job, in the calling thread: lease it, call the runner, record the outcome.
"""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from nobroker.app import envelope, records
from nobroker.app.inline import run_to_end
from nobroker.app.queue_lists import lanes_of
from nobroker.app.watching import Usher
from nobroker.clock import ManualClock, SystemClock
from nobroker.errors import JobNotFoundError, NobrokerError, NotLeasedError, SerializationError
from nobroker.job import Job, JobState
from nobroker.lanes import Lanes
from nobroker.queue import Queue
from nobroker.worker import Dead, Failed, RetryLater, WorkerStats

if TYPE_CHECKING:
    from nobroker.app.application import App

MOST_RUNS: Final = 1000
_ALL: Final = lanes_of(None)
_TICK_S: Final = 1e-6


class Stage:
    """Where the jobs of one test run.

    Attributes:
        queue: what the application uses meanwhile.
        clock: its clock; it begins at the real time, since code under test makes dates from the machine's.
        lock: around calls of the queue and the clock that belong together; never around code of jobs.
        enqueued: all jobs that came, in order.
        runs: how many jobs have run.
    """

    def __init__(self, app: App) -> None:
        self.lock = threading.RLock()
        self.clock = ManualClock(SystemClock().wall_us() / 1e6)
        self.enqueued: list[Job] = []
        self.runs = 0
        self._blocked: list[Job] = []
        self._leased_at: dict[str, list[float]] = {}  # by the keys of rates
        self._app = app
        self._held: dict[str, Job] = {}
        self._own = threading.local()
        self._directory = TemporaryDirectory(prefix="nobroker-testing-")
        options = {**app._options, "fsync": False, "clock": self.clock, "read_only": False}
        try:
            self.queue: Queue = _StageQueue(self, self._directory.name, app.name, **options)
        except BaseException:
            self._directory.cleanup()
            raise
        app._limit_queues(self.queue)
        self._usher = Usher(self.queue)

    def close(self) -> None:
        try:
            self.queue.close()
        finally:
            self._directory.cleanup()

    def now(self) -> float:
        return self.clock.wall_us() / 1e6

    def advance(self, seconds: float) -> None:
        """Move the clock on. Jobs that run keep their leases, as by a worker's heartbeat."""
        with self.lock:
            for job in list(self._held.values()):
                try:
                    self.queue.extend(job, seconds + self.queue.visibility_timeout)
                except (NotLeasedError, JobNotFoundError):
                    del self._held[job.id]  # its run finds out when it is over
            self.clock.advance(seconds)

    # -- what came

    def added(self, jobs: Sequence[Job]) -> None:
        """Called by the queue with what was enqueued."""
        created = [job for job in jobs if job.created and envelope.name_in(job.payload) is not None]
        with self.lock:
            self.enqueued += created
        self._own.fresh = [*getattr(self._own, "fresh", []), *created]

    def replaced(self, job: Job) -> None:
        """Called by the queue when a job that waits has got newer arguments."""
        with self.lock:
            self.enqueued = [job if one.seq == job.seq else one for one in self.enqueued]

    def fresh(self) -> list[Job]:
        """What the calling thread has enqueued since it asked last."""
        found: list[Job] = getattr(self._own, "fresh", [])
        self._own.fresh = []
        return found

    def waiting(self) -> list[Job]:
        """The jobs that have not begun, or wait for a further try, in the order in which they came."""
        found = self.queue.list_jobs(JobState.READY)
        return sorted(
            (job for job in found if envelope.name_in(job.payload) is not None), key=lambda job: job.seq
        )

    def clear(self) -> None:
        with self.lock:
            self.enqueued.clear()
            self.queue.purge()
            self._blocked.clear()

    # -- taking jobs

    def next(self, *, advance: bool) -> Job | None:
        """The next job that is due, leased.

        Args:
            advance: when none is, move the clock to the next that will be.
        """
        with self.lock:
            while True:
                job = self._lease(_ALL)
                if job is not None:
                    self._held[job.id] = job
                    return job
                if self.usher_moved():
                    continue
                now = self.now()
                due = [self._due(one) for one in self.waiting() if not records.is_held(one)]
                later = [at for at in due if at > now]
                if not advance or not later:
                    return None
                self.advance(max(min(later) - now, _TICK_S))

    def usher_moved(self) -> bool:
        """End batches and let go of held jobs, where that is due; whether there were any."""
        with self.lock:
            before = self._usher.moved
            self._usher.look()
            return self._usher.moved != before

    def is_held(self, job: Job) -> bool:
        """Whether it waits for other jobs."""
        found = records.found(self.queue, job.id)
        return found is not None and records.is_held(found)

    def _take(self, job: Job) -> Job | None:
        """Lease this job, when it is due or will be; None when it is over, or must wait for something else
        than time: a paused queue, or a limit.
        """
        with self.lock:
            passed: list[Job] = []
            found = records.found(self.queue, job.id)
            while found is not None and found.state is JobState.READY:
                due = self._due(found)
                if due > self.now():
                    self.advance(due - self.now() + _TICK_S)
                while (held := self._lease([job.lane])) is not None and held.id != job.id:
                    passed.append(held)
                    self._held[held.id] = held
                if held is not None:
                    found, self._held[held.id] = held, held
                elif self._due(found) <= self.now():
                    self._blocked.append(found)
                    break
            for other in passed:
                self._held.pop(other.id, None)
            self.queue.release_many(passed)
            return found if found is not None and found.state is JobState.LEASED else None

    def blocked(self) -> list[Job]:
        """The jobs that something else than time held back, once."""
        with self.lock:
            found, self._blocked = self._blocked, []
            return found

    def _lease(self, lanes: list[str] | Lanes) -> Job | None:
        job = self.queue.lease_one(lanes=lanes)
        if job is not None:
            for key, *_ in _rates(job):
                self._leased_at.setdefault(key, []).append(self.now())
        return job

    def _due(self, job: Job) -> float:
        """When a job is due, and its rates have room for it."""
        moments = [job.available_at]
        for key, most, duration, _ in _rates(job):
            leased_at = self._leased_at.get(key, [])
            if len(leased_at) >= most:
                moments.append(leased_at[-most] + duration + _TICK_S)
        return max(moments)

    def give_back(self, job: Job) -> None:
        with self.lock:
            self._held.pop(job.id, None)
            self.queue.release(job)

    # -- running them

    def run_at_once(self, job: Job) -> BaseException | None:
        """Run it until it is over, retries included; the error that no rule dealt with: then it is dead."""
        for _ in range(MOST_RUNS):
            held = self._take(job)
            if held is None:
                return None
            error = self.run(held, WorkerStats(), once=True)
            if error is not None:
                return error
        name = envelope.name_in(job.payload)
        return NobrokerError(f"{name} {job.id} ran {MOST_RUNS:,} times and still wants to run again")

    def run(self, job: Job, stats: WorkerStats, *, once: bool) -> BaseException | None:
        """One run of a leased job, and what becomes of it; the error that no rule dealt with.

        Args:
            once: with such an error the job is dead.
        """
        value, error = self._called(job)
        unhandled = None if error is None else _unhandled(error)
        if once and unhandled is not None:
            error = Failed(unhandled, dead=True)
        with self.lock:
            self.runs += 1
            self._held.pop(job.id, None)
            try:
                _record(self.queue, job, value, error, stats)
            except NotLeasedError:  # somebody else has it by now
                stats.lost_leases += 1
            except JobNotFoundError:
                return unhandled  # it was purged while it ran; nobody wants to know
        return unhandled

    def _called(self, job: Job) -> tuple[Any, BaseException | None]:
        try:
            value = self._app.runner(job)
            if inspect.isawaitable(value):
                value = run_to_end(value)
        except BaseException as error:  # recorded, and raised where nobody deals with it
            return None, error
        return value, None


class _StageQueue(Queue):
    """A queue that tells what is enqueued."""

    def __init__(self, stage: Stage, path: str, name: str, **options: Any) -> None:
        self._stage = stage
        super().__init__(path, name, **options)

    def enqueue(self, payload: Any, **options: Any) -> Job:
        job = super().enqueue(payload, **options)
        self._stage.added([job])
        if options.get("debounce") is not None and not job.created:
            self._stage.replaced(job)
        return job

    def enqueue_many(self, payloads: Any, **options: Any) -> Sequence[Job]:
        jobs = super().enqueue_many(payloads, **options)
        self._stage.added(jobs)
        return jobs

    def enqueue_all(self, jobs: Any, **options: Any) -> list[Job]:
        added = super().enqueue_all(jobs, **options)
        self._stage.added(added)
        return added


def _rates(job: Job) -> list[list[Any]]:
    found: list[list[Any]] = (job.limits or {}).get("rates", [])
    return found


def _record(queue: Queue, job: Job, value: Any, error: BaseException | None, stats: WorkerStats) -> None:
    """Write down what became of a run, by the rules of a `Worker`.

    Raises:
        NotLeasedError, JobNotFoundError: it is not ours any more.
    """
    if error is None:
        try:
            queue.ack(job, result=value)
        except SerializationError:  # too large; the work was done all the same
            queue.ack(job)
        stats.succeeded += 1
        return
    if isinstance(error, RetryLater):
        queue.release(job, delay=error.delay, state=error.state)
        return
    if isinstance(error, Dead):
        after = queue.nack(job, error=_text(error.reason), dead=True, state=error.state)
    elif isinstance(error, Failed):
        text = _text(error.error)
        after = queue.nack(job, error=text, delay=error.delay, dead=error.dead, state=error.state)
    else:
        after = queue.nack(job, error=_text(error))
    stats.failed += 1
    stats.dead += after.state is JobState.DEAD


def _unhandled(error: BaseException) -> BaseException | None:
    """What is to be raised where a job ended so; None where a rule, or its own word, brings it back."""
    if isinstance(error, RetryLater):
        return None
    if isinstance(error, Failed):
        if error.delay is not None and not error.dead:
            return None
        return error.error if isinstance(error.error, BaseException) else error
    return error


def _text(error: str | BaseException) -> str:
    if isinstance(error, str):
        return error
    return f"{type(error).__name__}: {error}\n" + "".join(traceback.format_exception(error))
