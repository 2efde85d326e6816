"""`nobroker stats`: how many jobs there are."""

from __future__ import annotations

import time
from typing import Any

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings


@command("stats", "nobroker stats", "nobroker -q mails stats --watch 2", "nobroker --json stats | jq .ready")
@click.option("--lane", help="Only this lane.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0.05),
    is_flag=False,
    flag_value=1.0,
    metavar="[SECONDS]",
    help="Show them again every so many seconds (1), until Ctrl-C.",
)
def cli(settings: Settings, lane: str | None, watch: float | None) -> None:
    """Count the jobs by state."""
    from nobroker.cli import output
    from nobroker.cli.signals import stop_on_signals

    with settings.look() as queue:
        if watch is None:
            _show(settings, output.stats_dict(queue.stats(lane=lane)))
            return
        with stop_on_signals() as stop:
            while not stop.is_set():
                _show_line(settings, output.stats_dict(queue.stats(lane=lane)))
                stop.wait(watch)


def _show_line(settings: Settings, values: dict[str, Any]) -> None:
    from nobroker.cli import output

    if settings.json:
        print(output.encode({"queue": settings.queue, "time": output.now(), **values}), flush=True)
        return
    counts = "  ".join(f"{name} {values[name]:,}" for name in output.COUNTS)
    print(f"{time.strftime('%H:%M:%S')}  {counts}", flush=True)


def _show(settings: Settings, values: dict[str, Any]) -> None:
    from nobroker.cli import output

    if settings.json:
        output.document({"queue": settings.queue, **values})
        return
    shown = {**values, "oldest_ready_age": output.duration(values["oldest_ready_age"])}
    shown["paused"] = "yes" if values["paused"] else "no"
    shown["bytes"] = output.size(values["bytes"])
    output.pairs({name.replace("_", " "): value for name, value in shown.items()})
