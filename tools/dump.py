"""`nobroker-dump`: a queue's log as JSON Lines, for people and for `jq`.

Every line is strict JSON in ASCII; what JSON lacks is written as `nobroker_tools.jsonvalue` describes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from nobroker.errors import CorruptLogError, NobrokerError
from nobroker.state import kinds
from nobroker.values import unpack
from nobroker_mmap import format as fmt
from nobroker_mmap.record import Record

from . import jobdump
from .events import OwnIds, events, learn_ids, plain_head
from .jsonvalue import dumps
from .scan import LogScan, Say

_TEXTS_AT_ONCE = 512
_UNREADABLE = (CorruptLogError, LookupError, TypeError, ValueError, OverflowError)
_WITH_IDS = kinds.WHOLE


def dump_events(directory: str | Path, name: str, out: IO[str], say: Say | None = None) -> int:
    """Write one line per event: for a record about many jobs, one line for each of them.

    Args:
        directory, name: of the queue.
        out: where the lines go.
        say: told in a sentence what had to be left out; stderr when None.

    Returns:
        How many pieces of the log were left out: 0 for a sound log.

    Raises:
        StorageError: there is no such queue, or it cannot be read.
    """
    scan = LogScan(directory, name, say or _on_stderr)
    ids = OwnIds(scan.log_id)
    try:
        if scan.segments and min(scan.segments) > 1:
            # After a compaction a job's id may stand only in its moved copy, behind events that speak of it.
            quiet = LogScan(directory, name, _silently)
            for record in quiet.records(_WITH_IDS):
                _learn(record, ids)
        _write(_event_lines(scan, ids, say or _on_stderr), out)
    finally:
        ids.close()
    return scan.skipped


def dump_records(directory: str | Path, name: str, out: IO[str], say: Say | None = None) -> int:
    """Write one line per record: place, sequence number, checksum, head, tail. Otherwise as `dump_events`."""
    scan = LogScan(directory, name, say or _on_stderr)
    _write(map(_record_line, scan.records()), out)
    return scan.skipped


def dump_jobs(directory: str | Path, name: str, out: IO[str], say: Say | None = None) -> int:
    """Write one line per job in its present state, by insertion; `nobroker import` takes the lines back.

    Arguments and result as for `dump_events`. Of a damaged log, the jobs are as they were before the damage.
    """
    from nobroker.queue import Queue

    skipped = 0
    with Queue(directory, name, read_only=True) as queue:
        damage = queue.recovery.damage
        if damage != "none":
            skipped = 1
            (say or _on_stderr)(f"the jobs are as the log had them before this: {damage}")
        out.write(jobdump.header(name))
        _write(jobdump.to_lines(queue._iter_alike()), out)
    return skipped


def _write(texts: Iterable[str], out: IO[str]) -> None:
    """Write texts, of one or more whole lines each, many at a time."""
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if len(held) == _TEXTS_AT_ONCE or size > fmt.MIB:
            out.write("".join(held))
            held.clear()
            size = 0
    out.write("".join(held))


def _event_lines(scan: LogScan, ids: OwnIds, say: Say) -> Iterator[str]:
    for record in scan.records():
        try:
            yield from events(record, ids)
        except _UNREADABLE as error:
            scan.skipped += 1
            say(f"segment {record.segment}: the record at offset {record.offset} cannot be read ({error!r})")


def _record_line(record: Record) -> str:
    line: dict[str, Any] = {
        "segment": record.segment,
        "offset": record.offset,
        "lsn": record.lsn,
        "end": record.end,
        "type": kinds.NAMES.get(record.type, record.type),
        "flags": record.flags,
        "last": bool(record.flags & fmt.LAST_OF_GROUP),
        "size": len(record.body),
        "durable": record.durable,
        "checksum": f"{record.checksum:016x}",
        "previous": f"{record.previous:016x}",
    }
    try:
        line["head"] = plain_head(record.head())
        if record.tail_bytes:
            line["tail"] = unpack(record.tail_bytes)
        return dumps(line) + "\n"
    except _UNREADABLE:
        # Shown as it is: this is the view for whoever has to find out what went wrong.
        return dumps({**line, "head": None, "body": bytes(record.body)}) + "\n"


def _learn(record: Record, ids: OwnIds) -> None:
    try:
        learn_ids(record, ids)
    except _UNREADABLE:
        # The dump itself meets the same record again and says so.
        return


def _on_stderr(text: str) -> None:
    print(f"nobroker-dump: {_printable(text)}", file=sys.stderr)


def _silently(text: str) -> None:
    """For a first pass, whose findings the second repeats."""


def _printable(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode("ascii")


KINDS: dict[str, Callable[[str | Path, str, IO[str], Say | None], int]] = {
    "events": dump_events,
    "jobs": dump_jobs,
    "records": dump_records,
}


def run(directory: str, name: str, kind: str, output: str | None) -> int:
    """Dump to a file, or to standard output;

    returns the exit code: 0, or 1 when something was left out or went wrong.
    """
    try:
        if output is None:
            skipped = KINDS[kind](directory, name, sys.stdout, None)
            sys.stdout.flush()
        else:
            with open(output, "w", encoding="ascii", newline="\n") as out:
                skipped = KINDS[kind](directory, name, out, None)
    except BrokenPipeError:
        # The reader has seen enough. Nothing may be written when the interpreter flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (NobrokerError, OSError, ValueError) as error:
        _on_stderr(str(error))
        return 1
    return 1 if skipped else 0


def main(arguments: list[str] | None = None) -> None:
    """The command `nobroker-dump`."""
    import click

    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    @click.argument("directory", type=click.Path(), metavar="DIR")
    @click.option(
        "-q", "--queue", "name", default="default", show_default=True, metavar="NAME", help="Which queue."
    )
    @click.option("--jobs", "kind", flag_value="jobs", help="One line per job in its present state.")
    @click.option("--records", "kind", flag_value="records", help="One line per raw record.")
    @click.option(
        "-o", "--output", type=click.Path(), metavar="FILE", help="Write there, not to standard output."
    )
    def command(directory: str, name: str, kind: str | None, output: str | None) -> None:
        """Write the log of a queue as JSON Lines: one line per event.

        With --jobs, one per job, as `nobroker import` takes it back. Changes nothing and works on damaged
        logs: what had to be
        left out is said on stderr, and the exit code is then 1.

        \b
        Examples:
          nobroker-dump jobs | jq 'select(.event == "nack") | .error'
          nobroker-dump jobs -q emails --jobs -o emails.jsonl
        """
        raise SystemExit(run(directory, name, kind or "events", output))

    command.main(args=arguments, prog_name="nobroker-dump")


if __name__ == "__main__":
    main()
