"""Putting jobs in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from nobroker import arguments
from nobroker.job import Job, NewJob
from nobroker.limits import Limit, Rate, worded
from nobroker.stores.base import NewJobs
from nobroker.values import pack_batches, pack_list, pack_value
from nobroker.verbs.face import Face
from nobroker.verbs.mixing import grouped

if TYPE_CHECKING:
    from datetime import datetime

_PRIORITY: Final = 2**31 - 1
_NO_LIMITS: Final = (None, None, None, None, 1)
_ONE: Final = ["payload"]


class Producing(Face):
    """Enqueue."""

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
        limits: Limit | Iterable[Limit] | None = None,
        rates: Rate | Iterable[Rate] | None = None,
        exclusive: str | None = None,
        fair_key: str | None = None,
        fair_weight: int = 1,
        debounce: float | None = None,
        debounce_max: float | None = None,
    ) -> Job:
        """Add one job; it is on the disk when this returns.

        Args:
            payload: None, bool, int, float, str, bytes, list, tuple, dict, datetime, date, time, timedelta,
                Decimal, UUID, nested as you like; at most 8 MiB packed. A tuple comes back as a list.
            priority: a whole number of 32 bits; higher is delivered first.
            delay: seconds before it may be delivered.
            run_at: or a moment of the wall clock: an aware datetime, or seconds since the epoch.
            max_attempts: instead of the queue's.
            job_id: an id of your own, 1 to 255 characters. When it is known already, in whatever state,
                nothing is added and that job is returned with `created=False`; ids of finished jobs are
                remembered for `keep_done` seconds at least.
            expires_in: seconds after which it is no longer worth delivering for the first time.
            metadata: any value, kept beside the payload.
            lane: the lane of the log it travels in.
            limits: one or several `Limit`s: how many jobs of a key are leased at once.
            rates: one or several `Rate`s: how many leases of a key there are in some time. A job that a limit
                or a rate discards comes back with `created=False`; it has no `seq`, and is nowhere.
            exclusive: "app": it runs alone. It is leased when nothing else is, and nothing else while it is.
                From its turn on, those behind it wait, in all lanes, until it has run.
            fair_key: among the keys that have waiting jobs of one lane and priority, leases go round, so that
                many jobs of one key do not hold up those of another.
            fair_weight: 1 to 1,000: how many leases it gets for one of a key with weight 1. What the newest
                job of a key says counts.
            debounce: seconds that a job with a `job_id` waits. As long as it does, enqueueing the id again
                gives it the newer payload and lets it wait as long anew; all else stays as it was. The id of
                a job that is done begins again; one that is leased or dead stays as it is.
            debounce_max: seconds after the first of these calls at which it is due in any case.

        Raises:
            SerializationError: a value is not of those types; nothing was written.
            QueueFullError: the log would pass `max_bytes`.
        """
        ids = None if job_id is None else [arguments.own_id(job_id)]
        packed = pack_list([payload], _ONE)
        new = self._new([(1, packed)], 1, priority, delay, run_at, max_attempts, expires_in, metadata, lane)
        if (limits, rates, exclusive, fair_key, fair_weight) != _NO_LIMITS:
            new.limits = worded(limits, rates, exclusive, fair_key, fair_weight)
        if debounce is not None or debounce_max is not None:
            new.ids = ids
            return self._store.debounce(new, _debounced(new, debounce, debounce_max))
        if ids is None:
            return self._store.enqueue_one(new)
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
        limits: Limit | Iterable[Limit] | None = None,
        rates: Rate | Iterable[Rate] | None = None,
        exclusive: str | None = None,
        fair_key: str | None = None,
        fair_weight: int = 1,
    ) -> Sequence[Job]:
        """Add many jobs with one write: all or none.

        Any iterable; it is walked before anything is locked. `job_ids` and `delays` give one value for each
        payload; the other arguments are as in `enqueue`.

        Returns:
            A sequence of `Job`s, made when looked at. With `job_ids`, repeats and known ids have one entry
            each, with `created=False`. The sequence numbers of those created follow each other.

        Raises:
            ValueError: a wrong number of ids or delays, or more than 256 MiB at once.
        """
        batches = pack_batches(payloads)
        count = sum(number for number, _ in batches)
        new = self._new(batches, count, priority, delay, run_at, max_attempts, expires_in, metadata, lane)
        if (limits, rates, exclusive, fair_key, fair_weight) != _NO_LIMITS:
            new.limits = worded(limits, rates, exclusive, fair_key, fair_weight)
        if job_ids is not None:
            new.ids = arguments.own_ids(job_ids)
            _same_length("job_ids", len(new.ids), count)
        if delays is not None:
            if new.delay_us or new.run_at_us is not None:
                raise ValueError("give delays, or delay, or run_at: one of them")
            new.delays_us = arguments.all_seconds("delays", delays)
            _same_length("delays", len(new.delays_us), count)
        return self._store.enqueue(new)

    def enqueue_all(self, jobs: Iterable[NewJob], *, all_new: bool = False) -> list[Job]:
        """Add jobs of any kinds, lanes and times with one write: all or none.

        Args:
            jobs: any iterable; it is walked before anything is locked. Neighbours whose options are equal,
                but perhaps for ids and delays, share records.
            all_new: write nothing when an id is known already, or repeated, or a limit discards a job.

        Returns:
            One `Job` for each, in order; known ids and repeats with `created=False`. The sequence numbers of
            those created follow each other.

        Raises:
            TypeError, ValueError: names the job and the option, as `jobs[3].delay`; or more than 256 MiB.
            SerializationError: a value is not stored, as `jobs[3].payload`.
            JobExistsError: `all_new`, and an id was not; nothing was written.
            JobsDiscardedError: `all_new`, and limits keep jobs out; nothing was written.
            QueueFullError: the log would pass `max_bytes`.
        """
        arguments.flag("all_new", all_new)
        groups = grouped(jobs, self._options)
        return self._store.enqueue_all(groups, all_new) if groups else []

    def _options(self, job: NewJob, where: str) -> NewJobs:
        when = (job.priority, job.delay, job.run_at, job.max_attempts, job.expires_in)
        new = self._new([], 0, *when, job.metadata, job.lane, where)
        new.limits = worded(job.limits, job.rates, job.exclusive, job.fair_key, job.fair_weight, where)
        return new

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
        where: str = "",
    ) -> NewJobs:
        new = NewJobs(batches, count, self.max_attempts)
        if priority != 0 or type(priority) is not int:
            new.priority = arguments.whole(where + "priority", priority, -_PRIORITY - 1, _PRIORITY)
        if delay != 0.0 or type(delay) is bool:
            new.delay_us = arguments.seconds(where + "delay", delay)
        if run_at is not None:
            new.run_at_us = arguments.wall_time(where + "run_at", run_at)
            if new.delay_us:
                raise ValueError(f"give {where}delay or run_at, not both")
        if max_attempts is not None:
            new.max_attempts = arguments.whole(
                where + "max_attempts", max_attempts, 1, arguments.MAX_ATTEMPTS
            )
        if expires_in is not None:
            new.expires_us = arguments.seconds(where + "expires_in", expires_in, positive=True)
        if metadata is not None:
            new.metadata = pack_value(metadata, where + "metadata")
        if lane != "":
            new.lane = arguments.lane(where + "lane", lane)
        return new


def _same_length(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{name} has {found:,} values for {expected:,} payloads")


def _debounced(new: NewJobs, debounce: float | None, longest: float | None) -> int | None:
    """Let a new job wait for the last word; for how long at most, in microseconds."""
    if new.ids is None or debounce is None or new.delay_us or new.run_at_us is not None:
        raise ValueError("debounce goes with a job_id, without delay or run_at; debounce_max with debounce")
    new.delay_us = arguments.seconds("debounce", debounce, positive=True)
    if longest is None:
        return None
    return arguments.seconds("debounce_max", longest, low=debounce)
