"""Working an application's jobs off. What that needs is loaded when it is asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from nobroker.worker import WorkerStats

if TYPE_CHECKING:
    from nobroker.running.config import RunConfig


class Working:
    """The part of `App` that works."""

    def run(
        self: Any,
        *,
        config: RunConfig | str | os.PathLike[str] | None = None,
        handle_signals: bool = True,
        **arguments: Any,
    ) -> WorkerStats:
        """Work jobs off, until a signal or `Service.stop`; or until ``once`` or ``max_jobs`` is reached.

        Args:
            config: the file that says how; None: ``queue.yml``, where there is one. Or a `RunConfig`.
            handle_signals: whether signals mean, in the main thread, what they mean to ``nobroker run``; of
                several processes, always.
            arguments: what the file may say, before what it says: ``queues``, ``order``, ``threads``,
                ``processes``, ``scheduler``, ...; and ``once``: work off what is due, then end.

        Returns:
            What was done, in all processes together.

        Raises:
            TypeError: an argument that there is not.
            ConfigError: arguments, environment or file say what can't be.
            RunFailedError: several processes did not end as they should.
            NestedRunError: a job of a worker process asks for more processes.
        """
        from nobroker.running.starting import run

        stats: WorkerStats = run(self, config, arguments, handle_signals)
        return stats
