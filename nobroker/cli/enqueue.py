"""`nobroker enqueue`: put a job in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.payloads import parse_payload, read_argument
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import Job, Queue

BATCH = 10_000  # jobs of one call: large enough for the disk, small enough to show ids as they come


@command(
    "enqueue",
    """nobroker enqueue '{"mail": "ann@example.org"}'""",
    "nobroker enqueue hello --priority 5 --delay 60",
    "nobroker enqueue 42 --id invoice-42          # again adds nothing",
    "cat payload.json | nobroker -q mails enqueue -",
)
@click.argument("payload")
@click.option("--priority", type=int, default=0, help="Higher ones are delivered first.  [default: 0]")
@click.option("--delay", type=float, default=0.0, metavar="SECONDS", help="Not to be delivered sooner.")
@click.option("--run-at", type=float, metavar="TIME", help="Seconds since the epoch, in place of a delay.")
@click.option("--max-attempts", type=int, metavar="N", help="Tries before it is dead.")
@click.option("--expires-in", type=float, metavar="SECONDS", help="Dead if it was not leased by then.")
@click.option("--id", "job_id", metavar="ID", help="Your own id; a known id adds nothing.")
@click.option("--lane", default="", help="Lane of the queue.")
@click.option("--metadata", type=parse_payload, metavar="JSON", help="Kept with the job, for your own use.")
@click.option(
    "--count", type=click.IntRange(min=1), default=1, metavar="N", help="So many copies, in batches."
)
def cli(settings: Settings, payload: str, count: int, **options: Any) -> None:
    """Put a job in and print its id, once it is on the disk.

    PAYLOAD is strict JSON; whatever is not (also NaN) is taken as text. `-` reads it from standard input.
    """
    from nobroker.cli import output

    if count > 1 and options["job_id"] is not None:
        raise click.UsageError("--id names one job; it does not go with --count")
    value = parse_payload(read_argument(payload))
    with settings.open() as queue:
        added = _add(queue, value, count, options)
        if settings.json:
            output.document_of_many(job.to_dict() for job in added)
            return
        for job in added:
            output.line(job.id)
            if not job.created:
                output.note("it was there before; nothing was added")


def _add(queue: Queue, value: Any, count: int, options: dict[str, Any]) -> Iterator[Job]:
    if count == 1:
        yield queue.enqueue(value, **options)
        return
    shared = {name: option for name, option in options.items() if name not in ("job_id", "delay")}
    while count > 0:
        some = min(count, BATCH)
        delays = [options["delay"]] * some if options["delay"] else None
        yield from queue.enqueue_many([value] * some, delays=delays, **shared)
        count -= some
