"""Whether this process is a worker of somebody: then it starts no workers of its own.

The mark is in memory, for what is forked, and in the environment, for programs that a job starts. What made
the parent a supervisor is taken out of the environment.
"""

from __future__ import annotations

import os
from typing import Final

from nobroker.app.errors import NestedRunError
from nobroker.running import notify

MARK: Final = "_NOBROKER_INSIDE"
"""In the environment of jobs: the pid of the supervisor."""
SWITCHES: Final = (
    "NOBROKER_PROCESSES",
    "NOBROKER_ISOLATION",
    "NOBROKER_MEMORY_RECYCLE_AT",
    "NOBROKER_MAX_JOBS",
    "NOBROKER_CGROUP_MEMORY_MAX",
)
"""What makes a program a supervisor, in its environment: all that `plans.needs_supervisor` looks at."""

_inside: list[int] = []


def enter(supervisor: int) -> None:
    """This process is a child of a supervisor from now on."""
    _inside.append(supervisor)
    for name in SWITCHES:
        os.environ.pop(name, None)
    os.environ[MARK] = str(supervisor)
    notify.forget()


def refuse() -> None:
    """Raise if this is inside a worker process.

    Raises:
        NestedRunError: it is.
    """
    found = str(_inside[-1]) if _inside else os.environ.get(MARK)
    if found is not None:
        raise NestedRunError(
            f"this runs inside a worker process of the supervisor {found}, which starts no further processes;"
            f" run one process here (processes=1), or start the program without {MARK} in its environment"
        )
