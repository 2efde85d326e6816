"""Running what a configuration says: in this process where that will do, else in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nobroker.app.serving import Service
from nobroker.running.config import RunConfig
from nobroker.running.plans import DONE, RECYCLED, needs_supervisor
from nobroker.running.starting import Source
from nobroker.running.supervisor import Supervisor
from nobroker.worker import WorkerStats

if TYPE_CHECKING:
    from nobroker.app import App


class Ran(NamedTuple):
    """How a run ended.

    Attributes:
        code: for `sys.exit`.
        stats: what was done.
        reason: why it was given up; None: it was not.
    """

    code: int
    stats: WorkerStats
    reason: str | None = None


def run(app: App, config: RunConfig, source: Source | None = None) -> Ran:
    """Run it until it ends.

    Args:
        source: where fresh interpreters find the application, for ``start_method="spawn"``.

    Raises:
        as `Supervisor.run` and `Service.run`.
    """
    if needs_supervisor(config):
        supervisor = Supervisor(app, config, source=source)
        code = supervisor.run()
        return Ran(code, supervisor.stats, supervisor.reason)
    service = service_of(app, config)
    stats = service.run()
    return Ran(DONE if service.recycling is None else RECYCLED, stats)


def service_of(app: App, config: RunConfig) -> Service:
    """The one worker of a configuration that needs no supervisor."""
    (worker,) = config.workers
    return Service(
        app,
        queues=None if worker.queues == ("*",) else worker.queues,
        threads=worker.threads,
        batch=worker.batch,
        scheduler=config.scheduler.enabled,
        once=config.once,
        poll_interval=worker.polling_interval,
    )
