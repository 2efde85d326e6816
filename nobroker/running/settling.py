"""What becomes of jobs whose process has died. Done at once, and not when their leases end.

It is done in a child process of its own, for a moment: rules and hooks are people's code, and may start
threads, hang or crash. The supervisor must never; and it must not have a queue open when it forks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nobroker.app import envelope
from nobroker.app.errors import JobTimeoutError, WorkerDiedError
from nobroker.errors import JobNotFoundError, NotLeasedError
from nobroker.job import Job, JobState
from nobroker.running.tasks import LET_GO, TIMED_OUT, Lost
from nobroker.worker import Dead, Failed, RetryLater
from nobroker.worker.calling import error_text

if TYPE_CHECKING:
    from nobroker.app import App

_log = logging.getLogger("nobroker.running")


def describe(app: App, job: Job) -> tuple[str, float | None]:
    """The name of a leased job, and its timeout."""
    name = envelope.name_in(job.payload) or "?"
    definition = app.jobs.get(name)
    return name, None if definition is None else definition.options.timeout


def settle(app: App, lost: Lost) -> None:
    """Record what becomes of a job, unless somebody else has done so: then its lease is another one."""
    try:
        job = app.queue.get(lost.id)
        if job.state is not JobState.LEASED or job.lease_token != lost.token:
            return
        if lost.why == LET_GO:
            app.queue.release(job)
        else:
            _judge(app, job, lost)
    except (NotLeasedError, JobNotFoundError):  # in this moment
        return
    _log.info("event=job.settled id=%s why=%s: %s", lost.id, lost.why, lost.text)


def _judge(app: App, job: Job, lost: Lost) -> None:
    queue = app.queue
    if lost.why == TIMED_OUT:
        error: Exception = JobTimeoutError(lost.text)
    else:
        error = WorkerDiedError(lost.text, lost.code)
    try:
        result = app.runner.died(job, error)
    except RetryLater as verdict:
        queue.release(job, delay=verdict.delay, state=verdict.state)
    except Dead as verdict:
        queue.nack(job, error=_told(verdict.reason), dead=True, state=verdict.state)
    except Failed as verdict:
        queue.nack(
            job, error=_told(verdict.error), delay=verdict.delay, dead=verdict.dead, state=verdict.state
        )
    except Exception as broken:  # of a rule or a hook
        queue.nack(job, error=error_text(broken))
    else:
        queue.ack(job, result=result)


def _told(said: str | BaseException) -> str:
    return said if isinstance(said, str) else error_text(said)
