"""`nobroker drop`: delete a queue."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.confirm import confirm
from nobroker.cli.settings import Settings


@command("drop", "nobroker drop mails", "nobroker drop mails --yes")
@click.argument("name", metavar="NAME")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
def cli(settings: Settings, name: str, yes: bool) -> None:
    """Delete the queue NAME with its jobs and its files."""
    from nobroker import drop_queue
    from nobroker.cli import output

    settings.must_exist(name)
    confirm(f"delete queue {name!r} in {settings.dir!r} for good?", yes)
    drop_queue(settings.dir, name)
    if settings.json:
        output.document({"dropped": name})
    else:
        output.line(f"dropped {name}")
