"""The lines of a dump of jobs: a header that says what it is, then one job each, every field kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nobroker.job import Job
from nobroker.stores.base import Alike

from .failures import BadInputError
from .jsonvalue import dumps, from_jsonable, loads
from .lines import Lines, packed_texts
from .readers import Parser

VERSION = 1
_TEXTS = ("id", "lane", "state")
_NUMBERS = ("attempts", "max_attempts", "priority", "seq", "available_at", "enqueued_at")
_NUMBER_KINDS = (int, float)


def header(name: str) -> str:
    """The first line of a dump of the queue `name`."""
    return dumps({"nobroker": "jobs", "version": VERSION, "queue": name}) + "\n"


def to_lines(jobs: Iterable[Job | Alike]) -> Iterator[str]:
    """Each job as one line of strict JSON; some lines at a time."""
    packed, payloads = b"", [""]
    for job in jobs:
        if isinstance(job, Job):
            yield dumps(job.to_dict()) + "\n"
            continue
        try:
            if job.packed != packed:
                packed, payloads = job.packed, packed_texts(job.packed)
            yield _alike(job, payloads[job.index : job.index + len(job.seqs)])
        except ValueError as error:
            raise job.corrupt(f"payloads from job {job.job.id} on: {error}") from error


def _alike(jobs: Alike, payloads: list[str]) -> str:
    lines = Lines(len(jobs.seqs))
    seqs = list(map(str, jobs.seqs))
    columns: dict[str, Callable[[], None]] = {
        "id": lambda: lines.ids(jobs.prefix, seqs, jobs.own),
        "payload": lambda: lines.texts("payload", payloads),
        "available_at": lambda: lines.moments("available_at", jobs.available),
        "enqueued_at": lambda: lines.moments("enqueued_at", jobs.enqueued),
        "seq": lambda: lines.texts("seq", seqs),
    }
    same: dict[str, Any] = {}
    for name, value in jobs.job.to_dict().items():
        if name not in columns:
            same[name] = value
            continue
        if same:
            lines.same(same)
            same = {}
        columns[name]()
    lines.same(same)
    return lines.text()


def is_header(line: str) -> bool:
    """Whether this line is the header of a dump of jobs.

    Raises:
        BadInputError: it is one, but of a version that this release does not know.
    """
    if '"nobroker"' not in line[:200]:
        return False
    try:
        found = loads(line)
    except ValueError:
        return False
    if not isinstance(found, dict) or found.get("nobroker") != "jobs":
        return False
    if found.get("version") != VERSION:
        raise BadInputError(
            f"a dump of jobs of version {found.get('version')!r}; this release reads version {VERSION}",
            line=1,
        )
    return True


def jobs_of(lines: Iterable[str], number: int) -> Iterator[Job]:
    """The jobs of the lines of a dump; `number` is that of the first line.

    Raises:
        BadInputError: with the line number, for a line that is no job.
    """
    lines = list(lines)
    batch = Parser().batch(lines, number, 0)
    for place, value in zip(batch.places, batch.values, strict=True):
        yield _job(_untagged(value, lines[place - number], place), place)


def _untagged(value: Any, line: str, number: int) -> Any:
    if '"$' not in line and "\\u0024" not in line:
        return value
    try:
        return from_jsonable(value)
    except ValueError as error:
        raise BadInputError(str(error), line=number) from error


def _job(fields: Any, line: int) -> Job:
    if type(fields) is not dict or any(type(fields.get(name, "")) is not str for name in _TEXTS):
        raise BadInputError("not a job of a dump of jobs", line=line)
    for name in _NUMBERS:
        if type(fields.get(name, 0)) not in _NUMBER_KINDS:
            raise BadInputError(f"not a job of a dump of jobs: {name} is {fields[name]!r}", line=line)
    try:
        return Job.from_dict(fields)
    except KeyError as error:
        raise BadInputError(f"not a job of a dump of jobs: it has no {error.args[0]}", line=line) from error
    except (ValueError, TypeError) as error:
        raise BadInputError(f"not a job of a dump of jobs: {error}", line=line) from error
