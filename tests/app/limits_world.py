"""What the tests of limits share: a job with options, and what the queue is told of a call of it."""

from __future__ import annotations

from typing import Any

from nobroker import App


def define(app: App, **options: Any) -> Any:
    @app.job(name="job", **options)
    def job(account: Any = 1, **more: Any) -> None: ...

    return job


def key_of(account: Any = 1, **_: Any) -> Any:
    return account


def said(app: App, **options: Any) -> dict[str, Any] | None:
    """What the queue was told of a call's limits."""
    app.jobs.clear()
    found: dict[str, Any] | None = define(app, **options).perform_later(7, kind="x").job().limits
    return found


def total(app: App) -> int:
    return app.queue.stats().total
