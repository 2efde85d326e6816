"""`nobroker run`: work the jobs of an application off, in this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli import failures
from nobroker.cli.command import command
from nobroker.cli.run_options import loaded, run_options, typed
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker.app import App
    from nobroker.running.config import RunConfig
    from nobroker.running.forking import Source
    from nobroker.running.sources import Loaded

_log = logging.getLogger("nobroker.run")


@command(
    "run",
    "nobroker run myshop.jobs",
    "nobroker run myshop.mails myshop.reports --threads 8",
    "nobroker run myshop.jobs:app --queues 'urgent,mail*'",
    "nobroker --json run myshop.jobs --once",
)
@click.argument("packages", nargs=-1, required=True, metavar="PACKAGE...")
@run_options
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
    config: str | None,
    once: bool,
    chosen: str | None,
    log_format: str,
    metrics_dir: str | None,
    verbose: bool,
    **said: Any,
) -> int:
    """Import packages, with all that is in them, and run the jobs that they define.

    PACKAGE is a dotted name, as in Python's import; the current directory is importable. PACKAGE:NAME also
    says which application is meant.

    The jobs are taken from the directory that the application names. --dir and -q put others in its place;
    $NOBROKER_DIR does not: the application also enqueues, and would go on doing that where it says.

    What is not typed is said by the environment (NOBROKER_THREADS and so on), by queue.yml, or by the
    defaults; `nobroker config` shows it.

    \b
    Signals
      TERM, INT    take no more, finish what was begun; what has not ended after
                   --shutdown-timeout is given back; a second one: at once
      QUIT         give everything back at once
      USR1, TSTP   be quiet: take no more, and stay
      USR2         begin to record in a CSV file what each job takes, or end that
      HUP          of several processes: restart them one by one, without a gap

    \b
    Exit codes
      0   ended as asked, or nothing was left to do (--once)
      1   an error; or jobs had to be given back, a process was lost at the end, or
          no worker could be kept running
      2   nothing was begun: wrong usage, a configuration that can't be, a package
          that can't be imported, a directory that can't be used
      75  start me again (one process only; a supervisor does it itself)
    """
    from nobroker.cli.applications import load_application, take_file
    from nobroker.cli.working import log_to_stderr
    from nobroker.running.forking import Source

    found = loaded(config, {**said, "once": once})
    app = load_application(packages, chosen)
    if log_to_stderr(logging.INFO if verbose else logging.WARNING, json=log_format == "json"):
        logging.getLogger("nobroker").setLevel(logging.INFO)
    key = "scheduler.recurring"
    take_file(app, found.config.scheduler.recurring, lambda reason: typed(found.problem(key, reason)))
    _open(app, settings)
    source = Source(packages, chosen, tuple(app._recurring_files), log_format == "json")
    try:
        return _run(app, found, source, metrics_dir, settings)
    finally:
        app.close()


def _run(
    app: App, found: Loaded, source: Source, metrics_dir: str | None, settings: Settings
) -> int:
    from nobroker.app import NestedRunError, RunFailedError
    from nobroker.cli.working import report, to_the_end
    from nobroker.running.starting import run_config, warn

    for warning in found.warnings:
        warn(warning)
    _announce(app, found.config)
    try:
        ran = to_the_end(lambda: run_config(app, found.config, source, metrics_dir), "job")
    except (NestedRunError, RunFailedError) as error:
        raise failures.NothingBegun(failures.one_line(error)) from error
    if ran.reason is not None:
        kind = failures.NothingBegun if ran.code == failures.WRONG_USAGE else failures.CommandError
        raise kind(ran.reason)
    report(settings, ran.stats)
    return ran.code


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


def _announce(app: App, config: RunConfig) -> None:
    """Say what runs here; and of which queue nobody has heard: its name may be misspelt."""
    from difflib import get_close_matches

    queues = list(dict.fromkeys(name for worker in config.workers for name in worker.queues))
    _log.info(
        "event=run.started dir=%s name=%s jobs=%d queues=%s threads=%d",
        app.path,
        app.name,
        len(app.jobs),
        ",".join(queues),
        sum(worker.threads * worker.processes for worker in config.workers),
    )
    used = {job.options.queue for job in app.jobs.values()}
    known = {queue for queue in used if isinstance(queue, str)}
    if known != used or app._forced is not None:
        return  # some job decides by its arguments, or none does
    for queue in queues:
        if not queue.endswith("*") and queue not in known and app.queue.stats(lane=queue).total == 0:
            near = get_close_matches(queue, known, 1)
            hint = f"did_you_mean={near[0]}" if near else f"queues_of_jobs={','.join(sorted(known))}"
            _log.warning("event=run.queue_unknown queue=%s %s", queue, hint)
