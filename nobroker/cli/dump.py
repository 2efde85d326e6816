"""`nobroker dump`: the log as JSON Lines."""

from __future__ import annotations

import sys
from typing import IO, Any, cast

import click

from nobroker.cli.command import command
from nobroker.cli.failures import DONE, FAILED
from nobroker.cli.settings import Settings


@command(
    "dump",
    "nobroker dump | jq 'select(.event == \"nack\") | .error'",
    "nobroker -q mails dump --jobs -o mails.jsonl     # `nobroker import` takes it back",
    "nobroker dump --records",
)
@click.option("--jobs", "kind", flag_value="jobs", help="One line per job in its present state.")
@click.option("--records", "kind", flag_value="records", help="One line per raw record.")
@click.option("-o", "--output", "target", type=click.Path(), metavar="FILE", help="Write there.")
def cli(settings: Settings, kind: str | None, target: str | None) -> int:
    """Write the log as JSON Lines, one per event: strict JSON, for people and for jq.

    Changes nothing and works on damaged logs; what had to be left out is said on stderr, and the exit code is
    then 1. With --json the lines are one array.
    """
    settings.must_exist()
    if target is None:
        return _dump(settings, kind or "events", sys.stdout)
    with open(target, "w", encoding="ascii", newline="\n") as file:
        return _dump(settings, kind or "events", file)


def _dump(settings: Settings, kind: str, out: IO[str]) -> int:
    from nobroker.cli.output import note
    from nobroker_tools.dump import KINDS

    if not settings.json:
        return FAILED if KINDS[kind](settings.dir, settings.queue, out, note) else DONE
    array = _Array(out)
    skipped = KINDS[kind](settings.dir, settings.queue, cast(IO[str], array), note)
    array.close()
    return FAILED if skipped else DONE


class _Array:
    """Turns lines of JSON into one JSON array."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._before = "[\n"

    def write(self, text: str) -> Any:
        for line in text.splitlines():
            self._out.write(self._before + line)
            self._before = ",\n"

    def close(self) -> None:
        self._out.write("[]\n" if self._before == "[\n" else "\n]\n")
