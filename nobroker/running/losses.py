"""Jobs whose process has gone, and jobs whose process must go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from nobroker.running.board import InHand
from nobroker.running.children import Child, Children
from nobroker.running.plans import End, How
from nobroker.running.tasks import DIED, LET_GO, SETTLE, TIMED_OUT, Lost, Task

KILL_GRACE_S: Final = 1.0
"""In a process of its own, a job whose time is up is killed after so long: first its thread may see to it."""
_SETTLE_S: Final = 30.0
"""Who says what becomes of lost jobs has so long for it."""

_log = logging.getLogger("nobroker.running")


class Losses:
    """The jobs that are lost, until a child of its own has said what becomes of them.

    Args:
        settling: makes the task of that child.
    """

    def __init__(self, children: Children, settling: Callable[[tuple[Lost, ...]], Task]) -> None:
        self._children = children
        self._settling = settling
        self._lost: list[Lost] = []

    def __bool__(self) -> bool:
        return bool(self._lost)

    def take_up(self, child: Child, end: End, hand: Sequence[InHand]) -> bool:
        """See to the jobs of a process that has gone; whether one ran, which may have ended it."""
        if child.isolated:
            # A job that had just ended may not have been recorded; if it has, nothing comes of this.
            self._lost += [_lost(child, end, one) for one in hand if one.running or end.how is How.DIED]
        elif child.killed:  # it could not let go of them itself
            self._lost += [_lost(child, end, one) for one in hand if one.running]
        return child.ready and any(one.running for one in hand)

    def kill_timed_out(self, now: float) -> None:
        """Where each job has its process for itself: end those whose time is up."""
        for child in self._children.living:
            if not child.isolated or child.killed:
                continue
            for one in child.board.in_hand():
                if one.running and one.timeout is not None and now > one.started + one.timeout + KILL_GRACE_S:
                    child.overdue = one
                    _log.warning(
                        "event=job.killed class=%s id=%s pid=%d timeout=%g",
                        one.job_class,
                        one.id,
                        child.pid,
                        one.timeout,
                    )
                    self._children.kill(child)

    def settle(self, now: float) -> None:
        """Have it said what becomes of what is lost; one child at a time."""
        if not self._lost or any(child.task.role == SETTLE for child in self._children.living):
            return
        lost, self._lost = tuple(self._lost), []
        try:
            child = self._children.start(self._settling(lost))
        except OSError as error:
            _log.error(
                "event=process.not_started name=settle error=%s: the leases of %d jobs end by themselves",
                error,
                len(lost),
            )
        else:
            child.kill_at = now + _SETTLE_S


def _lost(child: Child, end: End, one: InHand) -> Lost:
    overdue = child.overdue
    if overdue is not None and overdue.token == one.token and one.timeout is not None:
        why, text = TIMED_OUT, f"{one.job_class} ran longer than {one.timeout:g} s; its process was killed"
    elif child.killed:
        why, text = LET_GO, f"process {child.pid} did not end in time"
    else:
        why, text = DIED, f"{one.job_class}: its process {child.pid} ended with {end} under it"
    return Lost(id=one.id, token=one.token, why=why, code=end.code, text=text)
