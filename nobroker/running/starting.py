"""From what is to run to something that runs: in this process where that will do, else in others."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nobroker.app.errors import ConfigError, RecurringError, RunFailedError
from nobroker.app.serving import Service
from nobroker.running import board as boards
from nobroker.running.board import Board
from nobroker.running.config import RunConfig
from nobroker.running.forking import Source
from nobroker.running.member import Member
from nobroker.running.plans import DONE, RECYCLED, needs_supervisor
from nobroker.running.signals import can_be_caught
from nobroker.running.sources import load
from nobroker.running.supervisor import Supervisor
from nobroker.running.tasks import WORK, Task
from nobroker.worker import WorkerStats

if TYPE_CHECKING:
    from nobroker.app.application import App

_log = logging.getLogger("nobroker.run")
_NAMES: Final = {"poll_interval": "polling_interval"}
"""As `Worker` calls them."""


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


def run(
    app: App,
    config: RunConfig | str | os.PathLike[str] | None,
    arguments: Mapping[str, Any],
    handle_signals: bool,
) -> WorkerStats:
    """`App.run`.

    Raises:
        ConfigError: what says how to run can't be as it is.
        TypeError: an argument that there is not.
        RunFailedError: it did not end as it should.
    """
    loaded = None
    if not isinstance(config, RunConfig):
        said = {_NAMES.get(name, name): value for name, value in arguments.items()}
        loaded = load(file=config, arguments=said)
        for warning in loaded.warnings:
            warn(warning)
        config = loaded.config
    elif arguments:
        raise TypeError(f"with a RunConfig, run() takes no {', '.join(arguments)}: it says it all")
    if config.scheduler.recurring is not None:
        try:
            app.recurring_file(config.scheduler.recurring)
        except RecurringError as error:
            if loaded is None:
                raise
            raise ConfigError([loaded.problem("scheduler.recurring", str(error))]) from error
    if not needs_supervisor(config, counting=False):
        if handle_signals and can_be_caught():
            return _alone(app, config).stats
        return single(app, config, handle_signals=handle_signals).run()
    if not handle_signals:
        raise TypeError("handle_signals=False is for one process; several are ended by signals")
    packages = sorted({job.module for job in app.jobs.values()})
    ran = run_config(app, config, Source(tuple(packages), None, tuple(app._recurring_files)))
    if ran.code != DONE:
        raise RunFailedError(ran.reason or "some jobs had to be let go, or a process was lost", ran.code)
    return ran.stats


def run_config(app: App, config: RunConfig, source: Source, metrics_dir: str | None = None) -> Ran:
    """Run what a configuration says, until it ends.

    Args:
        source: where fresh interpreters find the application.
        metrics_dir: see `Service`.

    Raises:
        as `Supervisor.run` and `Service.run`.
    """
    if needs_supervisor(config):
        supervisor = Supervisor(app, config, source=source, metrics_dir=metrics_dir)
        code = supervisor.run()
        return Ran(code, supervisor.stats, supervisor.reason)
    if not can_be_caught():
        service = single(app, config, metrics_dir=metrics_dir)
        stats = service.run()
        return Ran(DONE if service.recycling is None else RECYCLED, stats)
    return _alone(app, config, metrics_dir)


def _alone(app: App, config: RunConfig, metrics_dir: str | None = None) -> Ran:
    """Run the only worker in this process, with all that signals mean to it."""
    task = Task(
        role=WORK,
        name="worker",
        worker=config.workers[0],
        scheduler=config.scheduler.enabled,
        once=config.once,
        quiet_then_exit=config.quiet_then_exit,
        shutdown_timeout=config.shutdown_timeout,
        heartbeat_interval=config.heartbeat_interval,
        metrics_dir=metrics_dir,
    )
    member = Member(task, Board(mmap.mmap(-1, boards.size(task.threads)), task.threads), None)
    member.enter()
    return Ran(*member.alone(app))


def single(
    app: App, config: RunConfig, *, handle_signals: bool = True, metrics_dir: str | None = None
) -> Service:
    """The only worker, with its only process being this one."""
    (worker,) = config.workers
    return Service(
        app,
        queues=worker.queues,
        order=worker.order,
        threads=worker.threads,
        batch=worker.batch,
        poll_interval=worker.polling_interval,
        max_jobs=worker.max_jobs,
        scheduler=config.scheduler.enabled,
        once=config.once,
        handle_signals=handle_signals,
        heartbeat_interval=config.heartbeat_interval,
        metrics_dir=metrics_dir,
    )


def warn(warning: str) -> None:
    """Say what may be a mistake of whoever configured this."""
    _log.warning("event=run.config_doubtful %s", warning)
