"""`nobroker list`: the jobs themselves."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings

SCREENFUL = 100


@command(
    "list",
    "nobroker list",
    "nobroker list --state dead --limit 20",
    "nobroker --json list --state leased | jq -r '.[].id'",
)
@click.option(
    "--state",
    type=click.Choice(["ready", "leased", "done", "dead"], case_sensitive=False),
    help="Only these.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option("--lane", help="Only this lane.")
def cli(settings: Settings, state: str | None, limit: int | None, lane: str | None) -> None:
    """Show jobs in the order they were put in; with `--state ready`, in the order they will be delivered.

    Those of the lane `nobroker.watch` are records of batches and chains, which no worker takes.
    """
    from nobroker.cli import output

    screen = limit is None and not settings.json and output.on_terminal()
    with settings.look() as queue:
        found = queue.list_jobs(state, limit=SCREENFUL + 1 if screen else limit, lane=lane)
    if settings.json:
        output.document_of_many(job.to_dict() for job in found)
        return
    output.jobs(found[:SCREENFUL] if screen else found)
    if screen and len(found) > SCREENFUL:
        output.note(f"the first {SCREENFUL}; there are more (--limit)")
