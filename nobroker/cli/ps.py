"""`nobroker ps`: the processes that work on a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nobroker.cli.command import command
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker.running.info import ProcessInfo

COLUMNS = (
    "PID", "KIND", "STATE", "HOST", "UP", "SEEN", "MEMORY", "QUEUES", "JOBS", "ENDED", "FAILED",
    "RUNS NOW", "FOR",
)  # fmt: skip
RIGHT = ("PID", "UP", "SEEN", "MEMORY", "JOBS", "ENDED", "FAILED", "FOR")


@command("ps", "nobroker ps", "nobroker --json ps | jq '.[].memory'")
def cli(settings: Settings) -> None:
    """Show the processes that work on the queue, and the jobs that run in them.

    What is shown is what each said at its last sign of life (SEEN: so long ago), a few seconds ago at most.
    One that was killed is not shown. Only processes of `nobroker run` and of App.run say anything.
    """
    from nobroker.cli import output
    from nobroker.running.registry import processes

    settings.must_exist()
    found = by_supervisor(processes(settings.dir, settings.queue))
    now = output.now()
    if settings.json:
        output.document([as_dict(process, now) for process in found])
    elif found:
        output.table(COLUMNS, rows(found, now), right=RIGHT)
    else:
        output.note(f"no process works on queue {settings.queue!r}")


def by_supervisor(found: Sequence[ProcessInfo]) -> list[ProcessInfo]:
    """Each supervisor, and behind it those that it looks after."""
    begun = {process.id: process.started_at for process in found}

    def place(process: ProcessInfo) -> tuple[float, str, bool, float, str]:
        head = process.supervisor or process.id
        return begun.get(head, process.started_at), head, head != process.id, process.started_at, process.id

    return sorted(found, key=place)


def as_dict(process: ProcessInfo, now: float) -> dict[str, Any]:
    """All that is known of a process, with the ages of things."""
    jobs = [{**asdict(job), "running_for": _since(now, job.started_at)} for job in process.jobs]
    ages = {"age": _since(now, process.started_at), "seen_ago": _since(now, process.seen_at)}
    return {**asdict(process), **ages, "jobs": jobs}


def rows(found: Sequence[ProcessInfo], now: float) -> Iterator[tuple[str, ...]]:
    """The cells of `COLUMNS`: a row for each process, and one more for each job beyond the first."""
    for process in found:
        first, *rest = jobs(process, now) or [("-", "-")]
        yield (*cells(process, now), *first)
        for job in rest:
            yield (*[""] * (len(COLUMNS) - len(job)), *job)


def cells(process: ProcessInfo, now: float) -> tuple[str, ...]:
    from nobroker.cli import output

    busy = "-" if process.kind == "supervisor" else f"{len(process.jobs)}/{process.threads}"
    return (
        str(process.pid),
        process.kind,
        process.state + (", recycling" if process.recycling else ""),
        process.host,
        output.duration(_since(now, process.started_at)),
        output.duration(_since(now, process.seen_at)),
        "-" if process.memory is None else output.size(process.memory),
        ",".join(process.queues) or "-",
        busy,
        f"{process.finished:,}",
        f"{process.failed:,}",
    )


def jobs(process: ProcessInfo, now: float) -> list[tuple[str, str]]:
    """What runs in a process, and for how long."""
    from nobroker.cli import output
    from nobroker.cli.text import shorten

    return [
        (f"{shorten(job.job_class, 60)} {job.id}", output.duration(_since(now, job.started_at)))
        for job in process.jobs
    ]


def _since(now: float, moment: float) -> float:
    return max(0.0, now - moment)
