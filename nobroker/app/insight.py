"""What an application tells of the processes that work for it, and of their jobs. `nobroker.running`, which
knows, is loaded when it is asked.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobroker.running.info import JobSummary, ProcessInfo, Recorded
    from nobroker.running.metrics import Meter


class Insight:
    """The part of `App` that has to do with looking at what runs."""

    def __init__(self) -> None:
        super().__init__()
        self._making = threading.Lock()
        self._made: Meter | None = None

    def processes(self: Any) -> list[ProcessInfo]:
        """The processes that work on this application's queue now, in the order in which they began."""
        from nobroker.running.registry import registered

        return registered(self.queue)

    def start_job_metrics(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_rows: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Measure what each job takes that runs in this process from now on: in sums (`job_metrics_summary`),
        in its line in the log, and, with a path, in rows of a CSV file.

        Args:
            path: of the file, which must not be there yet. None: no file.
            max_rows: end after so many rows.
            seconds: end after so many seconds.

        Raises:
            RuntimeError: a recording is on already.
            ValueError: limits without a file, or below 1.
            OSError: the file cannot be made. What goes wrong later is a warning in the log.
        """
        self._meter().start(None if path is None else os.fspath(path), max_rows=max_rows, seconds=seconds)

    def stop_job_metrics(self) -> Recorded | None:
        """End measuring. What became of the file; None where there was none. The sums stay."""
        return self._meter().stop()

    def job_metrics_summary(self, reset: bool = False) -> dict[str, JobSummary]:
        """What the jobs took that were measured in this process, by the name of the job.

        Args:
            reset: begin anew with the sums.
        """
        return self._meter().summary(reset=reset)

    def _meter(self: Any) -> Meter:
        with self._making:
            if self._made is None:
                from nobroker.running.metrics import Meter

                self._made = Meter(self._now)
            found: Meter = self._made
            return found
