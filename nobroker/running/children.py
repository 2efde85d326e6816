"""The children of a supervisor: starting them, telling them, seeing that they have ended."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Final

from nobroker.running.board import Board, InHand
from nobroker.running.cgroups import Groups
from nobroker.running.forking import Starter
from nobroker.running.keeper import EXIT_GRACE_S
from nobroker.running.plans import End, How, Place, no_room
from nobroker.running.tasks import WORK, Task

KILL_AFTER_S: Final = EXIT_GRACE_S + 1.0
"""A child has so long to come to its end once it has let go of its jobs; then it is killed."""

_log = logging.getLogger("nobroker.running")


@dataclass(eq=False, slots=True)
class Child:
    """A process.

    Attributes:
        place: what it stands in; None: it is here for a moment.
        started: monotonic seconds.
        stopping: whether it was told to end.
        kill_at: monotonic seconds.
        killed: whether we have killed it.
        overdue: the job for whose sake we did, because its time was up.
    """

    pid: int
    task: Task
    place: Place | None
    board: Board
    started: float
    stopping: bool = False
    kill_at: float = math.inf
    killed: bool = False
    overdue: InHand | None = None

    @property
    def ready(self) -> bool:
        return self.board.state != 0

    @property
    def isolated(self) -> bool:
        return self.place is not None and self.place.isolated

    @property
    def whole(self) -> bool:
        """Whether it was done with its jobs. If not, some code has ended it half-way, with whatever code."""
        return self.task.role != WORK or self.board.rest != 0

    @property
    def refusal(self) -> str | None:
        """Why it did not begin: what it takes with its start hooks is beyond its limit."""
        worker = self.task.worker
        return (
            None if worker is None or self.ready else no_room(worker.memory_recycle_at, self.board.baseline)
        )

    def useful(self, lived: float, enough: float) -> bool:
        """Whether its life shows that things work."""
        return self.board.finished > 0 or (self.ready and lived >= enough)


@dataclass(eq=False, slots=True)
class Post:
    """A place, and who stands in it.

    Attributes:
        start_at: monotonic seconds; when the next one is started, if there is none.
        over: nobody has to stand here any more.
    """

    place: Place
    child: Child | None = None
    start_at: float = 0.0
    over: bool = False


@dataclass(slots=True)
class Children:
    """All that are there.

    Attributes:
        shutdown_timeout: seconds that one may take for its jobs when it is told to stop.
    """

    starter: Starter
    shutdown_timeout: float
    living: list[Child] = field(default_factory=list)
    groups: Groups = field(default_factory=Groups)

    def start(self, task: Task, place: Place | None = None) -> Child:
        """Start one.

        Raises:
            OSError: the system can't.
        """
        started = time.monotonic()
        pid, board = self.starter.start(task)
        child = Child(pid, task, place, board, started)
        self.living.append(child)
        if task.role == WORK and task.worker is not None and task.worker.cgroup_memory_max is not None:
            self.groups.hold(pid, task.worker.cgroup_memory_max)
        _log.info("event=process.started role=%s name=%s pid=%d", task.role, task.name, pid)
        return child

    def tell(self, child: Child, number: int) -> None:
        """Send a signal. The pid is the child's until it is reaped."""
        if hasattr(os, "kill"):
            os.kill(child.pid, number)

    def stop(self, child: Child) -> None:
        """Have it end in good order; once is enough."""
        if not child.stopping:
            child.stopping = True
            child.kill_at = time.monotonic() + self.shutdown_timeout + KILL_AFTER_S
            self.tell(child, signal.SIGTERM)

    def stop_at_once(self, child: Child) -> None:
        """Have it let go of its jobs and end."""
        child.stopping = True
        child.kill_at = min(child.kill_at, time.monotonic() + KILL_AFTER_S)
        self.tell(child, signal.SIGQUIT)

    def kill(self, child: Child) -> None:
        child.killed, child.kill_at = True, math.inf
        self.tell(child, signal.SIGKILL)

    def kill_overdue(self, now: float) -> None:
        for child in self.living:
            if now >= child.kill_at:
                _log.error("event=process.killed pid=%d: it did not come to its end", child.pid)
                self.kill(child)

    def reap(self) -> list[tuple[Child, End]]:
        """Those that have ended since."""
        ended = []
        for child in list(self.living):
            try:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has waited for it: how it ended is not known
                pid, status = child.pid, 0x7F00
            if pid:
                self.living.remove(child)
                self.groups.release(child.pid)
                ended.append((child, End(os.waitstatus_to_exitcode(status), child.whole)))
        return ended


def told(child: Child, end: End, hand: list[InHand]) -> None:
    """Say in the log how a child ended, and with what in hand."""
    level = logging.INFO if child.stopping or end.how is not How.DIED else logging.ERROR
    running = ",".join(f"{one.job_class}:{one.id}" for one in hand if one.running) or "-"
    _log.log(
        level,
        "event=process.ended role=%s name=%s pid=%d how=%s lived=%.1f jobs=%d in_hand=%s",
        child.task.role,
        child.task.name,
        child.pid,
        str(end).replace(" ", "_"),
        time.monotonic() - child.started,
        child.board.finished,
        running,
    )
