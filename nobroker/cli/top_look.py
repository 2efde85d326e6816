"""What `nobroker top` looks at: queues and processes at one moment, and what changed since the one before."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nobroker.cli.ps import as_dict, by_supervisor

if TYPE_CHECKING:
    from nobroker import ProcessInfo, Queue, QueueStats

HIDDEN: Final = "nobroker."
"""Lanes that begin so hold records of the library, which no worker takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One queue of an application: a lane of the log.

    Attributes:
        name: of the lane; "" has jobs that were enqueued without one.
        ready, delayed, leased, dead: counts of jobs.
        added, ended: jobs a second, since the look before; None at the first.
        oldest: seconds that the longest waiting has waited.
        wait_p50, wait_p95: of waits, where a process measures them: the largest of all processes.
        paused: whether it hands out nothing.
        limit: jobs that may be leased at once.
    """

    name: str
    ready: int
    delayed: int
    leased: int
    dead: int
    added: float | None
    ended: float | None
    oldest: float | None
    wait_p50: float | None
    wait_p95: float | None
    paused: bool
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All that is shown.

    Attributes:
        at: monotonic seconds.
        now: seconds since the epoch.
        total: counts of the whole queue.
        seen: counts by lane, for the look after this one.
    """

    at: float
    now: float
    total: QueueStats
    rows: list[Row]
    processes: list[ProcessInfo]
    seen: dict[str, QueueStats] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "time": self.now,
            "paused": self.total.paused,
            "queues": [asdict(row) for row in self.rows],
            "processes": [as_dict(process, self.now) for process in self.processes],
        }


def look(queue: Queue, processes: list[ProcessInfo], before: Look | None, *, at: float, now: float) -> Look:
    """Look at a queue.

    Args:
        processes: those that work on it.
        before: the look before this one, for rates.
        at, now: the time, as in `Look`.
    """
    limits, lanes = queue.lane_limits, [lane for lane in queue.lanes if not lane.startswith(HIDDEN)]
    seen = {lane: queue.stats(lane=lane) for lane in lanes}
    rows = [_row(lane, stats, processes, before, at, limits.get(lane)) for lane, stats in seen.items()]
    return Look(at=at, now=now, total=queue.stats(), rows=rows, processes=by_supervisor(processes), seen=seen)


def _row(
    lane: str,
    stats: QueueStats,
    processes: list[ProcessInfo],
    before: Look | None,
    at: float,
    limit: int | None,
) -> Row:
    waits = [wait for process in processes for wait in process.waits if wait.queue == lane and wait.count]
    return Row(
        name=lane,
        ready=stats.ready,
        delayed=stats.delayed,
        leased=stats.leased,
        dead=stats.dead,
        added=_rate(before, at, lane, ("total",), stats),
        ended=_rate(before, at, lane, ("done", "dead"), stats),
        oldest=stats.oldest_ready_age,
        wait_p50=max((wait.p50 for wait in waits), default=None),
        wait_p95=max((wait.p95 for wait in waits), default=None),
        paused=stats.paused,
        limit=limit,
    )


def _rate(
    before: Look | None, at: float, lane: str, counts: tuple[str, ...], stats: QueueStats
) -> float | None:
    """How much counts grew, a second. They also shrink: finished jobs are forgotten, dead ones requeued."""
    if before is None or at <= before.at:
        return None
    earlier = before.seen.get(lane)
    grown: int = sum(getattr(stats, name) for name in counts)
    if earlier is not None:
        grown -= sum(getattr(earlier, name) for name in counts)
    return max(0.0, grown / (at - before.at))
