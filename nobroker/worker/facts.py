"""The worker's log lines: logger ``nobroker.worker``, ``event=`` what happened, then ``name=value`` pairs.

The event and the values are on the record, too, as ``record.event`` and ``record.facts``. Values are shown as
one word, or by `repr`, so nothing in a job or an error can forge a line.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nobroker.job import Job

_log = logging.getLogger("nobroker.worker")


def job_failed(job: Job, error: str, after: Job) -> None:
    level = logging.ERROR if after.state == "dead" else logging.WARNING
    _say(level, "job_failed", id=job.id, attempt=job.attempts, of=job.max_attempts,
         state=str(after.state), error=error.partition("\n")[0])  # fmt: skip


def job_given_back(job: Job, delay_s: float, after: Job) -> None:
    """Its handler asked for that; no attempt was counted."""
    _say(logging.INFO, "job_given_back", id=job.id, attempt=job.attempts, delay_s=delay_s,
         state=str(after.state))  # fmt: skip


def lease_lost(job: Job, during: str) -> None:
    """Somebody else may have run, or be running, the job."""
    _say(logging.WARNING, "lease_lost", id=job.id, attempt=job.attempts, during=during)


def job_gone(job: Job, during: str) -> None:
    """Purged, or finished elsewhere and forgotten: there is nothing left to record."""
    _say(logging.WARNING, "job_gone", id=job.id, during=during)


def result_not_stored(job: Job, error: BaseException) -> None:
    _say(logging.WARNING, "result_not_stored", id=job.id, error=str(error))


def trouble(doing: str, error: BaseException, again_in_s: float) -> None:
    _say(logging.WARNING, "queue_trouble", doing=doing, error=f"{type(error).__name__}: {error}",
         again_in_s=round(again_in_s, 3))  # fmt: skip


def not_recorded(doing: str, jobs: Sequence[Job], error: BaseException) -> None:
    """Their leases end by themselves; then the jobs are delivered again."""
    _say(logging.ERROR, "not_recorded", doing=doing, jobs=_some(jobs),
         error=f"{type(error).__name__}: {error}")  # fmt: skip


def not_durable(count: int, error: BaseException) -> None:
    _say(logging.ERROR, "acks_not_durable", count=count, error=f"{type(error).__name__}: {error}")


def released(jobs: Sequence[Job]) -> None:
    _say(logging.INFO, "released", jobs=_some(jobs))


def result_discarded(job: Job) -> None:
    """The handler came back after its job had been released."""
    _say(logging.WARNING, "result_discarded", id=job.id)


def queue_closed() -> None:
    _say(logging.INFO, "queue_closed")


def started(slots: int) -> None:
    _say(logging.INFO, "started", concurrency=slots)


def stopping(why: str, running: int) -> None:
    _say(logging.INFO, "stopping", why=why, running=running)


def letting_go(running: int) -> None:
    _say(logging.WARNING, "letting_go", running=running)


def stopped(counts: dict[str, int]) -> None:
    _say(logging.INFO, "stopped", **counts)


def failing(error: BaseException, first: bool) -> None:
    """`run()` raises the first; the others are seen here only."""
    _say(logging.ERROR, "worker_failing", error=f"{type(error).__name__}: {error!r}", raised=first)


def forked_child_returned(job: Job) -> None:
    _say(logging.ERROR, "forked_child_returned", id=job.id)


def word(value: object) -> str:
    """A value in a line of the log, as one word with nothing in it that could begin another."""
    text = f"{value}"
    return text if text.isprintable() and " " not in text and text else repr(text)


def _some(jobs: Sequence[Job]) -> list[str]:
    ids = [job.id for job in jobs[:10]]
    return ids if len(jobs) <= 10 else [*ids, f"and {len(jobs) - 10} more"]


def _say(level: int, event: str, **facts: object) -> None:
    if _log.isEnabledFor(level):
        text = " ".join(f"{name}={word(value)}" for name, value in {"event": event, **facts}.items())
        _log.log(level, "%s", text, extra={"event": event, "facts": facts})
