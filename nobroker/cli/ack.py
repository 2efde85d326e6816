"""`nobroker ack`: a job is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.payloads import parse_payload
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import Job, Queue


def held(queue: Queue, job_id: str, token: int | None) -> Job | str:
    """Return what a verb is to be applied to: the job under this token, or with whoever holds it now."""
    if token is None:
        return job_id
    from nobroker import Job

    return Job.from_dict({**queue.get(job_id).to_dict(), "lease_token": token})


@command(
    "ack",
    "nobroker ack nb-0123456789abc-7",
    """nobroker ack invoice-42 --token 12 --result '{"pages": 3}'""",
)
@click.argument("job_id", metavar="ID")
@click.option("--token", type=int, metavar="N", help="Only if this is still the current lease token.")
@click.option("--result", type=parse_payload, metavar="JSON", help="Kept with the job until it is forgotten.")
def cli(settings: Settings, job_id: str, token: int | None, result: Any) -> None:
    """Say that a leased job is done."""
    from nobroker.cli import output

    with settings.open_existing() as queue:
        queue.ack(held(queue, job_id, token), result=result)
    if settings.json:
        output.document({"acked": job_id})
    else:
        output.line(f"acked {job_id}")
