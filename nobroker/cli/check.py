"""`nobroker check`: is everything as it should be on the disk?"""

from __future__ import annotations

from nobroker.cli.command import command
from nobroker.cli.failures import DONE
from nobroker.cli.settings import Settings


@command("check", "nobroker check", "nobroker -q mails check --json")
def cli(settings: Settings) -> int:
    """Read the whole log and all that is derived from it, and say what is wrong. Changes nothing.

    Works on a queue that cannot be opened, too. Says for each finding where it is, what is lost (the numbers
    of jobs are those that `list --json` has as `seq`) and what to type.

    Exit code 1: there is something that somebody has to do.
    """
    from nobroker.cli import findings, output

    found = findings.look(settings)
    told = findings.with_numbering(settings, found)
    if settings.json:
        output.document([findings.as_dict(finding, lost) for finding, lost in told])
    else:
        findings.show(told)
    findings.refuse(settings, found)
    if not found and not settings.json:
        output.line(f"{settings.queue}: nothing wrong")
    return DONE
