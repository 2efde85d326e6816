"""Reader of the log directories that nobroker 0.1 wrote.

What is on the disk there: `NAME.current` holds, as decimal text, which generation counts (0 when the file is
missing);
`NAME.GGGGGG.log` is that generation's log: a header of 16 bytes (`NOBROKER`, u16 version 1, u32 generation,
u16 zero), then records of
u32 body length, u8 type, u32 CRC-32 of type and body, and the body, a JSON object; little-endian. A job's
state is what
its records say, one after the other.

Nothing is changed: a torn tail, which a killed writer leaves, is reported and left where it is.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nobroker.errors import CorruptLogError, StorageError
from nobroker.job import Job, JobState

from . import jsontext

Report = Callable[[str], None]

_log = logging.getLogger(__name__)
_HEADER_SIZE = 16
_RECORD_HEADER_SIZE = 9
_BEGINNING = b"NOBROKER"
_VERSION = 1
_MAX_BODY = 8 * 2**20
_BUFFER = 2**20
_LOG_FILE = re.compile(r"(?P<name>.+)\.(?P<generation>\d{6,})\.log", re.DOTALL)


def list_v0(directory: str | Path) -> list[str]:
    """Names of the queues of nobroker 0.1 in a directory, sorted.

    Raises:
        StorageError: the directory cannot be read.
    """
    try:
        files = sorted(Path(directory).iterdir())
    except OSError as error:
        raise StorageError(f"{directory}: cannot be listed: {error}", path=str(directory)) from error
    names = {match["name"] for path in files if (match := _LOG_FILE.fullmatch(path.name)) and _is_log(path)}
    return sorted(names)


def read_v0(directory: str | Path, name: str = "default", report: Report | None = None) -> Iterator[Job]:
    """All jobs of a queue of nobroker 0.1, every state kept, in the order in which they were inserted.

    Args:
        directory: where its files are.
        name: of the queue.
        report: called with a sentence for each piece of the log that had to be left out; without it they are
            logged as warnings.

    A leased job keeps its deadline, but not its token, which was a text there and is a number here. Memory
    grows with the number of jobs.

    Raises:
        StorageError: there is no such queue, or it cannot be read.
        CorruptLogError: the file is not a log of that version.
    """
    path = _current_log(Path(directory), name)
    table = _Table()
    say = report or _log.warning
    try:
        with path.open("rb") as stream:
            _check_header(stream.read(_HEADER_SIZE), path)
            for record in _records(stream, path, say):
                table.apply(record, path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}", path=str(path)) from error
    if table.orphans:
        say(f"{path}: {table.orphans} records speak of jobs that the log does not have; they were left out")
    yield from sorted(table.jobs.values(), key=lambda job: job.seq)


def without_leases(jobs: Iterable[Job]) -> Iterator[Job]:
    """The jobs as a queue can take them over: a leased one waits, ready, until its lease would have ended.

    Whoever leased it may still be at work, and its token means nothing here. The attempt counts.
    """
    for job in jobs:
        if job.state is JobState.LEASED:
            job.state = JobState.READY
            job.available_at = max(job.available_at, job.lease_deadline or 0.0)
            job.lease_deadline = None
        yield job


# -- files --------------------------------------------------------------------------------------------------


def _is_log(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_BEGINNING)) == _BEGINNING
    except OSError as error:
        _log.warning("%s: cannot be read: %s", path, error)
        return False


def _current_log(directory: Path, name: str) -> Path:
    pointer = directory / f"{name}.current"
    generation = 0
    try:
        text = pointer.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        text = "0"
    except OSError as error:
        raise StorageError(f"{pointer}: cannot be read: {error}", path=str(pointer)) from error
    if text.isdecimal() and text.isascii():
        generation = int(text)
    else:
        raise CorruptLogError(
            f"{pointer}: {text[:40]!r} is not the number of a generation; write the number of the newest "
            f"{name}.NNNNNN.log into it to read that one",
            path=str(pointer),
            offset=0,
        )
    path = directory / f"{name}.{generation:06d}.log"
    if not path.is_file():
        found = ", ".join(list_v0(directory)) or "none"
        raise StorageError(
            f"{path}: there is no queue {name!r} of nobroker 0.1 here; queues found: {found}", path=str(path)
        )
    return path


def _check_header(raw: bytes, path: Path) -> None:
    if len(raw) < _HEADER_SIZE:
        raise CorruptLogError(
            f"{path}: {len(raw)} bytes are too few for a log's header", path=str(path), offset=0
        )
    beginning, version = raw[:8], int.from_bytes(raw[8:10], "little")
    if beginning != _BEGINNING or version != _VERSION:
        what = f"version {version}" if beginning == _BEGINNING else f"a file that begins with {beginning!r}"
        raise CorruptLogError(f"{path}: {what} is not a log of nobroker 0.1", path=str(path), offset=0)


# -- records ------------------------------------------------------------------------------------------------


class _Record(NamedTuple):
    offset: int
    type: int
    body: dict[str, Any]


def _records(stream: BinaryIO, path: Path, say: Report) -> Iterator[_Record]:
    """Every record that verifies. A bad one is stepped over if a good one follows it;

    else the log ends there.
    """
    at = _HEADER_SIZE
    good_end = at
    while raw := stream.read(_RECORD_HEADER_SIZE):
        body, why = b"", "it is cut short"
        if len(raw) == _RECORD_HEADER_SIZE:
            length, kind, checksum = _number(raw[:4]), raw[4], _number(raw[5:])
            if length > _MAX_BODY:
                why = f"its length of {length} bytes cannot be"
            elif len(body := stream.read(length)) == length:
                why = _fault(kind, body, checksum)
        if not why:
            if at != good_end:
                say(f"{path}: {at - good_end} bytes at offset {good_end} do not verify; they were left out")
            record = _Record(at, kind, jsontext.decode(body.decode()))
            at = good_end = at + len(raw) + len(body)
            yield record
            continue
        if len(raw) + len(body) < _RECORD_HEADER_SIZE or len(body) != length or length > _MAX_BODY:
            break
        at += len(raw) + len(body)
    rest = path.stat().st_size - good_end
    if rest:
        say(f"{path}: {rest} bytes from offset {good_end} on were left out: no whole record stands there")


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _fault(kind: int, body: bytes, checksum: int) -> str:
    """What is wrong with a record; empty when nothing is."""
    if zlib.crc32(body, zlib.crc32(bytes((kind,)))) != checksum:
        return "its checksum does not fit"
    if kind not in _EFFECTS:
        return f"its type {kind} is not known"
    try:
        found = jsontext.decode(body.decode())
    except ValueError:
        return "it is not JSON"
    return "" if isinstance(found, dict) else "it is not a JSON object"


# -- what records do ----------------------------------------------------------------------------------------


@dataclass
class _Table:
    """The jobs, as far as the log was read."""

    jobs: dict[str, Job] = field(default_factory=dict)
    orphans: int = 0

    def apply(self, record: _Record, path: Path) -> None:
        try:
            _EFFECTS[record.type](self, record.body)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise CorruptLogError(
                f"{path}: the record at offset {record.offset} verifies but makes no sense ({error!r})",
                path=str(path),
                offset=record.offset,
            ) from error

    def insert(self, body: dict[str, Any]) -> None:
        deadline = body.get("lease_deadline")
        error = body.get("last_error")
        job = Job(
            id=str(body["id"]),
            payload=body.get("payload"),
            priority=int(body.get("priority", 0)),
            state=JobState(body.get("state", "ready")),
            attempts=int(body.get("attempts", 0)),
            max_attempts=int(body.get("max_attempts", 5)),
            available_at=float(body.get("available_at", 0.0)),
            enqueued_at=float(body.get("enqueued_at", 0.0)),
            lease_deadline=None if deadline is None else float(deadline),
            last_error=None if error is None else str(error),
            seq=int(body.get("seq", 0)),
        )
        self.jobs[job.id] = job

    def purge(self, _: dict[str, Any]) -> None:
        self.jobs.clear()

    def lease(self, body: dict[str, Any]) -> None:
        self._change(
            body, JobState.LEASED, attempts=int(body["attempts"]), lease_deadline=float(body["deadline"])
        )

    def extend(self, body: dict[str, Any]) -> None:
        job = self._find(body)
        if job is not None and job.state is JobState.LEASED:
            job.lease_deadline = float(body["deadline"])

    def ack(self, body: dict[str, Any]) -> None:
        self._change(body, JobState.DONE)

    def nack(self, body: dict[str, Any]) -> None:
        changes: dict[str, Any] = {
            "available_at": float(body["available_at"]),
            "last_error": body.get("error"),
        }
        if "attempts" in body:
            changes["attempts"] = int(body["attempts"])
        self._change(body, JobState.READY, **changes)

    def reclaim(self, body: dict[str, Any]) -> None:
        changes = {"available_at": float(body["available_at"])} if "available_at" in body else {}
        self._change(body, JobState.READY, **changes)

    def dead(self, body: dict[str, Any]) -> None:
        changes = {"last_error": body["error"]} if "error" in body else {}
        self._change(body, JobState.DEAD, **changes)

    def requeue(self, body: dict[str, Any]) -> None:
        changes: dict[str, Any] = {"attempts": 0, "available_at": float(body.get("available_at", 0.0))}
        if "max_attempts" in body:
            changes["max_attempts"] = int(body["max_attempts"])
        self._change(body, JobState.READY, **changes)

    def _find(self, body: dict[str, Any]) -> Job | None:
        job = self.jobs.get(str(body["id"]))
        if job is None:
            self.orphans += 1
        return job

    def _change(self, body: dict[str, Any], state: JobState, **changes: Any) -> None:
        job = self._find(body)
        if job is None:
            return
        job.state = state
        job.lease_deadline = None
        for name, value in changes.items():
            setattr(job, name, value)


_EFFECTS: dict[int, Callable[[_Table, dict[str, Any]], None]] = {
    1: _Table.insert,
    2: _Table.lease,
    3: _Table.ack,
    4: _Table.nack,
    5: _Table.reclaim,
    6: _Table.dead,
    7: _Table.requeue,
    8: _Table.purge,
    9: _Table.extend,
}
