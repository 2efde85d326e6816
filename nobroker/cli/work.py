"""`nobroker work`: run a function over the jobs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.failures import CommandError
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import Worker, WorkerStats

COUNTS = ("leased", "succeeded", "failed", "dead", "lost_leases")


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

    function = load_handler(handler)
    options: dict[str, Any] = {}
    if visibility_timeout is not None:
        options["visibility_timeout"] = visibility_timeout
    if keep_done is not None:
        options["keep_done"] = keep_done
    settings.says_all = True
    _log_to_stderr(logging.INFO if verbose else logging.WARNING)
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
        _report(settings, _run(worker))


def _run(worker: Worker) -> WorkerStats:
    try:
        return worker.run()
    except SystemExit as error:
        raise CommandError(_ended_by(f"SystemExit({error.code!r})")) from error
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        # Raised by the handler, and raised again by the worker once it had ended in good order.
        raise CommandError(_ended_by(type(error).__name__)) from error


def _ended_by(what: str) -> str:
    return f"the handler raised {what}; its job was nacked and the worker ended"


def _report(settings: Settings, stats: WorkerStats) -> None:
    from nobroker.cli import output

    values = {name: getattr(stats, name) for name in COUNTS}
    if settings.json:
        output.document(values)
    else:
        print("  ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in values.items()))


class _SafeFormatter(logging.Formatter):
    """One line a message, with nothing in it that a terminal would obey; of an exception, the last line."""

    def formatException(self, ei: Any) -> str:
        return f"{ei[0].__name__}: {ei[1]}" if ei and ei[0] is not None else ""

    def formatStack(self, stack_info: str) -> str:
        return ""

    def format(self, record: logging.LogRecord) -> str:
        from nobroker.cli.text import escape

        return escape(super().format(record).replace("\n", "; "))


def _log_to_stderr(level: int) -> None:
    root = logging.getLogger()
    if root.handlers:
        return  # the handler's module has set up a log of its own
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(to_stderr)
    root.setLevel(level)
