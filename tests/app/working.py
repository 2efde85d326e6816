"""Working jobs off in tests."""

from __future__ import annotations

from typing import Any

from nobroker import App, WorkerStats, current_job
from nobroker.app import timeouts
from nobroker.clock import ManualClock


def work(app: App, **options: Any) -> WorkerStats:
    """Run what is due."""
    return app.run(once=True, handle_signals=False, poll_interval=0.01, **options)


def work_on(app: App, clock: ManualClock, rounds: int, seconds: float = 400.0) -> None:
    """Run what is due, again and again, with time passing in between: longer than any backoff."""
    for _ in range(rounds):
        work(app)
        clock.advance(seconds)


def raising(app: App, seen: list[Any], *errors: Any, **options: Any) -> Any:
    """A job that raises these in turn, then returns. Its runs are noted: attempts and executions."""
    left = list(errors)

    @app.job(name="job", **options)
    def job() -> str:
        its = current_job()
        seen.append((its.attempts, its.executions))
        if left:
            raise left.pop(0)
        return "returned"

    return job


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types at every depth."""
    if type(one) is not type(other) or one != other:
        return one is other
    if isinstance(one, dict):
        pairs = zip(sorted(one, key=repr), sorted(other, key=repr), strict=True)
        return all(type(a) is type(b) and same(one[a], other[b]) for a, b in pairs)
    if isinstance(one, (list, tuple)):
        return all(map(same, one, other))
    if isinstance(one, (set, frozenset)):
        return all(map(same, sorted(one, key=repr), sorted(other, key=repr)))
    return True


def time_is_up(*jobs: str) -> None:
    """Let the time of running jobs be up now, instead of waiting for it."""
    for watch in list(timeouts._watchdog._watches.values()):
        if watch.context.job_class in jobs:
            watch.due = 0.0
    timeouts._watchdog._bell.put(timeouts._Note.LOOK)
