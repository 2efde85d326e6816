"""Asking. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nobroker import arguments
from nobroker.job import Job, JobState
from nobroker.reports import QueueStats, RecoveryReport
from nobroker.stores.base import Alike
from nobroker.verbs.face import Face, id_of

if TYPE_CHECKING:
    from pathlib import Path


class Looking(Face):
    """Get, stats, list."""

    def get(self, job_id: str) -> Job:
        """The job with this id.

        Raises:
            JobNotFoundError: there is none (any more).
        """
        return self._store.get(id_of(job_id))

    def stats(self, *, lane: str | None = None, seqs: range | None = None) -> QueueStats:
        """Counts by state: of all jobs, of those of one lane, or of those with these sequence numbers.

        Args:
            lane: of this lane.
            seqs: of these, without gaps, as one `enqueue_many` or `enqueue_all` gives them:
                `range(jobs[0].seq, jobs[-1].seq + 1)`. Finished ones count until they are forgotten: `total`
                is how many are known. `oldest_ready_age` is None.

        Raises:
            ValueError: both are given, or a range with a step.
        """
        if seqs is not None:
            if type(seqs) is not range:
                raise TypeError(f"seqs must be a range, not {type(seqs).__name__}")
            if seqs.step != 1:
                raise ValueError(f"seqs must be a range without gaps, not {seqs!r}")
            if lane is not None:
                raise ValueError("give lane or seqs, not both")
        return self._store.stats(arguments.optional_lane(lane), seqs)

    @property
    def lanes(self) -> list[str]:
        """The lanes of all jobs that are known, and those that are paused; sorted."""
        return self._store.lanes()

    def list_jobs(
        self, state: JobState | str | None = None, *, limit: int | None = None, lane: str | None = None
    ) -> list[Job]:
        """Jobs by sequence number; with `state="ready"` in the order they would be delivered."""
        wanted = None if state is None else JobState(state)
        if limit is not None:
            arguments.whole("limit", limit, 0, 2**62)
        found: list[Job] = []
        if limit == 0:
            return found
        for job in self._store.jobs(wanted, arguments.optional_lane(lane)):
            found.append(job)
            if len(found) == limit:
                break
        return found

    def _iter_jobs(self, state: JobState | str | None = None) -> Iterator[Job]:
        """As `list_jobs`, a few at a time."""
        return self._store.jobs(None if state is None else JobState(state), None)

    def _iter_alike(self) -> Iterator[Job | Alike]:
        """All jobs by sequence number, those at once that hardly differ."""
        return self._store.alike()

    def __len__(self) -> int:
        return self.stats().total

    @property
    def paused(self) -> bool:
        """Whether the whole queue is paused."""
        return self._store.is_paused()

    @property
    def path(self) -> Path:
        """The file of the log that is written to now, for looking at its size or its owner."""
        from pathlib import Path  # here, as elsewhere: it is slow to import, and few look

        return Path(self._store.path)

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found and repaired."""
        return self._store.recovery
