"""`nobroker cancel`: a job is no longer wanted."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command("cancel", "nobroker cancel invoice-42")
@click.argument("job_id", metavar="ID")
def cli(settings: Settings, job_id: str) -> None:
    """Take back a job.

    One that waits is gone. One that somebody works on is flagged, and they see it when they next extend their
    lease; it is never delivered again. Nothing happens to one that is done or dead.
    """
    from nobroker.cli import output

    with settings.open_existing() as queue:
        job = queue.cancel(job_id)
    if settings.json:
        output.document(job.to_dict())
    elif job.state == "leased":
        output.line(f"{job.id} is being worked on; its worker is told to stop")
    elif job.last_error == "cancelled":
        output.line(f"cancelled {job.id}")
    else:
        output.line(f"{job.id} is {job.state.value} already; nothing was changed")
