"""`nobroker backup`: a copy that is consistent while others work."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command("backup", "nobroker backup /backup/jobs-monday", "nobroker -q mails backup ./copy")
@click.argument("target", metavar="TARGET")
def cli(settings: Settings, target: str) -> None:
    """Copy the queue into the directory TARGET, which must be empty or not there, while others work on it."""
    from nobroker.cli import output

    with settings.look() as queue:
        made = str(queue.backup(target))
    if settings.json:
        output.document({"queue": settings.queue, "backup": made})
    else:
        output.line(made)
