"""Limits of whole queues, as an application says them."""

from __future__ import annotations

from typing import Any

from nobroker.app.options import MOST_AT_ONCE, queue_name, whole
from nobroker.queue import Queue


class QueueLimits:
    """The part of `App` that has to do with limits of whole queues."""

    def __init__(self) -> None:
        super().__init__()
        self._queue_limits: dict[str, int | None] = {}

    def queue_limit(self: Any, queue: str, limit: int | None) -> None:
        """Let at most so many jobs of a queue run at once, in all processes.

        What is said is in force from when the application's queue is opened, or at once where it is open. It
        is kept there until something else is said; of several processes that say different things, the one
        that opened it last counts.

        Args:
            queue: its name.
            limit: 1 or more; None: any number.

        Raises:
            TypeError, ValueError: no name of a queue, or no such number.
        """
        queue_name("queue", queue)
        if limit is not None:
            whole(f"the limit of queue {queue!r}", limit, 1, MOST_AT_ONCE)
        self._queue_limits[queue] = limit
        opened = self._opened if self._testing is None else self._testing.queue
        if opened is not None:
            self._limit_queues(opened)

    def _limit_queues(self: Any, queue: Queue) -> None:
        """Put what was said in force, as far as it is not: a limit that stands is not written again."""
        if not self._queue_limits or self._options.get("read_only"):
            return
        in_force = queue.lane_limits
        for name, limit in self._queue_limits.items():
            if in_force.get(name) != limit:
                queue.lane_limit(name, limit)

    def _open(self: Any) -> Queue:
        """The application's own queue, opened."""
        queue = Queue(self.path, self.name, **self._options)
        try:
            self._limit_queues(queue)
        except BaseException:
            queue.close()
            raise
        return queue
