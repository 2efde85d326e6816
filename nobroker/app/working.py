"""Working an application's jobs off. What that needs beyond one process is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from nobroker.app.serving import Service
from nobroker.worker import WorkerStats

if TYPE_CHECKING:
    from nobroker.running.config import RunConfig


class Working:
    """The part of `App` that works."""

    @overload
    def run(self: Any, *, config: RunConfig, packages: Iterable[str] | None = None) -> int: ...
    @overload
    def run(self: Any, *, config: None = None, **options: Any) -> WorkerStats: ...
    def run(
        self: Any,
        *,
        config: RunConfig | None = None,
        packages: Iterable[str] | None = None,
        **options: Any,
    ) -> WorkerStats | int:
        """Work jobs off in this process, until a signal or `Service.stop`; or as a configuration says.

        Args:
            config: what is to run, in how many processes. Returns an exit code then: `Supervisor.run`.
            packages: with a configuration that starts fresh interpreters: where the jobs are. The modules
                that they were defined in when left out.
            options: without a configuration: see `Service`.

        Raises:
            NestedRunError: a job of a worker process asks for more processes.
        """
        if config is None:
            return Service(self, **options).run()
        if options:
            raise TypeError(f"with config=, run() takes no {', '.join(options)}: the configuration says all")
        from nobroker.running.launching import run
        from nobroker.running.starting import Source

        names = packages or sorted({job.module for job in self.jobs.values()})
        return run(self, config, Source(tuple(names), None, tuple(self._recurring_files))).code
