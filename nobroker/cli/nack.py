"""`nobroker nack`: a job failed."""

from __future__ import annotations

import click

from nobroker.cli.ack import held
from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command(
    "nack",
    "nobroker nack invoice-42 --error 'printer on fire'",
    "nobroker nack invoice-42 --delay 600        # not before ten minutes",
    "nobroker nack invoice-42 --dead             # no more tries",
)
@click.argument("job_id", metavar="ID")
@click.option("--token", type=int, metavar="N", help="Only if this is still the current lease token.")
@click.option("--error", metavar="TEXT", help="What went wrong.  [default: nacked by hand]")
@click.option("--delay", type=float, metavar="SECONDS", help="In place of the backoff policy's.")
@click.option("--dead/--retry", default=None, help="Dead at once, or another try in any case.")
def cli(
    settings: Settings,
    job_id: str,
    token: int | None,
    error: str | None,
    delay: float | None,
    dead: bool | None,
) -> None:
    """Say that a leased job failed: it is tried again later, or is dead when it has no tries left."""
    from nobroker.cli import output

    with settings.open_existing() as queue:
        job = queue.nack(
            held(queue, job_id, token),
            error="nacked by hand" if error is None else error,
            delay=delay,
            dead=dead,
        )
    if settings.json:
        output.document(job.to_dict())
        return
    now = job.state.value
    if now == "ready":
        now = f"ready in {output.duration(max(0.0, job.available_at - output.now()))}"
    output.line(f"nacked {job.id}: {now}, attempt {job.attempts} of {job.max_attempts}")
