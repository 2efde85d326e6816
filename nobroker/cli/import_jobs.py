"""`nobroker import`: a file of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

import click

from nobroker.cli.command import command
from nobroker.cli.failures import CommandError
from nobroker.cli.progress import Progress
from nobroker.cli.settings import Settings

BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".msgpack": "msgpack",
    ".mpk": "msgpack",
}
BATCH_OF_OLD_JOBS = 1000


@command(
    "import",
    "nobroker import mails.jsonl --id-field order   # again adds nothing twice",
    "zcat rows.csv.gz | nobroker import - --format csv",
    "nobroker -q copy import dump-of-jobs.jsonl",
    "nobroker import --from-v0 ./.nobroker          # queues of nobroker 0.1, all states kept",
)
@click.argument("file", required=False, metavar="FILE|-")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonl", "json", "csv", "msgpack"]),
    help="[default: by the file's ending, else jsonl]",
)
@click.option("--id-field", metavar="NAME", help="Field of each record that is the job's id.")
@click.option("--priority", type=int, default=0, help="Of every job.")
@click.option("--delay", type=float, default=0.0, metavar="SECONDS", help="Of every job.")
@click.option("--max-attempts", type=int, metavar="N", help="Of every job.")
@click.option("--lane", default="", help="Of every job.")
@click.option("--batch", type=click.IntRange(1, 100_000), default=1000, metavar="N", help="Stored together.")
@click.option("--from-v0", "old", type=click.Path(), metavar="DIR", help="Directory of nobroker 0.1.")
def cli(
    settings: Settings,
    file: str | None,
    kind: str | None,
    id_field: str | None,
    old: str | None,
    batch: int,
    **options: Any,
) -> None:
    """Put in a job for each record of FILE: a line of JSON Lines, an element of a JSON array, a row of CSV,
    an object of msgpack. Or take back the jobs of `nobroker dump --jobs` as they were.

    With an id field, importing the same file again adds nothing twice.
    """
    if old is not None and file is None:
        _import_old(settings, old)
    elif file is not None and old is None:
        _import_file(settings, file, kind or _kind_of(file), id_field, batch, options)
    else:
        raise click.UsageError("name a FILE (or - for standard input), or --from-v0 DIR")


def _kind_of(file: str) -> str:
    return BY_SUFFIX.get(os.path.splitext(file)[1].lower(), "jsonl")


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with open(file, "rb") as stream:
        yield stream


def _import_file(
    settings: Settings, file: str, kind: str, id_field: str | None, batch: int, options: dict[str, Any]
) -> None:
    from nobroker.cli import output
    from nobroker_tools.importer import IMPORTERS

    with _opened(file) as stream:
        size = _size(stream)
        with settings.open() as queue, Progress("import") as progress:

            def report(done: int, read: int) -> None:
                progress.at(done, total=round(done * size / read) if size and read else None)

            result = IMPORTERS[kind](
                stream,
                queue,
                id_field=id_field,
                batch=batch,
                progress=report,
                name="standard input" if file == "-" else file,
                **options,
            )
            rate = progress.rate
    if settings.json:
        output.document({**output.fields(result), "known": result.known, "per_second": round(rate)})
    else:
        output.line(f"{result.describe()} ({rate:,.0f}/s)")


def _size(stream: IO[bytes]) -> int:
    """Return the size of a regular file in bytes, 0 for a pipe."""
    try:
        return os.fstat(stream.fileno()).st_size
    except (OSError, ValueError):
        return 0


def _import_old(settings: Settings, directory: str) -> None:
    from nobroker.cli import output
    from nobroker_tools.v0 import list_v0

    names = list_v0(directory)
    if settings.given_queue is not None:
        names = [name for name in names if name == settings.given_queue]
    if not names:
        wanted = "" if settings.given_queue is None else f" {settings.given_queue!r}"
        raise CommandError(f"no queue{wanted} of nobroker 0.1 in {directory!r}")
    found = [_import_old_queue(settings, directory, name) for name in names]
    if settings.json:
        output.document(found)
        return
    for row in found:
        output.line(f"{row['queue']}: {output.plural(row['read'], 'job')} read, {row['added']:,} added")


def _import_old_queue(settings: Settings, directory: str, name: str) -> dict[str, Any]:
    from nobroker.cli import output
    from nobroker_tools.v0 import read_v0, without_leases

    read = added = 0
    jobs = without_leases(read_v0(directory, name, output.note))
    batch = list(islice(jobs, BATCH_OF_OLD_JOBS))  # an unreadable log is told before a queue is made
    with settings.open(name) as queue, Progress(f"import {name}") as progress:
        while batch:
            read += len(batch)
            added += queue._import_jobs(batch)
            progress.at(read)
            batch = list(islice(jobs, BATCH_OF_OLD_JOBS))
    return {"queue": name, "read": read, "added": added}
