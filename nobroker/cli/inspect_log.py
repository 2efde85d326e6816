"""`nobroker inspect`: the raw records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.failures import DONE, FAILED
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker_mmap.record import Record
    from nobroker_tools.scan import LogScan

LOOK_EVERY = 0.25  # seconds


@command(
    "inspect",
    "nobroker inspect",
    "nobroker inspect --follow                   # each record as it is written",
    "nobroker --json inspect --limit 10",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first so many.")
def cli(settings: Settings, follow: bool, limit: int | None) -> int:
    """Show the raw records of the log, one line each: segment, offset, type, content.

    Changes nothing and works on damaged logs; what had to be left out is said on stderr, and the exit code is
    then 1.
    """
    from nobroker.cli import output

    if follow and limit is not None:
        raise click.UsageError("--follow and --limit exclude each other")
    settings.must_exist()
    if follow:
        _follow(settings)
        return DONE
    scan = _scan(settings)
    records = _first(scan.records(), limit)
    if settings.json:
        output.document_of_many(map(_as_dict, records))
    else:
        for record in records:
            print(_as_line(record))
    return FAILED if scan.skipped else DONE


def _scan(settings: Settings, *, quiet: bool = False) -> LogScan:
    from nobroker.cli.output import note
    from nobroker_tools.scan import LogScan

    return LogScan(settings.dir, settings.queue, _silently if quiet else note)


def _silently(text: str) -> None:
    """For looking again at what was reported already."""


def _first(records: Iterator[Record], limit: int | None) -> Iterator[Record]:
    from itertools import islice

    return records if limit is None else islice(records, limit)


def _follow(settings: Settings) -> None:
    from nobroker.cli import output
    from nobroker.cli.signals import stop_on_signals

    with stop_on_signals() as stop:
        scan, after = _scan(settings), -1
        while not stop.is_set():
            seen = _last_change(scan)
            for record in scan.records():
                if record.lsn > after:
                    after = record.lsn
                    print(output.encode(_as_dict(record)) if settings.json else _as_line(record), flush=True)
                if stop.is_set():
                    return
            newest = max(scan.segments, default=0)
            while not stop.wait(LOOK_EVERY):
                scan = _scan(settings, quiet=True)
                scan.segments = {n: part for n, part in scan.segments.items() if n >= newest}
                if _last_change(scan) != seen:
                    break


def _last_change(scan: LogScan) -> tuple[int, int]:
    """The newest segment and when it was last written to: files have their full size from the start."""
    newest = max(scan.segments, default=0)
    if not newest:
        return 0, 0
    try:
        return newest, os.stat(scan.segments[newest].path).st_mtime_ns
    except FileNotFoundError:
        return newest, 0  # a compaction was quicker


def _as_dict(record: Record) -> dict[str, Any]:
    from nobroker.state.kinds import NAMES

    shown: dict[str, Any] = {
        "segment": record.segment,
        "offset": record.offset,
        "lsn": record.lsn,
        "type": NAMES.get(record.type, str(record.type)),
        "bytes": len(record.body),
        "checksum": f"{record.checksum:016x}",
    }
    head, tail = _content(record)
    return {**shown, "head": head, "tail": tail}


def _content(record: Record) -> tuple[Any, Any]:
    """Return head and tail of a record; what cannot be read is shown as the bytes it is."""
    from nobroker.errors import CorruptLogError
    from nobroker.values import unpack
    from nobroker_tools.events import plain_head

    try:
        head = plain_head(record.head())
        tail = unpack(record.tail_bytes) if record.tail_bytes else None
    except (CorruptLogError, LookupError, TypeError, ValueError, OverflowError):
        return None, bytes(record.body)
    return head, tail


def _as_line(record: Record) -> str:
    from nobroker.cli.output import display

    shown = _as_dict(record)
    content = display(shown["head"])
    if shown["tail"] is not None:
        content += f" {display(shown['tail'])}"
    return f"{shown['segment']:06}:{shown['offset']:<9} {shown['type']:<8} {content}"
