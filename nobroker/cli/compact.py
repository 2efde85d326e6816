"""`nobroker compact`: give back the space of finished jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.failures import CommandError, one_line
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import CompactionResult


@command(
    "compact",
    "nobroker compact",
    "nobroker compact mails invoices",
    "nobroker compact --all --watch 60           # beside any number of workers, until SIGTERM",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-a", "--all", "everything", is_flag=True, help="Every queue of the directory.")
@click.option(
    "--watch", type=click.FloatRange(min=0.05), metavar="SECONDS", help="Again and again, so often."
)
def cli(settings: Settings, names: tuple[str, ...], everything: bool, watch: float | None) -> None:
    """Give back the space of finished jobs, of the queue -q or of those named.

    Safe beside any number of producers and workers. With --watch it goes on until SIGINT or SIGTERM, and then
    ends with 0; a queue that is busy or not there yet is tried again the next time.
    """
    from nobroker.cli import output

    if names and everything:
        raise click.UsageError("--all and NAME exclude each other")
    if names and settings.given_queue is not None:
        raise click.UsageError("-q and NAME exclude each other")
    chosen = list(names) or [settings.queue]
    if watch is not None:
        _watch(settings, None if everything else chosen, watch)
        return
    if everything:
        chosen = settings.names()
    for name in chosen:
        settings.must_exist(name)
    done = [(name, _compact(settings, name)) for name in chosen]
    if settings.json:
        found = [_as_dict(name, result) for name, result in done]
        output.document(found if everything or names else found[0])
        return
    for name, result in done:
        output.line(f"{name}: {result.describe()}")
    if not done:
        output.note(f"no queues in {settings.dir!r}")


def _compact(settings: Settings, name: str) -> CompactionResult:
    with settings.open_existing(name) as queue:
        return queue.compact()


def _as_dict(name: str, result: CompactionResult) -> dict[str, Any]:
    return {
        "queue": name,
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
        "bytes_reclaimed": result.bytes_reclaimed,
        "jobs_kept": result.jobs_kept,
        "jobs_dropped": result.jobs_dropped,
    }


def _watch(settings: Settings, chosen: list[str] | None, pause: float) -> None:
    from nobroker.cli.signals import stop_on_signals

    with stop_on_signals() as stop:
        while not stop.is_set():
            for name in settings.names() if chosen is None else chosen:
                if stop.is_set():
                    break
                _round(settings, name)
            stop.wait(pause)


def _round(settings: Settings, name: str) -> None:
    """Compact one queue and say so; what is wrong with it is said too and is no reason to end."""
    from nobroker import NobrokerError
    from nobroker.cli import output

    try:
        result = _compact(settings, name)
    except (NobrokerError, CommandError, OSError) as error:
        output.note(f"{name}: {one_line(error)}; will try again")
        return
    if settings.json:
        print(output.encode({"time": output.now(), **_as_dict(name, result)}), flush=True)
    else:
        print(f"{time.strftime('%H:%M:%S')}  {name}: {result.describe()}", flush=True)
