"""The job as people see it: a value, not a handle. Changing it changes no queue."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from nobroker_mmap.plain import Plain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from nobroker.limits import Limit, Rate


class JobState(StrEnum):
    """Where a job is in its life. Equal to its lower-case name.

    A delayed job is READY with ``available_at`` in the future: whether it may be
    leased is a question of the clock, not a state of its own.
    """

    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


class NewJob(Plain):
    """One job for `Queue.enqueue_all`. What is wrong with it is said when it is enqueued.

    Attributes: as the arguments of `Queue.enqueue`.
    """

    __slots__ = __match_args__ = (
        "payload",
        "priority",
        "delay",
        "run_at",
        "max_attempts",
        "job_id",
        "expires_in",
        "metadata",
        "lane",
        "limits",
        "rates",
        "exclusive",
        "fair_key",
        "fair_weight",
    )

    def __init__(
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
    ) -> None:
        self.payload = payload
        self.priority = priority
        self.delay = delay
        self.run_at = run_at
        self.max_attempts = max_attempts
        self.job_id = job_id
        self.expires_in = expires_in
        self.metadata = metadata
        self.lane = lane
        self.limits = limits
        self.rates = rates
        self.exclusive = exclusive
        self.fair_key = fair_key
        self.fair_weight = fair_weight


class Job(Plain):
    """One job at one moment.

    All times are seconds since the epoch, as floats.

    Attributes:
        id: the caller's own id, or one that the queue made.
        payload: what was enqueued.
        priority: higher is delivered first.
        state: see `JobState`.
        attempts: how often the job was leased, the present lease included.
        max_attempts: after so many attempts a failure is final.
        available_at: not delivered before.
        enqueued_at: when the queue took it.
        lease_deadline: when the present lease ends; None when not leased.
        lease_token: the fence of the present (or last) lease; None when never leased.
        last_error: text of the newest failure.
        seq: place in the order of insertion; never given twice.
        lane: the lane of the log it travels in.
        metadata: what the caller attached; not looked at.
        result: what the ack stored.
        progress: what the holder reported last.
        job_state: a small value the holder keeps across attempts.
        expires_at: never delivered for the first time after this.
        cancel_requested: the holder is asked to stop.
        created: False when `enqueue` found the id already known, or a limit discarded the job.
        limits: what was said of limits when it was enqueued, as plain values; None for a job without.
    """

    __slots__ = __match_args__ = (
        "id",
        "payload",
        "priority",
        "state",
        "attempts",
        "max_attempts",
        "available_at",
        "enqueued_at",
        "lease_deadline",
        "lease_token",
        "last_error",
        "seq",
        "lane",
        "metadata",
        "result",
        "progress",
        "job_state",
        "expires_at",
        "cancel_requested",
        "created",
        "limits",
    )

    def __init__(
        self,
        id: str,
        payload: Any,
        priority: int = 0,
        state: JobState = JobState.READY,
        attempts: int = 0,
        max_attempts: int = 5,
        available_at: float = 0.0,
        enqueued_at: float = 0.0,
        lease_deadline: float | None = None,
        lease_token: int | None = None,
        last_error: str | None = None,
        seq: int = 0,
        lane: str = "",
        metadata: Any = None,
        result: Any = None,
        progress: Any = None,
        job_state: Any = None,
        expires_at: float | None = None,
        cancel_requested: bool = False,
        created: bool = True,
        limits: dict[str, Any] | None = None,
    ) -> None:
        self.id = id
        self.payload = payload
        self.priority = priority
        self.state = state
        self.attempts = attempts
        self.max_attempts = max_attempts
        self.available_at = available_at
        self.enqueued_at = enqueued_at
        self.lease_deadline = lease_deadline
        self.lease_token = lease_token
        self.last_error = last_error
        self.seq = seq
        self.lane = lane
        self.metadata = metadata
        self.result = result
        self.progress = progress
        self.job_state = job_state
        self.expires_at = expires_at
        self.cancel_requested = cancel_requested
        self.created = created
        self.limits = limits

    def is_eligible(self, now: float) -> bool:
        """Whether it may be leased at `now` (seconds since the epoch)."""
        return self.state is JobState.READY and self.available_at <= now

    def snapshot(self) -> Job:
        """A copy; the payload is shared."""
        return self.__replace__()

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, the state as its string."""
        found = {name: getattr(self, name) for name in self.__match_args__}
        found["state"] = self.state.value
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Job:
        """The reverse of `to_dict`. Missing fields take their defaults, unknown ones are left out.

        Raises:
            KeyError: without an ``id``.
            ValueError: for a state that is none.
        """
        known = {name: data[name] for name in cls.__match_args__ if name in data}
        known["id"] = data["id"]
        known.setdefault("payload", None)
        known["state"] = JobState(known.get("state", "ready"))
        return cls(**known)
