"""New jobs as records and as `Job`s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

from nobroker.job import Job, JobState
from nobroker.limits import shown
from nobroker.state.machine import Head
from nobroker.stores.base import NewJobs
from nobroker.values import split_array, unpack

_READY: Final = JobState.READY


def common_head(new: NewJobs, now: int) -> Head:
    """What the records of one call share."""
    head: Head = {"t": now}
    if new.priority:
        head["p"] = new.priority
    if new.max_attempts != 5:
        head["m"] = new.max_attempts
    if new.lane:
        head["l"] = new.lane
    if new.expires_us:
        head["x"] = now + new.expires_us
    if new.metadata is not None:
        head["M"] = new.metadata
    if new.limits is not None:
        head["c"] = new.limits
    if new.run_at_us is not None:
        head["a"], head["w"] = new.run_at_us, True
    elif new.delay_us:
        head["a"] = now + new.delay_us
    return head


def new_job(new: NewJobs, common: Head, job_id: str, seq: int, avail: int, payload: Any) -> Job:
    """A job as it was just enqueued; `common` is the head that the jobs of the call share."""
    job = Job(
        job_id,
        payload,
        new.priority,
        _READY,
        0,
        new.max_attempts,
        avail / 1e6,
        common["t"] / 1e6,
        None,
        None,
        None,
        seq,
        new.lane,
    )
    if new.metadata is not None:
        job.metadata = unpack(new.metadata)
    if new.expires_us:
        job.expires_at = common["x"] / 1e6
    if new.limits is not None:
        job.limits = shown(new.limits)
    return job


class JobBatch(Sequence[Job]):
    """The jobs of one call: the packed bytes, and `Job`s made when asked."""

    def __init__(self, prefix: str, new: NewJobs, head: Head, first: int) -> None:
        self._prefix = prefix
        self._new = new
        self._head = head
        self._first = first
        self._elements: list[list[bytes]] | None = None

    def __len__(self) -> int:
        return self._new.count

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        if isinstance(index, slice):
            return [self._job(at) for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"job {index} of {len(self)}")
        return self._job(at)

    def __iter__(self) -> Iterator[Job]:
        at = 0
        for _, packed in self._new.batches:
            for payload in unpack(packed):
                yield self._made(at, payload)
                at += 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, (str, bytes)):
            return len(self) == len(other) and all(
                mine == theirs for mine, theirs in zip(self, other, strict=True)
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} jobs, seq {self._first} and up>"

    def _job(self, at: int) -> Job:
        if self._new.count == 1:
            return self._made(0, unpack(self._new.batches[0][1])[0])
        if self._elements is None:
            self._elements = [split_array(packed) for _, packed in self._new.batches]
        start = 0
        for elements in self._elements:
            if at < start + len(elements):
                return self._made(at, unpack(elements[at - start]))
            start += len(elements)
        raise IndexError(at)

    def _made(self, at: int, payload: Any) -> Job:
        new, seq, head = self._new, self._first + at, self._head
        avail = head.get("a") or head["t"] if new.delays_us is None else head["t"] + new.delays_us[at]
        own = None if new.ids is None else new.ids[at]
        return new_job(new, head, f"{self._prefix}{seq}" if own is None else own, seq, avail, payload)
