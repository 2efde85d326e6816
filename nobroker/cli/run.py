"""`nobroker run`: work the jobs of an application off, in this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from nobroker.cli import failures
from nobroker.cli.command import command
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker.app import App

_log = logging.getLogger("nobroker.run")


@command(
    "run",
    "nobroker run myshop.jobs",
    "nobroker run myshop.mails myshop.reports --threads 8",
    "nobroker run myshop.jobs:app --queues mails,reports",
    "nobroker --json run myshop.jobs --once",
)
@click.argument("packages", nargs=-1, required=True, metavar="PACKAGE...")
@click.option("--queues", metavar="A,B", help="Only jobs of these queues.  [default: of all]")
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(1, 1024),
    default=1,
    metavar="N",
    help="Jobs at a time.  [default: 1]",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1,
    metavar="N",
    help="Jobs that a thread takes at once, for tiny jobs.  [default: 1]",
)
@click.option(
    "--recurring",
    metavar="FILE",
    help="Recurring tasks.  [default: recurring.yml, where there is one]",
)
@click.option("--no-scheduler", is_flag=True, help="Enqueue no recurring tasks here.")
@click.option("--once", is_flag=True, help="Work off what is due, then end.")
@click.option("--app", "chosen", metavar="MODULE:NAME", help="Which application, where there are several.")
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    help="Of the log on stderr.  [default: console]",
)
@click.option(
    "--metrics-dir",
    metavar="DIR",
    help="Where SIGUSR2 records what jobs take.  [default: beside the queue]",
)
@click.option("-v", "--verbose", is_flag=True, help="Also show what other libraries log.")
def cli(
    settings: Settings,
    packages: tuple[str, ...],
    queues: str | None,
    threads: int,
    batch: int,
    recurring: str | None,
    no_scheduler: bool,
    once: bool,
    chosen: str | None,
    log_format: str,
    metrics_dir: str | None,
    verbose: bool,
) -> int:
    """Import packages, with all that is in them, and run the jobs that they define.

    PACKAGE is a dotted name, as in Python's import; the current directory is importable. PACKAGE:NAME also
    says which application is meant.

    The jobs are taken from the directory that the application names. --dir and -q put others in its place;
    $NOBROKER_DIR does not: the application also enqueues, and would go on doing that where it says.

    SIGINT or SIGTERM: take no more, finish what was begun, end with 0; a second one gives everything back at
    once. SIGUSR2: begin to record in a CSV file what each job takes, or end that. Exit codes: 0 ended as
    asked, 1 an error, 2 nothing was begun (wrong usage, a package that can't be imported, a directory that
    can't be used), 75 start me again.
    """
    from nobroker.app.serving import Service
    from nobroker.cli.applications import load_application, take_file
    from nobroker.cli.working import log_to_stderr, report, to_the_end

    lanes = None if queues is None else _names(queues)
    app = load_application(packages, chosen)
    if log_to_stderr(logging.INFO if verbose else logging.WARNING, json=log_format == "json"):
        logging.getLogger("nobroker").setLevel(logging.INFO)
    take_file(app, recurring)
    _open(app, settings)
    try:
        service = Service(
            app,
            queues=lanes,
            threads=threads,
            batch=batch,
            once=once,
            scheduler=not no_scheduler,
            metrics_dir=metrics_dir,
        )
        _announce(app, lanes, threads)
        stats = to_the_end(service.run, "job")
    finally:
        app.close()
    report(settings, stats)
    return failures.RECYCLE if service.recycling else failures.DONE


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not name or "*" in name:
            raise failures.NothingBegun(f"--queues takes names with commas between them, not {text!r}")
    return names


def _open(app: App, settings: Settings) -> None:
    """Open the application's queue, or the one that was typed.

    Raises:
        NothingBegun: it can't be used as it is.
    """
    from nobroker import CorruptLogError, StorageError

    if settings.given_dir is not None or settings.given_queue is not None:
        app.close()  # importing it may have enqueued something
        app.path = settings.given_dir or app.path
        app.name = settings.given_queue or app.name
    try:
        app.queue  # noqa: B018 - opened when looked at
    except (StorageError, CorruptLogError, OSError, ValueError, TypeError) as error:
        raise failures.NothingBegun(failures.one_line(error)) from error


def _announce(app: App, lanes: list[str] | None, threads: int) -> None:
    """Say what runs here; and of which queue nobody has heard: its name may be misspelt."""
    from difflib import get_close_matches

    _log.info(
        "event=run.started dir=%s name=%s jobs=%d queues=%s threads=%d",
        app.path,
        app.name,
        len(app.jobs),
        "*" if lanes is None else ",".join(lanes),
        threads,
    )
    used = {job.options.queue for job in app.jobs.values()}
    known = {queue for queue in used if isinstance(queue, str)}
    if known != used:
        return  # some job decides by its arguments
    for lane in lanes or ():
        if lane not in known and app.queue.stats(lane=lane).total == 0:
            near = get_close_matches(lane, known, 1)
            hint = f"did_you_mean={near[0]}" if near else f"queues_of_jobs={','.join(sorted(known))}"
            _log.warning("event=run.queue_unknown queue=%s %s", lane, hint)
