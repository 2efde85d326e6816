"""`nobroker config`: what is in force when jobs are run here, and who says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nobroker.cli import failures
from nobroker.cli.command import command
from nobroker.cli.run_options import loaded, run_options
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker.running.sources import Loaded


@command(
    "config",
    "nobroker config",
    "nobroker config --config staging.yml --threads 8",
    "nobroker config --yaml",
    "nobroker --json config",
)
@run_options
@click.option("--yaml", "as_file", is_flag=True, help="Print a queue.yml that says the same.")
def cli(settings: Settings, config: str | None, as_file: bool, **said: Any) -> int:
    """Show what `nobroker run` would do with the same options, and from where each value is: an argument, a
    variable of the environment, a line of the file, or the default.

    Exit codes: 0 it can be run, 2 something in it can't be.
    """
    from nobroker.cli import output
    from nobroker.running.written import as_document, as_yaml

    found = loaded(config, said)
    for warning in found.warnings:
        output.note(f"warning: {warning}")
    if as_file:
        print(as_yaml(found.config), end="")
    elif settings.json:
        output.document(
            {
                "file": found.file,
                "environment": found.environment,
                "forced_queue": found.forced,
                "config": as_document(found.config),
                "origins": _origins(found),
                "warnings": list(found.warnings),
            }
        )
    else:
        _print(found)
    return failures.DONE


def _print(found: Loaded) -> None:
    from nobroker.app.queue_lists import FORCE
    from nobroker.cli import output

    head = {"file": found.file or "none", "environment": found.environment}
    if found.forced is not None:
        head["all queues"] = f"{found.forced} ({FORCE})"
    output.pairs(head)
    rows = [(key, _cell(key, found), origin) for key, origin in _origins(found).items()]
    output.table(("KEY", "VALUE", "FROM"), rows)


def _origins(found: Loaded) -> dict[str, str]:
    """Who says what, with arguments as they are typed here."""
    from nobroker.running.settings import ALL
    from nobroker.running.sources import ARGUMENT

    options = {setting.key: setting.option for setting in ALL}
    return {
        key: options[key.rpartition(".")[2]] if origin == ARGUMENT else origin
        for key, origin in found.origins.items()
        if key != "once"
    }


def _cell(key: str, found: Loaded) -> str:
    value: Any = found.config
    for part in key.replace("[", ".").replace("]", "").split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, float):
        return f"{value:g}s"
    if key.rpartition(".")[2] in ("memory_recycle_at", "cgroup_memory_max"):
        from nobroker.cli import output

        return output.size(value)
    return str(value)
