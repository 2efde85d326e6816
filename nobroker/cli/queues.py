"""`nobroker queues`: what queues a directory has."""

from __future__ import annotations

import os
from typing import Any

import click

from nobroker.cli.command import command
from nobroker.cli.failures import CommandError, one_line
from nobroker.cli.settings import Settings


@command("queues", "nobroker queues", "nobroker --dir /var/lib/app/jobs queues --long")
@click.option("-l", "--long", "detailed", is_flag=True, help="With their counts.")
def cli(settings: Settings, detailed: bool) -> None:
    """Print the names of the queues in the directory."""
    from nobroker.cli import output

    if not os.path.isdir(settings.dir):
        raise CommandError(
            f"no directory {settings.dir!r}; say where the queues are with --dir or NOBROKER_DIR"
        )
    names = settings.names()
    if detailed:
        _with_counts(settings, names)
    elif settings.json:
        output.document(names)
    else:
        for name in names:
            output.line(name)


def _with_counts(settings: Settings, names: list[str]) -> None:
    from nobroker.cli import output

    found = [_counts(settings, name) for name in names]
    if settings.json:
        output.document(found)
        return
    columns = ("queue", *output.COUNTS, "paused", "error")
    rows = (tuple("" if row.get(column) is None else row[column] for column in columns) for row in found)
    output.table([column.upper() for column in columns], rows, right=[name.upper() for name in output.COUNTS])


def _counts(settings: Settings, name: str) -> dict[str, Any]:
    """Return the counts of one queue, or what is wrong with it: one bad queue hides no other."""
    from nobroker import NobrokerError
    from nobroker.cli import output

    try:
        with settings.look(name) as queue:
            return {"queue": name, **output.stats_dict(queue.stats()), "error": None}
    except (NobrokerError, CommandError) as error:
        return {"queue": name, "error": one_line(error)}
