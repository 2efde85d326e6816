"""Running a queue: the dead, cancelling, rescheduling, pausing, compaction, checks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nobroker import arguments
from nobroker.job import Job, JobState
from nobroker.reports import CompactionResult
from nobroker.verbs.face import Face, id_of
from nobroker.verbs.looking import Looking

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


class Managing(Looking, Face):
    """The dead-letter queue, and the queue as a whole."""

    def dlq(self, *, limit: int | None = None, lane: str | None = None) -> list[Job]:
        """The dead-letter queue: jobs out of tries."""
        return self.list_jobs(JobState.DEAD, limit=limit, lane=lane)

    def requeue_dead(self, job_id: str | None = None) -> int:
        """Make one dead job, or all, ready again; attempts start at 0. Returns how many."""
        return self._store.requeue_dead(None if job_id is None else id_of(job_id))

    def drop_dead(self, job_id: str | None = None, *, older_than: float | None = None) -> int:
        """Delete one dead job, or all, or those dead for more than `older_than` seconds. Returns how many."""
        return self._store.drop_dead(
            None if job_id is None else id_of(job_id), arguments.optional_seconds("older_than", older_than)
        )

    def cancel(self, job_id: str) -> Job:
        """Call a job off. Not yet leased: it is done, with `last_error="cancelled"`. Leased: the holder sees
        `cancel_requested` at its next extend. Finished or dead: nothing happens."""
        return self._store.cancel(id_of(job_id))

    def reschedule(self, job_id: str, *, delay: float = 0.0, run_at: datetime | float | None = None) -> Job:
        """Change when a waiting job becomes available. One that is leased, done or dead is left as it is.

        Its `expires_in` counts on from when it was enqueued.

        Args:
            delay: seconds from now; 0: now.
            run_at: or a moment of the wall clock: an aware datetime, or seconds since the epoch.

        Returns:
            The job as it is now.

        Raises:
            JobNotFoundError: there is none (any more).
        """
        delay_us = arguments.seconds("delay", delay)
        run_at_us = arguments.wall_time("run_at", run_at)
        if delay_us and run_at_us is not None:
            raise ValueError("give delay or run_at, not both")
        return self._store.reschedule(id_of(job_id), delay_us, run_at_us)

    def pause(self, *, lane: str | None = None) -> None:
        """Lease nothing more, in any process, until `resume`."""
        self._store.pause(arguments.optional_lane(lane), True)

    def resume(self, *, lane: str | None = None) -> None:
        """End a `pause`."""
        self._store.pause(arguments.optional_lane(lane), False)

    def lane_limit(self, lane: str, limit: int | None) -> None:
        """Let at most `limit` jobs of a lane be leased at once, in all processes, until somebody says
        otherwise; None for any number. What is leased already is left alone.
        """
        if limit is not None:
            arguments.whole("limit", limit, 1, arguments.MAX_COUNT)
        self._store.lane_limit(arguments.lane("lane", lane), limit)

    @property
    def lane_limits(self) -> dict[str, int]:
        """The limits of lanes that have one."""
        return self._store.lane_limits()

    def purge(self, *, lane: str | None = None) -> int:
        """Delete every job, those in hand included. Returns how many."""
        return self._store.purge(arguments.optional_lane(lane))

    def compact(self) -> CompactionResult:
        """Give back the space of finished jobs, now. Safe beside any number of producers and workers."""
        return self._store.compact()

    def check(self) -> list[Any]:
        """Read the whole log and its caches; returns findings, none when all is well. Changes nothing."""
        return self._store.check()

    def backup(self, target: str | os.PathLike[str]) -> Path:
        """Copy the queue to an empty directory, consistent while others work."""
        from pathlib import Path

        return Path(self._store.backup(arguments.directory(target)))

    def _import_jobs(self, jobs: Iterable[Job]) -> int:
        """Add whole jobs, whatever their state; for the import of dumps."""
        return self._store.restore(jobs)
