"""What the tests of `App.testing` share: an application with jobs of many kinds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nobroker import BackoffPolicy
from nobroker.app import App, BaseJob, Rescue, Retry, current_job


class World:
    """An application with jobs of many kinds, and what they did."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.app = App(directory, backoff=BackoffPolicy(base=10, jitter=0))
        self.did: list[Any] = []
        self.errors: list[Exception] = []

        @self.app.job(name="send", queue="mails")
        def send(to: Any, *, locale: str = "en") -> Any:
            self.did.append((to, locale))
            return to

        retry, rescue = [Retry(ConnectionError, attempts=3, wait=60)], [Rescue(KeyError, _rescued)]

        @self.app.job(name="shaky", retry=retry, rescue=rescue)
        def shaky() -> str:
            self.did.append(current_job().executions)
            if self.errors:
                raise self.errors.pop(0)
            return "done"

        @self.app.job(name="later")
        async def later(number: int) -> int:
            await asyncio.sleep(0)
            if number:
                later.perform_later(number - 1)
            self.did.append(number)
            return number

        @self.app.register
        class Report(BaseJob):
            job_name = "Report"

            def perform(job, day: Any) -> None:
                self.did.append(day)
                send.perform_later(day)

        self.send, self.shaky, self.later, self.report = send, shaky, later, Report


def _rescued(job: Any, error: BaseException) -> str:
    return "rescued"
