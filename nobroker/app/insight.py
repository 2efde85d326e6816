"""What an application tells of the processes that work for it, and of their jobs. `nobroker.running`, which
knows, is loaded when it is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobroker.running.info import ProcessInfo


class Insight:
    """The part of `App` that has to do with looking at what runs."""

    def processes(self: Any) -> list[ProcessInfo]:
        """The processes that work on this application's queue now, in the order in which they began."""
        from nobroker.running.registry import registered

        return registered(self.queue)
