"""`nobroker show`: all there is to know of one job."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command("show", "nobroker show invoice-42", "nobroker --json show invoice-42 | jq .result")
@click.argument("job_id", metavar="ID")
def cli(settings: Settings, job_id: str) -> None:
    """Show one job: payload, state, attempts, error, result."""
    from nobroker.cli import output

    with settings.look() as queue:
        job = queue.get(job_id)
    if settings.json:
        output.document(job.to_dict())
    else:
        output.job(job)
