"""`nobroker work`: run a function over the jobs."""

from __future__ import annotations

import logging
from typing import Any

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command(
    "work",
    "nobroker work tasks:send_mail",
    "nobroker -q mails work tasks:send_mail -c 4 --visibility-timeout 300",
    "nobroker work tasks:resize --max-jobs 100 --idle-timeout 5",
)
@click.argument("handler", metavar="MODULE:FUNCTION")
@click.option("-c", "--concurrency", type=int, default=1, metavar="N", help="Threads.  [default: 1]")
@click.option("--max-jobs", type=int, metavar="N", help="End after so many.")
@click.option("--idle-timeout", type=float, metavar="SECONDS", help="End after so long without a job.")
@click.option(
    "--batch", type=int, default=1, metavar="N", help="Take so many at once, for tiny jobs.  [default: 1]"
)
@click.option("--lane", "lanes", multiple=True, help="Only of this lane; may be repeated.")
@click.option("--poll-interval", type=float, default=0.1, metavar="SECONDS", help="[default: 0.1]")
@click.option(
    "--visibility-timeout",
    type=float,
    metavar="SECONDS",
    help="A worker that is gone for so long loses its jobs to others.  [default: 30]",
)
@click.option("--keep-done", type=float, metavar="SECONDS", help="Keep results so long.  [default: 3600]")
@click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
def cli(
    settings: Settings,
    handler: str,
    concurrency: int,
    max_jobs: int | None,
    idle_timeout: float | None,
    batch: int,
    lanes: tuple[str, ...],
    poll_interval: float,
    visibility_timeout: float | None,
    keep_done: float | None,
    verbose: bool,
) -> None:
    """Lease jobs and call the function with each: if it returns the job is done, if it raises it is retried.

    The current directory is importable. SIGINT or SIGTERM: take no more, finish what was begun, end with 0; a
    second one gives everything back at once.
    """
    from nobroker import Worker
    from nobroker.cli.handlers import load_handler
    from nobroker.cli.working import log_to_stderr, report, to_the_end

    function = load_handler(handler)
    options: dict[str, Any] = {}
    if visibility_timeout is not None:
        options["visibility_timeout"] = visibility_timeout
    if keep_done is not None:
        options["keep_done"] = keep_done
    settings.says_all = True
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    with settings.open(**options) as queue:
        worker = Worker(
            queue,
            function,
            concurrency=concurrency,
            poll_interval=poll_interval,
            max_jobs=max_jobs,
            idle_timeout=idle_timeout,
            batch=batch,
            lanes=list(lanes) if lanes else None,
        )
        report(settings, to_the_end(worker.run, "handler"))
