"""What a store must do, in the store's own units: microseconds, packed values, sequence numbers.

`nobroker.queue.Queue` checks arguments and turns seconds into microseconds and payloads into bytes before
any of this is called; a store never sees a value it has to refuse. Every verb is atomic, and, where
`durable` stores are concerned, on stable storage when it returns, except lease, extend and release.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from nobroker.errors import CorruptLogError
from nobroker.job import Job, JobState
from nobroker.lanes import Selection
from nobroker.reports import CompactionResult, QueueStats, RecoveryReport


class NewJobs:
    """Jobs to enqueue.

    Attributes:
        batches: `(count, packed array of payloads)`, in order.
        count: of all.
        priority, max_attempts, lane: one for all.
        delay_us: after now, one for all.
        delays_us: or one per job.
        run_at_us: or a time of the wall clock.
        expires_us: after now; 0 for never.
        metadata: packed; None for none.
        ids: the callers' own ids, one per job, None for one of the store's; None for all of the store's.
        limits: as records say them, with the numbers of docs/format.md; None for none.
    """

    __slots__ = (
        "batches",
        "count",
        "delay_us",
        "delays_us",
        "expires_us",
        "ids",
        "lane",
        "limits",
        "max_attempts",
        "metadata",
        "priority",
        "run_at_us",
    )

    def __init__(self, batches: list[tuple[int, bytes]], count: int, max_attempts: int) -> None:
        self.batches = batches
        self.count = count
        self.priority = 0
        self.max_attempts = max_attempts
        self.lane = ""
        self.delay_us = 0
        self.delays_us: array[int] | None = None
        self.run_at_us: int | None = None
        self.expires_us = 0
        self.metadata: bytes | None = None
        self.ids: Sequence[str | None] | None = None
        self.limits: dict[str, Any] | None = None


class Alike(NamedTuple):
    """Waiting jobs that were never leased, one sequence number after the other.

    Attributes:
        job: the first of them, without its payload. They differ in the following alone.
        seqs: the sequence numbers.
        prefix, own: an id is the prefix and the sequence number, or the one in `own`, if there is one.
        enqueued, available: microseconds since the epoch; one for all, or one for each.
        packed, index: their payloads stand in this packed array, from `index` on.
        corrupt: makes the error for payloads that turn out not to be there, with file and offset.
    """

    job: Job
    seqs: range
    prefix: str
    own: list[str | None] | None
    enqueued: int | list[int]
    available: int | list[int]
    packed: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    corrupt: Callable[[str], CorruptLogError]


JobRef = Job | str
"""A job, fenced by its token, or an id: whoever holds it now."""


class Store(Protocol):
    """The verbs. Errors are those of `nobroker.errors`."""

    def enqueue(self, new: NewJobs) -> Sequence[Job]: ...

    def enqueue_one(self, new: NewJobs) -> Job:
        """As `enqueue`, for one job without an id of the caller's: the commonest call."""

    def debounce(self, new: NewJobs, longest_us: int | None) -> Job:
        """One job with an id of the caller's: as long as it waits, a newer one takes its place, due after its
        own delay, but not later than so long after the first.
        """

    def enqueue_all(self, groups: Sequence[NewJobs], all_new: bool) -> list[Job]:
        """Jobs of several kinds, in order: all or none. With `all_new`, no id may be known or repeated, and
        no limit may keep one out.
        """

    def lease(
        self,
        count: int,
        timeout_us: int,
        wait: float,
        lanes: Selection,
        stop: Callable[[], bool] | None,
    ) -> list[Job]: ...

    def ack(self, jobs: Sequence[JobRef], results: Sequence[bytes | None] | None, many: bool) -> None: ...

    def settle_and_lease(
        self,
        acks: Sequence[tuple[Job, bytes | None]],
        count: int,
        timeout_us: int,
        lanes: Selection,
    ) -> tuple[list[Job], list[Job], list[Job], int]: ...

    def wait_durable(self, ticket: int) -> None: ...

    def nack(
        self,
        jobs: Sequence[JobRef],
        error: str | None,
        delay_for: Callable[[int], int],
        dead: bool | None,
        state: bytes | None,
        many: bool,
    ) -> list[Job]: ...

    def extend(
        self, jobs: Sequence[JobRef], timeout_us: int, progress: bytes | None, state: bytes | None, many: bool
    ) -> list[Job]: ...

    def release(
        self, jobs: Sequence[JobRef], delay_us: int, state: bytes | None, many: bool
    ) -> list[Job]: ...

    def get(self, job_id: str) -> Job: ...

    def stats(self, lane: str | None, seqs: range | None) -> QueueStats: ...

    def jobs(self, state: JobState | None, lane: str | None) -> Iterator[Job]: ...

    def alike(self) -> Iterator[Job | Alike]: ...

    def requeue_dead(self, job_id: str | None) -> int: ...

    def drop_dead(self, job_id: str | None, older_than_us: int | None) -> int: ...

    def cancel(self, job_id: str) -> Job: ...

    def reschedule(self, job_id: str, delay_us: int, run_at_us: int | None) -> Job: ...

    def pause(self, lane: str | None, paused: bool) -> None: ...

    def lane_limit(self, lane: str, limit: int | None) -> None: ...

    def lane_limits(self) -> dict[str, int]: ...

    def lanes(self) -> list[str]: ...

    def is_paused(self) -> bool: ...

    def purge(self, lane: str | None) -> int: ...

    def restore(self, jobs: Iterable[Job]) -> int: ...

    def compact(self) -> CompactionResult: ...

    def check(self) -> list[Any]: ...

    def backup(self, target: str) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def recovery(self) -> RecoveryReport: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...
