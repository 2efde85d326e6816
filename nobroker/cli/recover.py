"""`nobroker recover`: what opening the log finds; and when it is damaged, saving what can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import Queue
    from nobroker_mmap.check import Finding
    from nobroker_mmap.losses import SalvageReport


@command("recover", "nobroker recover", "nobroker -q mails recover --salvage")
@click.option("--salvage", is_flag=True, help="Repair: give up what cannot be read, keep everything else.")
def cli(settings: Settings, salvage: bool) -> None:
    """Say what opening the log finds, what is damaged, and what a repair would cost. Changes nothing, unless
    --salvage is given.

    An unfinished write at the end of the log, which a killed process leaves, is cut by the next process that
    opens the queue for writing. Damage to what had been promised is never cut: until --salvage, which keeps a
    copy of each file that it changes and says exactly what was lost.
    """
    if salvage:
        _salvage(settings)
    else:
        _look(settings)


def _look(settings: Settings) -> None:
    from nobroker.cli import findings, output

    found = findings.look(settings)
    told = findings.with_numbering(settings, found)
    report = _opening(settings, found)
    if settings.json:
        output.document(
            {"queue": settings.queue, **report, "findings": [findings.as_dict(*each) for each in told]}
        )
    else:
        _print(report)
        findings.show(told)
    if findings.damage(found):
        findings.refuse(settings, found)


def _opening(settings: Settings, found: list[Finding]) -> dict[str, Any]:
    """What an opening finds, and how the queue is then; less where it can't be opened at all."""
    from nobroker.cli.findings import damage
    from nobroker.errors import CorruptLogError

    harm = damage(found)
    first = f"{harm[0].path}, offset {harm[0].offset}: {harm[0].message}" if harm else "none"
    try:
        with settings.open(read_only=True) as queue:
            report = _report(queue)
    except CorruptLogError:
        if not harm:
            raise
        return {"damage": first, "repaired": False}
    if report["damage"] == "none":
        report["damage"] = first
    return report


def _salvage(settings: Settings) -> None:
    from nobroker.cli import findings, output

    found = findings.look(settings)
    harm = findings.damage(found)
    told = {(finding.path, finding.offset): lost for finding, lost in findings.with_numbering(settings, harm)}
    repaired = _repair(settings) if harm else None
    with settings.open_existing() as queue:
        report = _report(queue)
    losses = findings.from_losses(repaired.losses) if repaired is not None else []
    lost = [(loss, told.get((loss.path, loss.offset), "")) for loss in losses]
    if repaired is not None:
        report["notes"] = [*repaired.notes, *report["notes"]]
        report["bytes_lost"] = repaired.bytes_lost
        report["kept_files"] = [str(path) for path in repaired.kept_files]
    if settings.json:
        listed = [{**output.fields(loss), "lost": told.get((loss.path, loss.offset), "")}
                  for loss in (repaired.losses if repaired is not None else ())]  # fmt: skip
        output.document({"queue": settings.queue, **report, "losses": listed})
        return
    _print(report)
    for loss, words in lost:
        output.line(
            f"lost: {loss.length} bytes at offset {loss.offset} of {loss.path} ({loss.message}): {words}"
        )
    if repaired is None:
        output.line("nothing is damaged, so nothing was repaired")
    elif repaired.kept_files:
        output.line("the kept files are the damaged ones as they were; delete them when nobody needs them")


def _repair(settings: Settings) -> SalvageReport:
    from nobroker.clock import SystemClock
    from nobroker_mmap.salvage import salvage

    return salvage(Path(settings.dir), settings.queue, boot_id=SystemClock().boot_id())


def _report(queue: Queue) -> dict[str, Any]:
    from nobroker.cli import output

    found = {**output.fields(queue.recovery), "repaired": queue.recovery.repaired}
    stats = queue.stats()
    return {**found, **{name: getattr(stats, name) for name in output.COUNTS}}


def _print(found: dict[str, Any]) -> None:
    from nobroker.cli import output

    listed = {name: value for name, value in found.items() if isinstance(value, list)}
    output.pairs(
        {name.replace("_", " "): _shown(value) for name, value in found.items() if name not in listed}
    )
    for name, values in listed.items():
        for value in values:
            output.line(f"{name.replace('_', ' ').removesuffix('s')}: {value}")


def _shown(value: object) -> object:
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else value
