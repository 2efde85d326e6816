"""One byte says where a job is."""

from __future__ import annotations

from typing import Final

NONE: Final = 0
"""Not (or no longer) known."""
READY: Final = 1
"""Waits in a run of ordinary jobs; due."""
DELAYED: Final = 2
"""Waits in a run of ordinary jobs; not due yet."""
RETRY: Final = 3
"""Waits with an entry of its own (it was leased before, or rescheduled); due."""
RETRY_LATER: Final = 4
"""As RETRY, not due yet."""
LEASED: Final = 5
DONE: Final = 6
DEAD: Final = 7

COUNT: Final = 8
WAITING: Final = (READY, DELAYED, RETRY, RETRY_LATER)
