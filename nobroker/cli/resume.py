"""`nobroker resume`: hand out jobs again."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command("resume", "nobroker resume", "nobroker -q mails resume --lane newsletters")
@click.option("--lane", help="Only this lane.")
def cli(settings: Settings, lane: str | None) -> None:
    """Hand out jobs again after `nobroker pause`."""
    from nobroker.cli import output

    with settings.open_existing() as queue:
        queue.resume(lane=lane)
    if settings.json:
        output.document({"queue": settings.queue, "lane": lane, "paused": False})
    else:
        output.line(f"resumed {settings.queue}" + ("" if lane is None else f", lane {lane}"))
