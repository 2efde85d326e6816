"""`nobroker check`: is everything as it should be on the disk?"""

from __future__ import annotations

from nobroker.cli.command import command
from nobroker.cli.failures import DONE, CommandError
from nobroker.cli.settings import Settings


@command("check", "nobroker check", "nobroker -q mails check --json")
def cli(settings: Settings) -> int:
    """Read the whole log and all that is derived from it, and say what is wrong. Changes nothing.

    Exit code 1: there is something that somebody has to do.
    """
    from nobroker.cli import output

    settings.must_exist()
    with settings.open(read_only=True) as queue:
        findings = queue.check()
    if settings.json:
        output.document([output.fields(finding) for finding in findings])
    for finding in findings if not settings.json else ():
        output.line(
            f"{finding.severity}: {finding.path}, offset {finding.offset}: {finding.message};"
            f" what to do: {finding.advice}"
        )
    serious = sum(finding.severity != "note" for finding in findings)
    if serious:
        raise CommandError(f"{output.plural(serious, 'finding')} in queue {settings.queue!r}")
    if not findings and not settings.json:
        output.line(f"{settings.queue}: nothing wrong")
    return DONE
