"""What a workload did, and therefore what a power cut at any moment may leave.

Invariant: a workload's calls are numbered; after the first n of them the queue has one *essence*. What is
found after a power cut is the essence after some n: no smaller than the last call that returned durably, no
larger than the last that had begun.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from nobroker import JobState, Queue
from nobroker.clock import ManualClock
from nobroker_mmap import rotation
from tests.faults.disk import Image, Recorder
from tests.faults.tap import Calls, installed

SEGMENT = 64 * 1024
Essence = frozenset[Any]


def essence_of(queue: Queue) -> Essence:
    """What a power cut must not change: all jobs, but for who holds them and what may be forgotten."""
    found = set()
    for job in queue._iter_jobs():
        state = job.state
        own = not job.id.startswith("nb-")
        if state is JobState.DONE:
            if own or job.result is not None:
                found.add((job.id, job.seq, "done", repr(job.result)))
            continue
        error = job.last_error
        if state is JobState.LEASED:  # a power cut ends it
            if job.cancel_requested:
                if own:
                    found.add((job.id, job.seq, "done", "None"))
                continue
            spent = job.attempts >= job.max_attempts
            state = JobState.DEAD if spent else JobState.READY
        if state is JobState.DEAD:
            error = None
        facts = (job.priority, job.lane, job.attempts, job.max_attempts, error)
        values = (repr(job.payload), repr(job.metadata), repr(job.progress), repr(job.job_state))
        found.add((job.id, job.seq, state.value, *facts, *values))
    found.add(queue.paused)
    return frozenset(found)


class Numbers(NamedTuple):
    """The highest that anybody saw."""

    seq: int = 0
    token: int = 0


class Step(NamedTuple):
    began: int
    written: int
    ended: int
    durable: bool
    essence: Essence
    numbers: Numbers


def numbers_of(queue: Queue) -> Numbers:
    """The highest that were given out."""
    state = queue._store._session.state  # type: ignore[attr-defined]
    return Numbers(state.next_seq - 1, state.next_token - 1)


def let_go(queue: Queue) -> None:
    """Close as the death of the process would: no CLOSE record, no snapshot."""
    queue._store._session.log._release_files()  # type: ignore[attr-defined]


class Expected(NamedTuple):
    """What may be found."""

    essences: frozenset[Essence]
    numbers: Numbers


EMPTY: Essence = frozenset({False})


class Book:
    """Does a workload on a recorded disk and keeps the account."""

    def __init__(
        self,
        directory: Path,
        seed: object,
        *,
        recorder: Recorder | None = None,
        clock: ManualClock | None = None,
        before: Expected | None = None,
    ) -> None:
        self.directory = directory
        self.rng = random.Random(f"{seed}")
        self.clock = clock or ManualClock()
        self.disk = recorder or Recorder(directory)
        self.before = before or Expected(frozenset({EMPTY}), Numbers())
        self.first: Essence | None = None
        """What was found by an opening that began with an older disk."""
        self.steps: list[Step] = []

    def recording(self) -> AbstractContextManager[None]:
        return installed(self.disk)

    def repeatable(self) -> Any:
        """The log's random numbers, from the seed."""
        return mock.patch.object(rotation, "random_u64", self._random_u64)

    def _random_u64(self) -> int:
        return self.rng.getrandbits(64) | 1

    def open(self, **options: Any) -> Queue:
        options = {"segment_size": SEGMENT, "clock": self.clock, **options}
        return Queue(self.directory, **options)

    def do(self, queue: Queue, call: Callable[[], Any], *, durable: bool = True) -> Any:
        """One call."""
        began = self.disk.position
        answer = call()
        kinds = self.disk.kinds[began : self.disk.position]
        writes = [began + index + 1 for index, (kind, _) in enumerate(kinds) if kind == "write"]
        self.disk.look()
        ended = self.disk.position
        written = writes[-1] if writes else ended
        step = Step(began, written, ended, durable, essence_of(queue), numbers_of(queue))
        self.steps.append(step)
        return answer

    def expected(self, at: int) -> Expected:
        """What may be found when the power fails after `at` operations."""
        begun = bisect_right(self.steps, at - 1, key=lambda step: step.began)
        returned = [i for i, s in enumerate(self.steps[:begun]) if s.durable and s.ended <= at]
        allowed = {step.essence for step in self.steps[returned[-1] if returned else 0 : begun]}
        if not returned:
            allowed |= self.before.essences
            if self.first is not None and begun:
                allowed.add(self.first)
        seen = [self.before.numbers, *(s.numbers for s in self.steps[:begun] if s.written <= at)]
        highest = Numbers(max(n.seq for n in seen), max(n.token for n in seen))
        return Expected(frozenset(allowed), highest)


class Found(NamedTuple):
    """What an opening after a power cut found, and the first numbers that it gave out."""

    essence: Essence
    seq: int
    token: int


class Numbered(Calls):
    """The files of an image, with the numbers they had."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def inode(self, fd: int) -> int:
        real = super().inode(fd)
        return self.numbers.get(real, real + (1 << 40))

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        super().ftruncate(fd, offset + length)

    def fsync(self, fd: int) -> None:
        """The next power cut is not today."""

    fdatasync = fsync


def go_on(queue: Queue) -> tuple[int, int]:
    """Work a little. Returns the first number and the first token that were given out."""
    job = queue.enqueue("after the power came back", priority=1000)
    leased = queue.lease(1)
    token = leased[0].lease_token if leased else numbers_of(queue).token + 1
    return job.seq, token or 0


def look_closely(queue: Queue, reopen: Callable[[], Queue]) -> None:
    """Checked, closed, opened with and without the snapshot: always the same."""
    if findings := queue.check():
        raise AssertionError(f"check: {findings}")
    before = essence_of(queue)
    queue.close()
    for _ in range(2):
        with reopen() as again:
            if essence_of(again) != before:
                raise AssertionError("a second opening finds something else")
            if findings := again.check():
                raise AssertionError(f"check after another opening: {findings}")
            snapshot = again.dir / f"{again.name}.snap"
        snapshot.unlink(missing_ok=True)


def open_image(image: Image, directory: Path, calls: Numbered, clock: ManualClock, *, closely: bool) -> Found:
    """Make an image real, open it after a boot, and work on. `calls` is installed."""
    calls.numbers = image.write(directory)

    def reopen() -> Queue:
        return Queue(directory, clock=clock, segment_size=SEGMENT)

    queue = reopen()
    try:
        essence = essence_of(queue)
        seq, token = go_on(queue)
        if closely:
            look_closely(queue, reopen)
    finally:
        let_go(queue)
    return Found(essence, seq, token)
