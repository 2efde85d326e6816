"""The queue: arguments, defaults, packing; then the store.

Nothing here touches a file. What a call means stands in its docstring; how it is done, in `nobroker.stores`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from nobroker import arguments as check_
from nobroker.backoff import BackoffPolicy
from nobroker.clock import Clock, SystemClock
from nobroker.job import Job, JobState
from nobroker.reports import CompactionResult, QueueStats, RecoveryReport
from nobroker.stores.base import JobRef, NewJobs, Store
from nobroker.stores.log import LogStore
from nobroker.stores.log import drop as drop_log
from nobroker.stores.log import names as log_names
from nobroker.stores.session import Options
from nobroker.values import pack_batches, pack_list, pack_value, storable_text

_PRIORITY: Final = 2**31 - 1
_ATTEMPTS: Final = 2**31 - 1


class Queue:
    """A durable job queue in a directory.

    Open it from as many threads and processes of one machine as you like. Delivery is at least once: make handlers idempotent.

    Args:
        path: the directory; made when missing.
        name: each name in a directory is a queue of its own. Letters, digits, `.`, `_`, `-`; at most 100; told apart without regard to case.
        fsync: whether a call returns only when its effect is on the disk. False is many times faster and may lose the last moments
            when the machine (not the process) crashes.
        visibility_timeout: seconds that a lease lasts.
        max_attempts: leases after which a failure is final, for jobs that do not say otherwise.
        backoff: how long a failed job waits.
        lock_timeout: seconds to wait for the lock before `LockTimeoutError`.
        segment_size: bytes of a log segment, 64 KiB to 256 MiB; rounded up to a power of two.
        max_bytes: the log does not grow over this by enqueueing; None for no limit.
        auto_compact: let writers compact a log over 64 MiB of which more than half is dead, a little at a time.
        keep_done: seconds that finished jobs with a result or an own id are remembered at least.
        read_only: change nothing, lock nothing: for looking.
        clock: for tests: see `nobroker.clock.ManualClock`.

    Raises:
        TypeError, ValueError: an argument is not what it should be.
        StorageError: the disk refuses, rights are missing, or there is no queue to read.
        CorruptLogError: the log is damaged; nothing was changed. See `nobroker recover`.
        LockTimeoutError: somebody holds the lock.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str = "default",
        *,
        fsync: bool = True,
        visibility_timeout: float = 30.0,
        max_attempts: int = 5,
        backoff: BackoffPolicy | None = None,
        lock_timeout: float = 10.0,
        segment_size: int = 16 * 2**20,
        max_bytes: int | None = None,
        auto_compact: bool = True,
        keep_done: float = 3600.0,
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path must be a path, not {type(path).__name__}")
        if backoff is not None and not isinstance(backoff, BackoffPolicy):
            raise TypeError(f"backoff must be a BackoffPolicy, not {type(backoff).__name__}")
        self.dir = Path(path)
        self.name = name
        self.fsync = check_.flag("fsync", fsync)
        self._visibility_us = check_.seconds("visibility_timeout", visibility_timeout, positive=True)
        self.visibility_timeout = visibility_timeout
        self.max_attempts = check_.whole("max_attempts", max_attempts, 1, _ATTEMPTS)
        self.backoff = backoff or BackoffPolicy()
        options = Options(
            fsync=self.fsync,
            visibility_us=self._visibility_us,
            lock_timeout=check_.wait_seconds("lock_timeout", lock_timeout),
            segment_size=check_.segment_size(segment_size),
            max_bytes=None if max_bytes is None else check_.whole("max_bytes", max_bytes, 1, 2**62),
            auto_compact=check_.flag("auto_compact", auto_compact),
            keep_done_us=check_.seconds("keep_done", keep_done),
            read_only=check_.flag("read_only", read_only),
        )
        self._store: Store = LogStore(self.dir, name, options, clock or SystemClock())

    # -- putting in

    def enqueue(
        self,
        payload: Any,
        *,
        priority: int = 0,
        delay: float = 0.0,
        run_at: datetime | float | None = None,
        max_attempts: int | None = None,
        job_id: str | None = None,
        expires_in: float | None = None,
        metadata: Any = None,
        lane: str = "",
    ) -> Job:
        """Add one job; it is on the disk when this returns.

        Args:
            payload: None, bool, int, float, str, bytes, list, tuple, dict, datetime, date, time, timedelta, Decimal, UUID, nested as you like;
                at most 8 MiB packed. A tuple comes back as a list.
            priority: a whole number of 32 bits; higher is delivered first.
            delay: seconds before it may be delivered.
            run_at: or a moment of the wall clock: an aware datetime, or seconds since the epoch.
            max_attempts: instead of the queue's.
            job_id: an id of your own, 1 to 255 characters. When it is known already, in whatever state, nothing is added and that
                job is returned with `created=False`; ids of finished jobs are remembered for `keep_done` seconds at least.
            expires_in: seconds after which it is no longer worth delivering for the first time.
            metadata: any value, kept beside the payload.
            lane: the lane of the log it travels in.

        Raises:
            SerializationError: a value is not of those types; nothing was written.
            QueueFullError: the log would pass `max_bytes`.
        """
        ids = None if job_id is None else [check_.own_id(job_id)]
        packed = pack_list([payload], ["payload"])
        new = self._new([(1, packed)], 1, priority, delay, run_at, max_attempts, expires_in, metadata, lane)
        new.ids = ids
        return self._store.enqueue(new)[0]

    def enqueue_many(
        self,
        payloads: Iterable[Any],
        *,
        priority: int = 0,
        delay: float = 0.0,
        run_at: datetime | float | None = None,
        max_attempts: int | None = None,
        job_ids: Iterable[str] | None = None,
        delays: Iterable[float] | None = None,
        expires_in: float | None = None,
        metadata: Any = None,
        lane: str = "",
    ) -> Sequence[Job]:
        """Add many jobs with one write: all or none.

        Any iterable; it is walked before anything is locked. `job_ids` and `delays` give one value for each payload; the other arguments
        are as in `enqueue`.

        Returns:
            A sequence of `Job`s, made when looked at. With `job_ids`, repeats and known ids have one entry each, with `created=False`.

        Raises:
            ValueError: a wrong number of ids or delays, or more than 256 MiB at once.
        """
        batches = pack_batches(payloads)
        count = sum(number for number, _ in batches)
        new = self._new(batches, count, priority, delay, run_at, max_attempts, expires_in, metadata, lane)
        if job_ids is not None:
            new.ids = [check_.own_id(job_id) for job_id in job_ids]
            _same_length("job_ids", len(new.ids), count)
        if delays is not None:
            if new.delay_us or new.run_at_us is not None:
                raise ValueError("give delays, or delay, or run_at: one of them")
            new.delays_us = array("q", [check_.seconds("delays", value) for value in delays])
            _same_length("delays", len(new.delays_us), count)
        return self._store.enqueue(new)

    def _new(
        self,
        batches: list[tuple[int, bytes]],
        count: int,
        priority: int,
        delay: float,
        run_at: datetime | float | None,
        max_attempts: int | None,
        expires_in: float | None,
        metadata: Any,
        lane: str,
    ) -> NewJobs:
        new = NewJobs(batches, count, max_attempts=self.max_attempts)
        if priority != 0 or type(priority) is not int:
            new.priority = check_.whole("priority", priority, -_PRIORITY - 1, _PRIORITY)
        if delay != 0.0 or type(delay) is bool:
            new.delay_us = check_.seconds("delay", delay)
        if run_at is not None:
            new.run_at_us = check_.wall_time("run_at", run_at)
            if new.delay_us:
                raise ValueError("give delay or run_at, not both")
        if max_attempts is not None:
            new.max_attempts = check_.whole("max_attempts", max_attempts, 1, _ATTEMPTS)
        if expires_in is not None:
            new.expires_us = check_.seconds("expires_in", expires_in, positive=True)
        if metadata is not None:
            new.metadata = pack_value(metadata, "metadata")
        if lane != "":
            new.lane = check_.lane("lane", lane)
        return new

    # -- taking out

    def lease(
        self,
        count: int = 1,
        *,
        visibility_timeout: float | None = None,
        wait: float = 0.0,
        lanes: Iterable[str] | None = None,
    ) -> list[Job]:
        """Take up to `count` jobs; nobody else gets them until their deadline.

        Args:
            count: at most so many.
            visibility_timeout: seconds until the deadline, instead of the queue's.
            wait: seconds to wait for the first job when there is none.
            lanes: only from these.

        Returns:
            The jobs, in the order of delivery; none when nothing is due, or the queue is paused.
        """
        return self._wait_lease(count, visibility_timeout=visibility_timeout, wait=wait, lanes=lanes, stop=None)

    def lease_one(
        self, *, visibility_timeout: float | None = None, wait: float = 0.0, lanes: Iterable[str] | None = None
    ) -> Job | None:
        """Take one job, or None. Arguments as in `lease`."""
        jobs = self._wait_lease(1, visibility_timeout=visibility_timeout, wait=wait, lanes=lanes, stop=None)
        return jobs[0] if jobs else None

    def _wait_lease(
        self,
        count: int,
        *,
        visibility_timeout: float | None = None,
        wait: float,
        lanes: Iterable[str] | None = None,
        stop: Callable[[], bool] | None,
    ) -> list[Job]:
        """As `lease`; also returns when `stop` is true after `_wake_local`."""
        if type(count) is not int or not 0 < count < check_.MAX_COUNT:
            check_.whole("count", count, 1, check_.MAX_COUNT)
        timeout = self._timeout(visibility_timeout)
        if wait != 0.0 or type(wait) is bool:
            wait = check_.wait_seconds("wait", wait)
        return self._store.lease(count, timeout, wait, None if lanes is None else check_.lane_list(lanes), stop)

    def _timeout(self, visibility_timeout: float | None) -> int:
        if visibility_timeout is None:
            return self._visibility_us
        return check_.seconds("visibility_timeout", visibility_timeout, positive=True)

    def ack(self, job: JobRef, *, result: Any = None) -> None:
        """Say that a job is done. Acking twice with the same token is harmless.

        Args:
            job: the leased job, or an id: whoever holds it now.
            result: a value kept with the job while the job is kept.

        Raises:
            NotLeasedError: somebody else holds it, or nobody; nothing changed.
            JobNotFoundError: it is forgotten or purged.
        """
        packed = None if result is None else [pack_value(result, "result")]
        self._store.ack([_ref(job)], packed, many=False)

    def ack_many(self, jobs: Iterable[JobRef]) -> None:
        """Ack all that are still held, in one record.

        Raises:
            NotLeasedError: some were not; its `.jobs` are those. The others are done.
        """
        refs = [_ref(job) for job in jobs]
        if refs:
            self._store.ack(refs, None, many=True)

    def nack(self, job: JobRef, *, error: object = None, delay: float | None = None, dead: bool | None = None) -> Job:
        """Say that a job failed: it is tried again later, or is dead when it is out of tries.

        Args:
            job: as in `ack`.
            error: what went wrong; any text is made storable, 64 KiB of it are kept.
            delay: seconds until the next try, instead of the backoff policy's.
            dead: True: no further try. False: a further try whatever `max_attempts` says.

        Returns:
            The job as it is now.
        """
        return self._nack([_ref(job)], error, delay, dead, many=False)[0]

    def nack_many(
        self, jobs: Iterable[JobRef], *, error: object = None, delay: float | None = None, dead: bool | None = None
    ) -> list[Job]:
        """`nack` for all that are still held; `NotLeasedError` afterwards when some were not."""
        refs = [_ref(job) for job in jobs]
        return self._nack(refs, error, delay, dead, many=True) if refs else []

    def _nack(
        self, jobs: Sequence[JobRef], error: object, delay: float | None, dead: bool | None, many: bool
    ) -> list[Job]:
        fixed = check_.optional_seconds("delay", delay)
        if dead is not None:
            check_.flag("dead", dead)
        backoff = self.backoff

        def delay_for(attempts: int) -> int:
            return round(backoff.delay_for(attempts) * 1e6) if fixed is None else fixed

        return self._store.nack(jobs, None if error is None else storable_text(error), delay_for, dead, many)

    def extend(self, job: JobRef, seconds: float, *, progress: Any = None, state: Any = None) -> Job:
        """Hold a job longer: its deadline becomes now + `seconds`.

        Args:
            progress: any value, for those who look at the job.
            state: a small value kept with the job across attempts (`job_state`).

        Returns:
            The job as it is now; see its `cancel_requested`.
        """
        return self._extend([_ref(job)], seconds, progress, state, many=False)[0]

    def extend_many(self, jobs: Iterable[JobRef], seconds: float, *, progress: Any = None, state: Any = None) -> list[Job]:
        """`extend` for all that are still held; `NotLeasedError` afterwards when some were not."""
        refs = [_ref(job) for job in jobs]
        return self._extend(refs, seconds, progress, state, many=True) if refs else []

    def _extend(self, jobs: Sequence[JobRef], seconds: float, progress: Any, state: Any, many: bool) -> list[Job]:
        timeout = check_.seconds("seconds", seconds, positive=True)
        return self._store.extend(
            jobs,
            timeout,
            None if progress is None else pack_value(progress, "progress"),
            None if state is None else pack_value(state, "state"),
            many,
        )

    def release(self, job: JobRef, *, delay: float = 0.0) -> Job:
        """Give a job back unrun: the attempt is given back too, and it keeps its place (unless `delay` says later)."""
        return self._store.release([_ref(job)], check_.seconds("delay", delay), many=False)[0]

    def release_many(self, jobs: Iterable[JobRef], *, delay: float = 0.0) -> list[Job]:
        """`release` for all that are still held; `NotLeasedError` afterwards when some were not."""
        refs = [_ref(job) for job in jobs]
        delay_us = check_.seconds("delay", delay)
        return self._store.release(refs, delay_us, many=True) if refs else []

    # -- looking

    def get(self, job_id: str) -> Job:
        """The job with this id.

        Raises:
            JobNotFoundError: there is none (any more).
        """
        return self._store.get(_id(job_id))

    def stats(self, *, lane: str | None = None) -> QueueStats:
        """Counts by state, of all or of one lane."""
        return self._store.stats(check_.optional_lane(lane))

    def list_jobs(
        self, state: JobState | str | None = None, *, limit: int | None = None, lane: str | None = None
    ) -> list[Job]:
        """Jobs by sequence number; with `state="ready"` in the order they would be delivered."""
        wanted = None if state is None else JobState(state)
        if limit is not None:
            check_.whole("limit", limit, 0, 2**62)
        found: list[Job] = []
        if limit == 0:
            return found
        for job in self._store.jobs(wanted, check_.optional_lane(lane)):
            found.append(job)
            if len(found) == limit:
                break
        return found

    def _iter_jobs(self, state: JobState | str | None = None) -> Iterator[Job]:
        """As `list_jobs`, a few at a time."""
        return self._store.jobs(None if state is None else JobState(state), None)

    def __len__(self) -> int:
        return self.stats().total

    @property
    def paused(self) -> bool:
        """Whether the whole queue is paused."""
        return self._store.is_paused()

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found and repaired."""
        return self._store.recovery

    # -- managing

    def dlq(self, *, limit: int | None = None, lane: str | None = None) -> list[Job]:
        """The dead-letter queue: jobs out of tries."""
        return self.list_jobs(JobState.DEAD, limit=limit, lane=lane)

    def requeue_dead(self, job_id: str | None = None) -> int:
        """Make one dead job, or all, ready again; attempts start at 0. Returns how many."""
        return self._store.requeue_dead(None if job_id is None else _id(job_id))

    def drop_dead(self, job_id: str | None = None, *, older_than: float | None = None) -> int:
        """Delete one dead job, or all, or those dead for more than `older_than` seconds. Returns how many."""
        return self._store.drop_dead(
            None if job_id is None else _id(job_id), check_.optional_seconds("older_than", older_than)
        )

    def cancel(self, job_id: str) -> Job:
        """Call a job off. Not yet leased: it is done, with `last_error="cancelled"`. Leased: the holder sees
        `cancel_requested` at its next extend. Finished or dead: nothing happens."""
        return self._store.cancel(_id(job_id))

    def pause(self, *, lane: str | None = None) -> None:
        """Lease nothing more, in any process, until `resume`."""
        self._store.pause(check_.optional_lane(lane), True)

    def resume(self, *, lane: str | None = None) -> None:
        """End a `pause`."""
        self._store.pause(check_.optional_lane(lane), False)

    def purge(self, *, lane: str | None = None) -> int:
        """Delete every job, those in hand included. Returns how many."""
        return self._store.purge(check_.optional_lane(lane))

    def compact(self) -> CompactionResult:
        """Give back the space of finished jobs, now. Safe beside any number of producers and workers."""
        return self._store.compact()

    def check(self) -> list[Any]:
        """Read the whole log and its caches; returns findings, none when all is well. Changes nothing."""
        return self._store.check()

    def backup(self, target: str | os.PathLike[str]) -> Path:
        """Copy the queue to an empty directory, consistent while others work."""
        return self._store.backup(Path(target))

    def close(self) -> None:
        """Let go of all files. Closing twice is harmless; using a closed queue raises `QueueClosedError`."""
        self._store.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {str(self.dir)!r}>"

    # -- for the worker and the tools

    def _wake_local(self) -> None:
        self._store.wake()

    def _settle_and_lease(
        self,
        acks: Sequence[tuple[Job, Any]],
        count: int,
        *,
        visibility_timeout: float | None = None,
        lanes: Iterable[str] | None = None,
    ) -> tuple[list[Job], list[Job], list[Job], int]:
        packed = [(job, None if result is None else pack_value(result, "result")) for job, result in acks]
        return self._store.settle_and_lease(
            packed, count, self._timeout(visibility_timeout), None if lanes is None else check_.lane_list(lanes)
        )

    def _wait_durable(self, ticket: int) -> None:
        self._store.wait_durable(ticket)

    def _import_jobs(self, jobs: Iterable[Job]) -> int:
        return self._store.restore(jobs)


def list_queues(path: str | os.PathLike[str]) -> list[str]:
    """Names of the queues in a directory, sorted; none when there is no such directory."""
    return log_names(Path(path))


def drop_queue(path: str | os.PathLike[str], name: str = "default") -> None:
    """Delete a queue with all its files. Processes that have it open get errors.

    Raises:
        StorageError: there is none.
        LockTimeoutError: somebody works on it at this moment.
    """
    drop_log(Path(path), name)


def _ref(job: Any) -> JobRef:
    if isinstance(job, Job):
        return job
    return _id(job)


def _id(job_id: Any) -> str:
    if isinstance(job_id, Job):
        return job_id.id
    if type(job_id) is not str:
        raise TypeError(f"expected a Job or the id of one, not {type(job_id).__name__}")
    return job_id


def _same_length(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{name} has {found:,} values for {expected:,} payloads")
