"""The shape all commands share: global options before the command or after it, and examples in the help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from nobroker.cli.settings import Settings

Function = Callable[..., Any]


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep what was given; an option that is given twice counts as it was given last."""
    settings = ctx.ensure_object(Settings)
    if value is None or value is False:
        return
    if param.name == "dir":
        settings.given_dir = value
    elif param.name == "queue":
        settings.given_queue = value
    else:
        settings.json = True


def global_options() -> list[click.Parameter]:
    """Return fresh `--dir`, `--queue` and `--json` options."""
    return [
        click.Option(
            ["-d", "--dir"],
            metavar="DIR",
            help="Directory of the queues  [default: $NOBROKER_DIR, then ./jobs]",
            expose_value=False,
            callback=_remember,
        ),
        click.Option(
            ["-q", "--queue"],
            metavar="NAME",
            help="Name of the queue  [default: default]",
            expose_value=False,
            callback=_remember,
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            help="Print one strict JSON document.",
            expose_value=False,
            callback=_remember,
        ),
    ]


def command(name: str, *examples: str) -> Callable[[Function], click.Command]:
    """Make a command of a function whose first argument is the `Settings`.

    Args:
        name: what is typed.
        examples: lines for the end of the help, shown as they are.
    """
    epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples) if examples else None

    def decorate(function: Function) -> click.Command:
        made: click.Command = click.command(
            name, epilog=epilog, context_settings={"help_option_names": ["-h", "--help"]}
        )(click.pass_obj(function))
        made.params.extend(global_options())
        return made

    return decorate
