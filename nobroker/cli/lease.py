"""`nobroker lease`: take jobs to work on."""

from __future__ import annotations

import click

from nobroker.cli.command import command
from nobroker.cli.failures import DONE, NOTHING_THERE
from nobroker.cli.settings import Settings


@command(
    "lease",
    "nobroker lease                      # one job",
    "nobroker lease --count 10 --visibility-timeout 300",
    "nobroker --json lease --wait 30 && echo got one",
)
@click.option("-n", "--count", type=int, default=1, metavar="N", help="At most so many.  [default: 1]")
@click.option(
    "--visibility-timeout",
    "--timeout",
    "visibility_timeout",
    type=float,
    metavar="SECONDS",
    help="They are yours for so long; then others get them.  [default: 30]",
)
@click.option("--wait", type=float, default=0.0, metavar="SECONDS", help="Wait so long for the first.")
@click.option("--lane", "lanes", multiple=True, help="Only of this lane; may be repeated.")
def cli(
    settings: Settings, count: int, visibility_timeout: float | None, wait: float, lanes: tuple[str, ...]
) -> int:
    """Take the next jobs and print them: id, lease token, payload.

    Say `nobroker ack ID` when the work is done, `nobroker nack ID` when it failed.
    3 is the exit code of nothing to lease.
    """
    from nobroker.cli import output

    found = []
    if settings.exists():
        with settings.open() as queue:
            found = queue.lease(
                count, visibility_timeout=visibility_timeout, wait=wait, lanes=list(lanes) if lanes else None
            )
    else:
        _check_name(settings)
    if settings.json:
        output.document_of_many(job.to_dict() for job in found)
    elif found:
        rows = ((job.id, job.lease_token, output.display(job.payload)) for job in found)
        output.table(("ID", "TOKEN", "PAYLOAD"), rows, right=("TOKEN",))
    else:
        output.note("nothing to lease")
    return DONE if found else NOTHING_THERE


def _check_name(settings: Settings) -> None:
    """Tell a queue that is not there from a name that no queue can have."""
    from nobroker import StorageError

    try:
        settings.open(read_only=True).close()
    except StorageError:
        return
