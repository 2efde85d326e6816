"""What the tests of steps share: an application, and jobs that are interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import BackoffPolicy
from nobroker.app import App, BaseJob, JobHandle
from nobroker.app.serving import Service
from nobroker.app.steps import STEPS, Step
from nobroker.clock import ManualClock


class Killed(BaseException):
    """Ends a run without a word to the queue, as a kill does."""


def ran(runner: Any, job: Any) -> None:
    found = runner(job)
    if asyncio.iscoroutine(found):
        asyncio.run(found)


class World:
    """An application, and what its jobs did."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.app = App(
            directory, fsync=False, clock=self.clock, visibility_timeout=30, backoff=BackoffPolicy(base=0)
        )
        self.did: list[Any] = []

    def job(self, perform: Callable[..., Any], **options: Any) -> type[BaseJob]:
        return self.app.register(type("Import", (BaseJob,), {"perform": perform, **options}))

    def work(self) -> None:
        self.app.run(once=True, handle_signals=False)

    def run_and_kill(self) -> None:
        """One run that ends by `Killed`; then its lease ends."""
        job = self.app.queue.lease_one()
        assert job is not None
        with pytest.raises(Killed):
            ran(self.app.runner, job)
        self.clock.advance(31)

    def run_and_stop(self, job: type[BaseJob]) -> JobHandle[Any]:
        """One run in a worker that is stopped at the first item."""
        service = Service(self.app, once=True, handle_signals=False)
        self.at_first = service.stop
        handle = job.perform_later()
        service.run()
        self.at_first = lambda: None
        return handle

    def at_first(self) -> None:
        """Called by jobs of `counting` at their first item."""

    def state(self, handle: JobHandle[Any]) -> Any:
        return handle.job().job_state[STEPS]


def counting(world: World, items: int = 4, error_at: int | None = None, error: Any = None) -> Any:
    """A ``perform`` that counts in a step; an error comes once, before an item."""
    pending = [error]

    def perform(self: BaseJob) -> None:
        def count(step: Step) -> None:
            while step.cursor < items:
                if step.cursor == error_at and pending:
                    raise pending.pop()
                world.did.append(step.cursor)
                if step.cursor == 0:
                    world.at_first()
                step.advance()
                step.checkpoint()

        self.step("before", lambda step: world.did.append("before"))
        self.step("count", count, start=0)
        self.step("after", lambda step: world.did.append("after"))

    return perform
