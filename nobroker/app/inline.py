"""Running a job where it is called."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from typing import Any

from nobroker.app.context import JobContext
from nobroker.app.definition import Definition
from nobroker.app.handle import discard_reason
from nobroker.app.runner import Runner
from nobroker.worker import Failed


def perform(runner: Runner, definition: Definition, context: JobContext) -> Any:
    """Run it: what it returns, or raises. Of an async job, the coroutine is run to its end.

    Raises:
        Exception: what the job raised, unless a rule made a result of it.
    """
    try:
        found = runner.run(definition, context)
        if definition.is_async:
            found = run_to_end(found)
    except Failed as verdict:
        if isinstance(verdict.error, BaseException):
            raise verdict.error from verdict.error.__cause__
        raise
    return None if discard_reason(found) is not None else runner.unpack_result(found)


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
