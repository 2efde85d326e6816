"""`nobroker purge`: delete all jobs."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.confirm import confirm
from nobroker.cli.settings import Settings


@command("purge", "nobroker -q mails purge", "nobroker -q mails purge --yes")
@click.option("--lane", help="Only this lane.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
def cli(settings: Settings, lane: str | None, yes: bool) -> None:
    """Delete every job, also those that are being worked on; the queue itself remains."""
    from nobroker.cli import output

    settings.must_exist()
    what = f"queue {settings.queue!r}" if lane is None else f"lane {lane!r} of queue {settings.queue!r}"
    confirm(f"delete every job of {what} in {settings.dir!r}?", yes)
    with settings.open_existing() as queue:
        count = queue.purge(lane=lane)
    if settings.json:
        output.document({"purged": count})
    else:
        output.line(f"purged {output.plural(count, 'job')}")
