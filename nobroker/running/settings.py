"""All that can be said of a run: one entry for each setting, whoever says it."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import Any, Final, NamedTuple

from nobroker.running.config import (
    ISOLATIONS,
    ORDERS,
    START_METHODS,
    RunConfig,
    SchedulerConfig,
    WorkerConfig,
)
from nobroker.running.kinds import Bytes, Choice, FileName, Flag, Kind, Never, Queues, Seconds, Whole

PREFIX: Final = "NOBROKER_"


class Setting(NamedTuple):
    """One setting.

    Attributes:
        key: in the file.
        kind: what it may be.
        name: of the argument, where it is not the key.
        help: a line about it.
    """

    key: str
    kind: Kind
    help: str
    name: str = ""

    @property
    def argument(self) -> str:
        return self.name or self.key

    @property
    def variable(self) -> str:
        """Of the environment."""
        return PREFIX + self.argument.upper()

    @property
    def option(self) -> str:
        """Of the command line."""
        return "--" + self.argument.replace("_", "-")


WORKER: Final = (
    Setting("queues", Queues(), "Queues to serve: names, patterns such as beta*, and *."),
    Setting("order", Choice(ORDERS), "Which queue comes first."),
    Setting("threads", Whole(1, 1024), "Jobs at a time in each process."),
    Setting("processes", Whole(1, 1024), "How many processes."),
    Setting("batch", Whole(1, 10_000), "Jobs that a thread takes at once, for tiny jobs."),
    Setting("polling_interval", Seconds(), "Between looks at empty queues, should no word of a job come."),
    Setting("isolation", Choice(ISOLATIONS), "What a job has for itself while it runs."),
    Setting("memory_recycle_at", Never(Bytes()), "Memory at which a process is replaced."),
    Setting("memory_confirmations", Whole(1, 1_000), "Looks in a row that must find it there."),
    Setting("memory_interval", Seconds(), "Between these looks."),
    Setting("max_jobs", Never(Whole(1, 2**53)), "Jobs after which a process is replaced."),
    Setting("cgroup_memory_max", Never(Bytes()), "Memory that the kernel holds each process to."),
)
SCHEDULER: Final = (
    Setting("enabled", Flag(), "Whether recurring tasks are enqueued here.", "scheduler"),
    Setting("recurring", Never(FileName(), word=None), "File of recurring tasks."),
)
TOP: Final = (
    Setting("start_method", Choice(START_METHODS), "How processes are made."),
    Setting("shutdown_timeout", Seconds(zero=True), "For jobs to end once all is asked to stop."),
    Setting("heartbeat_interval", Seconds(), "Between signs of life."),
    Setting(
        "quiet_then_exit", Flag(), "Whether a process that was told to be quiet ends when its jobs have."
    ),
)
ALL: Final = (*WORKER, *SCHEDULER, *TOP)
TOP_KEYS: Final = ("workers", "scheduler", *[setting.key for setting in TOP])
OTHER_VARIABLES: Final = ("CONFIG", "DIR", "ENV", "FORCE_QUEUE", "TRACEBACK")
"""Known ones that are no settings, without the prefix."""


def defaults() -> dict[str, Any]:
    """By argument."""
    said = {field.name: getattr(RunConfig(), field.name) for field in fields(RunConfig)}
    worker, scheduler = WorkerConfig(), SchedulerConfig()
    found = {setting.argument: getattr(worker, setting.key) for setting in WORKER}
    found |= {setting.argument: getattr(scheduler, setting.key) for setting in SCHEDULER}
    found |= {setting.argument: said[setting.key] for setting in TOP}
    if not can_fork():
        found["start_method"] = "spawn"
    return found


def can_fork() -> bool:
    """macOS has forks, whose children may not use the system's own libraries."""
    return hasattr(os, "fork") and sys.platform != "darwin"
