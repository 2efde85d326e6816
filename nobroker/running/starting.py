"""From what is to run to something that runs, in this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nobroker.app.errors import ConfigError, ConfigProblem
from nobroker.app.serving import Service
from nobroker.running.config import RunConfig
from nobroker.running.sources import load
from nobroker.worker import WorkerStats

if TYPE_CHECKING:
    from nobroker.app.application import App

_log = logging.getLogger("nobroker.run")
_NAMES: Final = {"poll_interval": "polling_interval"}
"""As `Worker` calls them."""


def run(
    app: App,
    file: str | os.PathLike[str] | None,
    arguments: Mapping[str, Any],
    handle_signals: bool,
) -> WorkerStats:
    """`App.run`.

    Raises:
        ConfigError: what says how to run can't be as it is.
        TypeError: an argument that there is not.
    """
    loaded = load(file=file, arguments={_NAMES.get(name, name): value for name, value in arguments.items()})
    for warning in loaded.warnings:
        warn(warning)
    recurring = loaded.config.scheduler.recurring
    if recurring is not None:
        app.recurring_file(recurring)
    return single(app, loaded.config, handle_signals=handle_signals).run()


def single(app: App, config: RunConfig, *, handle_signals: bool = True) -> Service:
    """The only worker, with its only process being this one.

    Raises:
        ConfigError: more is asked for.
    """
    worker = config.workers[0]
    if len(config.workers) > 1 or worker.processes > 1 or worker.isolation != "thread":
        reason = "here runs one worker of one process, with its jobs in threads"
        raise ConfigError([ConfigProblem(reason, key="workers")])
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
    )


def warn(warning: str) -> None:
    """Say what may be a mistake of whoever configured this."""
    _log.warning("event=run.config_doubtful %s", warning)
