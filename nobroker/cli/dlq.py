"""`nobroker dlq`: the jobs that ran out of tries."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings

ALL = "\0all"  # no id: ids have no control characters


@command(
    "dlq",
    "nobroker dlq",
    "nobroker dlq --requeue                      # all of them, attempts start at 0 again",
    "nobroker dlq --requeue invoice-42",
    "nobroker dlq --drop --older-than 604800",
)
@click.option(
    "--requeue", is_flag=False, flag_value=ALL, metavar="[ID]", help="Try all dead jobs again, or one."
)
@click.option("--drop", is_flag=False, flag_value=ALL, metavar="[ID]", help="Delete all dead jobs, or one.")
@click.option("--older-than", type=float, metavar="SECONDS", help="With --drop: only those dead for longer.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most so many.")
@click.option("--lane", help="Show only this lane.")
def cli(
    settings: Settings,
    requeue: str | None,
    drop: str | None,
    older_than: float | None,
    limit: int | None,
    lane: str | None,
) -> None:
    """Show the dead-letter queue: jobs that ran out of tries, and why. Or try them again, or delete them."""
    from nobroker.cli import output

    if requeue is not None and drop is not None:
        raise click.UsageError("--requeue and --drop exclude each other")
    if older_than is not None and drop is None:
        raise click.UsageError("--older-than goes with --drop")
    if requeue is None and drop is None:
        _show(settings, limit, lane)
        return
    if lane is not None or limit is not None:
        raise click.UsageError(
            "--lane and --limit choose what is shown; they don't go with --requeue or --drop"
        )
    with settings.open_existing() as queue:
        if requeue is not None:
            done = {"requeued": queue.requeue_dead(None if requeue == ALL else requeue)}
        else:
            done = {"dropped": queue.drop_dead(None if drop == ALL else drop, older_than=older_than)}
    if settings.json:
        output.document(done)
    else:
        for verb, count in done.items():
            output.line(f"{verb} {output.plural(count, 'job')}")


def _show(settings: Settings, limit: int | None, lane: str | None) -> None:
    from nobroker.cli import output

    with settings.look() as queue:
        dead = queue.dlq(limit=limit, lane=lane)
    if settings.json:
        output.document_of_many(job.to_dict() for job in dead)
    elif dead:
        output.jobs(dead)
    else:
        output.note("the dead-letter queue is empty")
