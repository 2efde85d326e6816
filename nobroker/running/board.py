"""What a child says of itself, where its supervisor can read it: memory that both have.

Why memory and not a pipe: saying it costs no system call, nothing fills up when the supervisor is slow, and
what was said last can be read when the child is dead.

What the child says is written by it alone, and read by the supervisor only:
- the head: whether the child is ready, what it has done, what it takes when it is fresh, whether it rests;
- for each thread, the lease that it runs or ran last. It is never wiped: a job that has just ended is still
  there, told apart by a flag. Its token says whether it still counts. A child may be killed in the midst of
  writing; a checksum tells.
One byte goes the other way: whether the child is to record what its jobs take. The signal
that says "look there" may come late, or two as one, and no child gets out of step.
"""

from __future__ import annotations

import inspect
import mmap
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, Final, NamedTuple

import msgpack

from nobroker.job import Job
from nobroker.worker import WorkerStats

READY: Final = 1
QUIET: Final = 2

RESTED: Final = 1
"""It has taken its last job, and none runs."""
IDLE: Final = 2
"""The same, because nothing was left to do."""

_STATE: Final = 0
_FORCED: Final = 1
_REST: Final = 2
_RECORDING: Final = 3
_FINISHED: Final = slice(8, 16)
_BASELINE: Final = slice(16, 24)
_STATS: Final = 24
_HEAD: Final = 64
_SLOT: Final = 2048
_COUNTS: Final = ("leased", "succeeded", "failed", "dead", "lost_leases")


class InHand(NamedTuple):
    """A lease that a child has, or had last.

    Attributes:
        token: of the lease.
        timeout: seconds that the job may take; None: as long as it likes.
        started: monotonic seconds, the same for all processes.
        running: whether its code runs.
    """

    id: str
    token: int
    job_class: str
    timeout: float | None
    started: float
    running: bool = True


def size(threads: int) -> int:
    """Bytes of a board."""
    return _HEAD + threads * _SLOT


class Board:
    """One child's board.

    Args:
        memory: of `size(threads)` bytes, zeros at first.
    """

    def __init__(self, memory: mmap.mmap, threads: int) -> None:
        self._memory = memory
        self.threads = threads
        self._count = count(1)

    def close(self) -> None:
        self._memory.close()

    # -- the child's side

    @property
    def recording(self) -> bool:
        """Whether it is to record what its jobs take."""
        return self._memory[_RECORDING] != 0

    def say(self, state: int) -> None:
        self._memory[_STATE] = state

    def say_forced(self) -> None:
        self._memory[_FORCED] = 1

    def say_rest(self, rest: int) -> None:
        self._memory[_REST] = rest

    def say_baseline(self, resident: int) -> None:
        self._memory[_BASELINE] = resident.to_bytes(8, "little")

    def say_stats(self, stats: WorkerStats) -> None:
        counts = stats.to_dict()
        raw = b"".join(counts[name].to_bytes(8, "little") for name in _COUNTS)
        self._memory[_STATS : _STATS + len(raw)] = raw

    def watched(
        self, handler: Callable[[Job], Any], describe: Callable[[Job], tuple[str, float | None]]
    ) -> Callable[[Job], Any]:
        """The handler, with its jobs on the board.

        Args:
            describe: name of the job, and its timeout.
        """
        free = list(range(self.threads))

        def call(job: Job) -> Any:
            slot = free.pop() if free else None
            self._begin(slot, job, *describe(job))
            found = None
            try:
                found = handler(job)
            finally:
                waits = found is not None and inspect.isawaitable(found)
                if not waits:
                    self._end(slot, free)
            return self._awaited(found, slot, free) if waits else found

        return call

    async def _awaited(self, found: Awaitable[Any], slot: int | None, free: list[int]) -> Any:
        try:
            return await found
        finally:
            self._end(slot, free)

    def _begin(self, slot: int | None, job: Job, job_class: str, timeout: float | None) -> None:
        if slot is None or job.lease_token is None:
            return
        said = (job.id, job.lease_token, job_class[:100], timeout, time.monotonic())
        raw = msgpack.packb(said)
        at = _HEAD + slot * _SLOT
        self._memory[at + 1 : at + 7 + len(raw)] = (
            zlib.crc32(raw).to_bytes(4, "little") + len(raw).to_bytes(2, "little") + raw
        )
        self._memory[at] = 1

    def _end(self, slot: int | None, free: list[int]) -> None:
        if slot is not None:
            self._memory[_HEAD + slot * _SLOT] = 0
            free.append(slot)
        self._memory[_FINISHED] = next(self._count).to_bytes(8, "little")

    # -- the supervisor's side

    def have_recorded(self, wanted: bool) -> None:
        self._memory[_RECORDING] = wanted

    @property
    def state(self) -> int:
        return self._memory[_STATE]

    @property
    def forced(self) -> bool:
        """Whether it has let go of jobs that had not ended."""
        return self._memory[_FORCED] != 0

    @property
    def rest(self) -> int:
        """`RESTED`, `IDLE`; 0: it has not come to that."""
        return self._memory[_REST]

    @property
    def finished(self) -> int:
        """Jobs that have ended, however."""
        return int.from_bytes(self._memory[_FINISHED], "little")

    @property
    def baseline(self) -> int:
        """Bytes that it took when it was fresh; 0: not known."""
        return int.from_bytes(self._memory[_BASELINE], "little")

    @property
    def stats(self) -> WorkerStats:
        """What it did; zeros before it has ended."""
        raw = self._memory[_STATS : _STATS + 8 * len(_COUNTS)]
        numbers = [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8)]
        return WorkerStats(**dict(zip(_COUNTS, numbers, strict=True)))

    def in_hand(self) -> Iterator[InHand]:
        """The leases that it has or had."""
        for at in range(_HEAD, _HEAD + self.threads * _SLOT, _SLOT):
            running = self._memory[at] == 1
            length = int.from_bytes(self._memory[at + 5 : at + 7], "little")
            raw = self._memory[at + 7 : at + 7 + length]
            if length and zlib.crc32(raw).to_bytes(4, "little") == self._memory[at + 1 : at + 5]:
                yield InHand._make([*msgpack.unpackb(raw), running])
