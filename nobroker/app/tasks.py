"""One recurring task, as it was said, in code or in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from nobroker.app.definition import Definition, PreparedJob
from nobroker.app.errors import RecurringError
from nobroker.app.rules import seconds_of
from nobroker.app.schedules import Schedule, schedule_of
from nobroker.errors import NobrokerError

MISSED: Final = ("once", "skip", "all")
GRACE_S: Final = 60.0
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|h|d)")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Task(NamedTuple):
    """What was said of a recurring task.

    Attributes:
        name: of the task.
        prepared: the call.
        schedule: when.
        missed: what becomes of ticks at which no scheduler ran.
        grace: seconds for which a tick counts as on time.
    """

    name: str
    prepared: PreparedJob
    schedule: Schedule
    missed: str
    grace: float


def task_of(name: str, definition: Definition, said: Mapping[str, Any]) -> Task:
    """A task.

    Args:
        said: schedule, timezone, args, kwargs, queue, priority, missed, grace; None: not said.

    Raises:
        RecurringError: with the task and the key.
    """
    if type(name) is not str or not 1 <= len(name) <= 100 or not name.isprintable():
        raise RecurringError(f"its name has 1 to 100 printable characters, not {name!r:.130}", key="name")

    key = "schedule"
    try:
        schedule = schedule_of(said["schedule"], said.get("timezone"))
        key = "missed"
        missed = said.get("missed") or "once"
        if missed not in MISSED:
            raise ValueError(f"it is one of {', '.join(MISSED)}, not {missed!r:.60}")
        key = "grace"
        grace = _grace(said.get("grace"))
        prepared = definition.plain
        for key in ("queue", "priority"):
            if said.get(key) is not None:
                prepared = prepared.set(**{key: said[key]})
        key = "args"
        built = prepared.build(*said.get("args") or (), **said.get("kwargs") or {})
        definition.app._enqueuer.check(built)
    except (NobrokerError, TypeError, ValueError) as error:
        if isinstance(error, ImportError):
            raise
        raise RecurringError(str(error), task=name, key=getattr(error, "key", key)) from error
    return Task(name, built, schedule, missed, grace)


def _grace(value: Any) -> float:
    if type(value) is str:
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise ValueError(f"it is seconds, or such as '90s', '5m', '2h', '1d', not {value!r:.60}")
        value = float(found[1]) * _UNIT_S[found[2]]
    seconds = seconds_of("grace", GRACE_S if value is None else value)
    if seconds < 1:
        raise ValueError("it is at least 1 second: no tick is enqueued in the very moment")
    return seconds
