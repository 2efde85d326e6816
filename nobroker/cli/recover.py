"""`nobroker recover`: what opening the log finds; and when it is damaged, saving what can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.failures import CommandError
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import Queue
    from nobroker_mmap.losses import SalvageReport


@command("recover", "nobroker recover", "nobroker -q mails recover --salvage")
@click.option("--salvage", is_flag=True, help="Repair: give up what cannot be read, keep everything else.")
def cli(settings: Settings, salvage: bool) -> None:
    """Say what opening the log finds. Changes nothing, unless --salvage is given.

    An unfinished write at the end of the log, which a killed process leaves, is cut by the next process that
    opens the queue for writing. Damage to what had been promised is never cut: until --salvage, which keeps a
    copy of each file that it changes and says exactly what was lost.
    """
    if salvage:
        _salvage(settings)
    else:
        _look(settings)


def _look(settings: Settings) -> None:
    settings.must_exist()
    with settings.open(read_only=True) as queue:
        found = _report(queue)
        damage = queue.recovery.damage
    _print(settings, found)
    if damage != "none":
        raise CommandError(f"the log is damaged; save what can be saved with {_again(settings)}")


def _again(settings: Settings) -> str:
    return f"`nobroker --dir {settings.dir} -q {settings.queue} recover --salvage`"


def _salvage(settings: Settings) -> None:
    lost = _repair(settings) if _is_damaged(settings) else None
    with settings.open_existing() as queue:
        found = _report(queue)
    found["losses"] = []
    if lost is not None:
        from nobroker.cli import output

        found["losses"] = [output.fields(loss) for loss in lost.losses]
        found["bytes_lost"] = lost.bytes_lost
        found["kept_files"] = [str(path) for path in lost.kept_files]
        found["notes"] = [*lost.notes, *found["notes"]]
    _print(settings, found)


def _is_damaged(settings: Settings) -> bool:
    """Whether there is damage anywhere; opening alone does not look at what a snapshot stands for."""
    settings.must_exist()
    with settings.open(read_only=True) as queue:
        queue.stats()  # reads the log
        return queue.recovery.damage != "none" or any(
            finding.severity == "damage" for finding in queue.check()
        )


def _repair(settings: Settings) -> SalvageReport:
    from nobroker.clock import SystemClock
    from nobroker_mmap.salvage import salvage

    return salvage(Path(settings.dir), settings.queue, boot_id=SystemClock().boot_id())


def _report(queue: Queue) -> dict[str, Any]:
    from nobroker.cli import output

    found = {**output.fields(queue.recovery), "repaired": queue.recovery.repaired}
    stats = queue.stats()
    return {**found, **{name: getattr(stats, name) for name in output.COUNTS}}


def _print(settings: Settings, found: dict[str, Any]) -> None:
    from nobroker.cli import output

    if settings.json:
        output.document({"queue": settings.queue, **found})
        return
    listed = {name: value for name, value in found.items() if isinstance(value, list)}
    output.pairs(
        {name.replace("_", " "): _shown(value) for name, value in found.items() if name not in listed}
    )
    for loss in listed.pop("losses", ()):
        output.line(
            f"lost: {loss['length']} bytes at offset {loss['offset']} of {loss['path']} ({loss['reason']})"
        )
    for name, values in listed.items():
        for value in values:
            output.line(f"{name.replace('_', ' ').removesuffix('s')}: {value}")


def _shown(value: object) -> object:
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else value
