"""Bringing the records of a file into a queue, batch by batch.

Every batch is one `enqueue_many`: all of it or nothing. An error names the file and the line and says what
had been stored before;
with an id field, or with a dump of jobs, importing the mended file again adds only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

from nobroker.arguments import own_id
from nobroker.values import pack_value

from . import jobdump, readers, tables
from .failures import BadInputError
from .readers import Batch

if TYPE_CHECKING:
    from nobroker.queue import Queue

Progress = Callable[[int, int], None]
"""Called after each batch with the number of records and of bytes of the input that are done."""

BATCH_RECORDS = 1000
FORMATS = ("jsonl", "json", "csv", "msgpack")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did.

    Attributes:
        read: records in the input.
        added: jobs that are new in the queue.
        known: records whose id the queue had already.
        bytes: size of the input, in bytes.
        jobs: True when the input was a dump of jobs.
    """

    read: int
    added: int
    bytes: int
    jobs: bool = False

    @property
    def known(self) -> int:
        return self.read - self.added

    def describe(self) -> str:
        """One line for people."""
        what = "jobs" if self.jobs else "records"
        known = f", {self.known:,} of which were known already" if self.known else ""
        return f"{self.read:,} {what} read{known}; {self.added:,} jobs added"


def import_jsonl(
    stream: IO[bytes],
    queue: Queue,
    *,
    id_field: str | None = None,
    batch: int = BATCH_RECORDS,
    progress: Progress | None = None,
    name: str = "",
    **options: Any,
) -> ImportResult:
    """Enqueue the value of each line; or, from a dump of jobs, the jobs with all that is known of them.

    Args:
        stream: bytes, UTF-8.
        queue: where to.
        id_field: field of each record that is the job's id: a text or a whole number.
        batch: how many records are stored together.
        progress: see `Progress`.
        name: of the file, for messages.
        options: for `enqueue_many`, such as `priority`; no use with a dump of jobs.

    Raises:
        BadInputError: a line is not JSON, has no id, or cannot be a payload.
    """
    lines = readers.read_lines(stream, batch)
    with _Named(name) as errors:
        first = next(lines, None)
        if first is None:
            return ImportResult(0, 0, 0)
        if first[0] and jobdump.is_header(first[0][0]):
            return _import_jobs(chain([(first[0][1:], 2, first[2])], lines), queue, progress, errors)
        parser = readers.Parser()
        batches = (parser.batch(part, number, total) for part, number, total in chain([first], lines))
        return _import(batches, queue, id_field, progress, options, errors)


def import_json(
    stream: IO[bytes],
    queue: Queue,
    *,
    id_field: str | None = None,
    batch: int = BATCH_RECORDS,
    progress: Progress | None = None,
    name: str = "",
    **options: Any,
) -> ImportResult:
    """Enqueue each element of a JSON array. Arguments and errors as for `import_jsonl`."""
    with _Named(name) as errors:
        return _import(readers.read_json(stream, batch), queue, id_field, progress, options, errors)


def import_csv(
    stream: IO[bytes],
    queue: Queue,
    *,
    id_field: str | None = None,
    batch: int = BATCH_RECORDS,
    progress: Progress | None = None,
    name: str = "",
    **options: Any,
) -> ImportResult:
    """Enqueue each row as a dict of strings, by the names in the first row.

    Arguments and errors as for `import_jsonl`.
    """
    with _Named(name) as errors:
        return _import(tables.read_csv(stream, batch), queue, id_field, progress, options, errors)


def import_msgpack(
    stream: IO[bytes],
    queue: Queue,
    *,
    id_field: str | None = None,
    batch: int = BATCH_RECORDS,
    progress: Progress | None = None,
    name: str = "",
    **options: Any,
) -> ImportResult:
    """Enqueue each object of a msgpack stream. Arguments and errors as for `import_jsonl`."""
    with _Named(name) as errors:
        return _import(tables.read_msgpack(stream, batch), queue, id_field, progress, options, errors)


IMPORTERS: dict[str, Callable[..., ImportResult]] = {
    "jsonl": import_jsonl,
    "json": import_json,
    "csv": import_csv,
    "msgpack": import_msgpack,
}


class _Named:
    """Completes what goes wrong inside with the file's name and what had been stored."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stored = 0

    def __enter__(self) -> _Named:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BadInputError):
            error.name = self.name
            error.imported = self.stored


def _import(
    batches: Iterator[Batch],
    queue: Queue,
    id_field: str | None,
    progress: Progress | None,
    options: dict[str, Any],
    done: _Named,
) -> ImportResult:
    added = total = 0
    for batch in batches:
        total = batch.bytes_read
        values = batch.values
        if values:
            ids = None if id_field is None else _ids(batch, id_field)
            try:
                jobs = queue.enqueue_many(values, job_ids=ids, **options)
            except ValueError as error:
                found = _located(batch, ids)
                if found is None:
                    raise
                raise found from error
            added += len(values) if ids is None else sum(job.created for job in jobs)
            done.stored += len(values)
        if progress is not None:
            progress(done.stored, total)
    return ImportResult(done.stored, added, total)


def _import_jobs(
    parts: Iterator[tuple[list[str], int, int]], queue: Queue, progress: Progress | None, done: _Named
) -> ImportResult:
    added = total = 0
    for lines, number, total in parts:
        jobs = list(jobdump.jobs_of(lines, number))
        if jobs:
            added += queue._import_jobs(jobs)
            done.stored += len(jobs)
        if progress is not None:
            progress(done.stored, total)
    return ImportResult(done.stored, added, total, jobs=True)


def _ids(batch: Batch, field: str) -> list[str]:
    ids = []
    for index, value in enumerate(batch.values):
        found = value.get(field) if isinstance(value, dict) else None
        if type(found) is int:
            found = str(found)
        if not isinstance(found, str) or not found:
            what = "nothing" if found is None else repr(found)[:60]
            raise _at(
                batch,
                index,
                f"the id field {field!r} holds {what}; it takes a text or a whole number",
            )
        ids.append(found)
    return ids


def _located(batch: Batch, ids: list[str] | None) -> BadInputError | None:
    """Where in the file the first value or id is that the queue refuses; None when it is none of them."""
    for index, value in enumerate(batch.values):
        try:
            pack_value(value)
            if ids is not None:
                own_id(ids[index])
        except ValueError as error:
            return _at(batch, index, str(error))
    return None


def _at(batch: Batch, index: int, reason: str) -> BadInputError:
    place = batch.places[index]
    return BadInputError(reason, line=place) if batch.has_lines else BadInputError(reason, item=place)
