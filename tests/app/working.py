"""Working jobs off in tests."""

from __future__ import annotations

from typing import Any

from nobroker import App, WorkerStats
from nobroker.clock import ManualClock


def work(app: App, **options: Any) -> WorkerStats:
    """Run what is due."""
    return app.run(once=True, handle_signals=False, poll_interval=0.01, **options)


def work_on(app: App, clock: ManualClock, rounds: int, seconds: float = 400.0) -> None:
    """Run what is due, again and again, with time passing in between: longer than any backoff."""
    for _ in range(rounds):
        work(app)
        clock.advance(seconds)
