"""Running a job where it is called."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from typing import Any

from nobroker.app.context import JobContext
from nobroker.app.definition import Definition
from nobroker.app.judging import Discarded
from nobroker.app.runner import Runner
from nobroker.worker import Failed


def perform(runner: Runner, definition: Definition, context: JobContext) -> Any:
    """Run it: what it returns, or raises. Of an async job, the coroutine is run to its end.

    Raises:
        Exception: what the job raised, unless a rule made a result of it.
    """
    try:
        found = runner.run(definition, context, stored=False)
        if definition.is_async:
            found = run_to_end(found)
        return None if isinstance(found, Discarded) else found
    except Failed as verdict:
        if not isinstance(verdict.error, BaseException):
            raise
        error = verdict.error
    raise error


def run_to_end(work: Any) -> Any:
    """What a coroutine gives. Where a loop runs in this thread: on another one, in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def main() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:  # raised again below, in the thread that called
            failure.append(error)

    thread = threading.Thread(target=copy_context().run, args=(main,), name="nobroker-perform-now")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
