"""Taking jobs out, and what their holder says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nobroker import arguments
from nobroker.job import Job
from nobroker.lanes import Lanes
from nobroker.stores.base import JobRef
from nobroker.values import pack_value, storable_text
from nobroker.verbs.face import Face, ref


class Holding(Face):
    """Lease, ack, nack, extend, release."""

    def lease(
        self,
        count: int = 1,
        *,
        visibility_timeout: float | None = None,
        wait: float = 0.0,
        lanes: Iterable[str] | Lanes | None = None,
    ) -> list[Job]:
        """Take up to `count` jobs; nobody else gets them until their deadline.

        Args:
            count: at most so many.
            visibility_timeout: seconds until the deadline, instead of the queue's.
            wait: seconds to wait for the first job when there is none.
            lanes: only from these: names, or `Lanes`, which also has patterns and orders.

        Returns:
            The jobs, in the order of delivery; none when nothing is due, or the queue is paused.
        """
        return self._wait_lease(
            count, visibility_timeout=visibility_timeout, wait=wait, lanes=lanes, stop=None
        )

    def lease_one(
        self,
        *,
        visibility_timeout: float | None = None,
        wait: float = 0.0,
        lanes: Iterable[str] | Lanes | None = None,
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
        lanes: Iterable[str] | Lanes | None = None,
        stop: Callable[[], bool] | None,
    ) -> list[Job]:
        """As `lease`; also returns when `stop` is true after `_wake_local`."""
        if type(count) is not int or not 0 < count <= arguments.MAX_COUNT:
            arguments.whole("count", count, 1, arguments.MAX_COUNT)
        timeout = self._timeout(visibility_timeout)
        if wait != 0.0 or type(wait) is bool:
            wait = arguments.wait_seconds("wait", wait)
        return self._store.lease(
            count, timeout, wait, None if lanes is None else arguments.lane_list(lanes), stop
        )

    def _timeout(self, visibility_timeout: float | None) -> int:
        if visibility_timeout is None:
            return self._visibility_us
        return arguments.seconds("visibility_timeout", visibility_timeout, positive=True)

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
        self._store.ack([ref(job)], packed, many=False)

    def ack_many(self, jobs: Iterable[JobRef]) -> None:
        """Ack all that are still held, in one record.

        Raises:
            NotLeasedError: some were not; its `.jobs` are those. The others are done.
        """
        refs = [ref(job) for job in jobs]
        if refs:
            self._store.ack(refs, None, many=True)

    def nack(
        self,
        job: JobRef,
        *,
        error: object = None,
        delay: float | None = None,
        dead: bool | None = None,
        state: Any = None,
    ) -> Job:
        """Say that a job failed: it is tried again later, or is dead when it is out of tries.

        Args:
            job: as in `ack`.
            error: what went wrong; any text is made storable, 64 KiB of it are kept.
            delay: seconds until the next try, instead of the backoff policy's.
            dead: True: no further try. False: a further try whatever `max_attempts` says.
            state: as in `extend`: written together with the failure. None: as it was.

        Returns:
            The job as it is now.

        Raises:
            SerializationError: a state that is not stored; nothing was written.
        """
        return self._nack([ref(job)], error, delay, dead, state, many=False)[0]

    def nack_many(
        self,
        jobs: Iterable[JobRef],
        *,
        error: object = None,
        delay: float | None = None,
        dead: bool | None = None,
        state: Any = None,
    ) -> list[Job]:
        """`nack` for all that are still held; `NotLeasedError` afterwards when some were not."""
        refs = [ref(job) for job in jobs]
        return self._nack(refs, error, delay, dead, state, many=True)

    def _nack(
        self,
        jobs: Sequence[JobRef],
        error: object,
        delay: float | None,
        dead: bool | None,
        state: Any,
        many: bool,
    ) -> list[Job]:
        fixed = arguments.optional_seconds("delay", delay)
        if dead is not None:
            arguments.flag("dead", dead)
        backoff = self.backoff

        def delay_for(attempts: int) -> int:
            if fixed is not None:
                return fixed
            return arguments.seconds("backoff delay", min(backoff.delay_for(attempts), arguments.MAX_SECONDS))

        text = None if error is None else storable_text(error)
        packed = None if state is None else pack_value(state, "state")
        return self._store.nack(jobs, text, delay_for, dead, packed, many) if jobs else []

    def extend(self, job: JobRef, seconds: float, *, progress: Any = None, state: Any = None) -> Job:
        """Hold a job longer: its deadline becomes now + `seconds`.

        Args:
            progress: any value, for those who look at the job.
            state: a small value kept with the job across attempts (`job_state`).

        Returns:
            The job as it is now; see its `cancel_requested`.
        """
        return self._extend([ref(job)], seconds, progress, state, many=False)[0]

    def extend_many(
        self, jobs: Iterable[JobRef], seconds: float, *, progress: Any = None, state: Any = None
    ) -> list[Job]:
        """`extend` for all that are still held; `NotLeasedError` afterwards when some were not."""
        refs = [ref(job) for job in jobs]
        return self._extend(refs, seconds, progress, state, many=True)

    def _extend(
        self, jobs: Sequence[JobRef], seconds: float, progress: Any, state: Any, many: bool
    ) -> list[Job]:
        timeout = arguments.seconds("seconds", seconds, positive=True)
        packed_progress = None if progress is None else pack_value(progress, "progress")
        packed_state = None if state is None else pack_value(state, "state")
        return self._store.extend(jobs, timeout, packed_progress, packed_state, many) if jobs else []

    def release(self, job: JobRef, *, delay: float = 0.0, state: Any = None) -> Job:
        """Give a job back unrun: the attempt is given back too, and it keeps its place (unless `delay` says
        later). `state` as in `extend`.
        """
        return self._release([ref(job)], delay, state, many=False)[0]

    def release_many(self, jobs: Iterable[JobRef], *, delay: float = 0.0, state: Any = None) -> list[Job]:
        """`release` for all that are still held; `NotLeasedError` afterwards when some were not."""
        return self._release([ref(job) for job in jobs], delay, state, many=True)

    def _release(self, jobs: Sequence[JobRef], delay: float, state: Any, many: bool) -> list[Job]:
        delay_us = arguments.seconds("delay", delay)
        packed = None if state is None else pack_value(state, "state")
        return self._store.release(jobs, delay_us, packed, many) if jobs else []

    # -- for the worker

    def _wake_local(self) -> None:
        self._store.wake()

    def _settle_and_lease(
        self,
        acks: Sequence[tuple[Job, Any]],
        count: int,
        *,
        visibility_timeout: float | None = None,
        lanes: Iterable[str] | Lanes | None = None,
    ) -> tuple[list[Job], list[Job], list[Job], int]:
        packed = [(job, None if result is None else pack_value(result, "result")) for job, result in acks]
        return self._store.settle_and_lease(
            packed,
            count,
            self._timeout(visibility_timeout),
            None if lanes is None else arguments.lane_list(lanes),
        )

    def _wait_durable(self, ticket: int) -> None:
        self._store.wait_durable(ticket)
