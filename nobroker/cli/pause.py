"""`nobroker pause`: hand out no more jobs."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command("pause", "nobroker pause", "nobroker -q mails pause --lane newsletters")
@click.option("--lane", help="Only this lane.")
def cli(settings: Settings, lane: str | None) -> None:
    """Hand out no more jobs, in any process, until `nobroker resume`.

    Jobs can still be put in, and those that are being worked on can be finished.
    """
    from nobroker.cli import output

    with settings.open_existing() as queue:
        queue.pause(lane=lane)
    if settings.json:
        output.document({"queue": settings.queue, "lane": lane, "paused": True})
    else:
        output.line(f"paused {settings.queue}" + ("" if lane is None else f", lane {lane}"))
