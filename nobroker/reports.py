"""What the queue tells about itself."""

from __future__ import annotations

from typing import Any

from nobroker_mmap.plain import Frozen
from nobroker_mmap.report import RecoveryReport


class QueueStats(Frozen):
    """Counts of jobs by state, and three facts beside them.

    Attributes:
        ready: may be leased now.
        delayed: waits for its time (retries after backoff too).
        leased: held by somebody.
        done: finished and not yet forgotten.
        dead: in the dead-letter queue.
        total: the sum of the five.
        oldest_ready_age: seconds that the longest waiting of the ready ones has waited; None when there is
            none.
        paused: whether leasing is switched off.
        bytes: what the log takes, in bytes in use.
    """

    __slots__ = __match_args__ = (
        "ready",
        "delayed",
        "leased",
        "done",
        "dead",
        "total",
        "oldest_ready_age",
        "paused",
        "bytes",
    )

    ready: int
    delayed: int
    leased: int
    done: int
    dead: int
    total: int
    oldest_ready_age: float | None
    paused: bool
    bytes: int

    def __init__(
        self,
        ready: int = 0,
        delayed: int = 0,
        leased: int = 0,
        done: int = 0,
        dead: int = 0,
        total: int = 0,
        oldest_ready_age: float | None = None,
        paused: bool = False,
        bytes: int = 0,
    ) -> None:
        self._fill(ready, delayed, leased, done, dead, total, oldest_ready_age, paused, bytes)

    def __str__(self) -> str:
        return (
            f"ready={self.ready} delayed={self.delayed} leased={self.leased} "
            f"done={self.done} dead={self.dead} total={self.total}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        return {name: getattr(self, name) for name in self.__match_args__}


class CompactionResult(Frozen):
    """What a compaction did. Bytes are those in use, not those preallocated."""

    __slots__ = __match_args__ = ("bytes_before", "bytes_after", "jobs_kept", "jobs_dropped")

    bytes_before: int
    bytes_after: int
    jobs_kept: int
    jobs_dropped: int

    def __init__(self, bytes_before: int, bytes_after: int, jobs_kept: int, jobs_dropped: int) -> None:
        self._fill(bytes_before, bytes_after, jobs_kept, jobs_dropped)

    @property
    def bytes_reclaimed(self) -> int:
        return self.bytes_before - self.bytes_after

    def describe(self) -> str:
        """One line for people."""
        share = 100 * max(0, self.bytes_reclaimed) / self.bytes_before if self.bytes_before else 0.0
        return (
            f"{self.bytes_before:,} -> {self.bytes_after:,} bytes ({share:.0f} % reclaimed), "
            f"{self.jobs_kept:,} jobs kept, {self.jobs_dropped:,} finished ones forgotten"
        )


__all__ = ["CompactionResult", "QueueStats", "RecoveryReport"]
