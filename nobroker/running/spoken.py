"""What a process says of itself, as JSON and back. What is read is foreign text until each field has been
looked at: the directory is as open as its permissions are.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NamedTuple

from nobroker.running.info import CurrentJob, ProcessInfo, QueueWait

MAX_BYTES: Final = 1 << 20
"""A file that is larger is none of ours."""
MAX_JOBS: Final = 100
"""Of the jobs of one process, so many are shown: those that have run for longest."""
MAX_NAMES: Final = 200
_MAX_TEXT: Final = 300
_MAX_NUMBER: Final = 2**62


class Said(NamedTuple):
    """What a process said.

    Attributes:
        interval: seconds between its signs of life.
        boot: the boot of the machine it runs on.
        locked: whether it holds a lock as long as it lives.
    """

    info: ProcessInfo
    interval: float
    boot: str
    locked: bool


def as_bytes(said: dict[str, Any]) -> bytes:
    """The fields of a process, as they are written."""
    jobs = sorted(said["jobs"], key=lambda job: float(job["started_at"]))
    short = {
        **said,
        "queues": [name[:_MAX_TEXT] for name in said["queues"][:MAX_NAMES]],
        "jobs": [{name: _short(value) for name, value in job.items()} for job in jobs[:MAX_JOBS]],
        "recycling": _short(said["recycling"]),
        "waits": [
            {name: _short(value) for name, value in wait.items()} for wait in said["waits"][:MAX_NAMES]
        ],
    }
    return json.dumps(short, allow_nan=False).encode("ascii")


def understood(text: bytes) -> Said:
    """What the bytes of a file say.

    Raises:
        ValueError, RecursionError: no process of ours said that.
    """
    fields = _Fields(json.loads(text, parse_constant=_refused))
    jobs = [_Fields(job) for job in fields.list("jobs", MAX_JOBS)]
    waits = [_Fields(wait) for wait in fields.list("waits", MAX_NAMES)]
    info = ProcessInfo(
        id=fields.text("id"),
        kind=fields.text("kind"),
        pid=fields.whole("pid"),
        host=fields.text("host"),
        supervisor=fields.text_or_none("supervisor"),
        state=fields.text("state"),
        started_at=fields.number("started_at"),
        seen_at=fields.number("seen_at"),
        queues=tuple(_text("queues", name) for name in fields.list("queues", MAX_NAMES)),
        threads=fields.whole("threads"),
        memory=None if fields.get("memory") is None else fields.whole("memory"),
        jobs=tuple(
            CurrentJob(
                id=job.text("id"),
                job_class=job.text("job_class"),
                queue=job.text("queue"),
                started_at=job.number("started_at"),
            )
            for job in jobs
        ),
        finished=fields.whole("finished"),
        failed=fields.whole("failed"),
        recycling=fields.text_or_none("recycling"),
        waits=tuple(
            QueueWait(
                queue=wait.text("queue"),
                count=wait.whole("count"),
                p50=wait.number("p50"),
                p95=wait.number("p95"),
            )
            for wait in waits
        ),
    )
    interval = fields.number("interval")
    if not 0 < interval <= 86400:
        raise ValueError(f"an interval of {interval} seconds")
    return Said(info, interval, fields.text("boot"), fields.get("locked") is True)


class _Fields:
    """A dict that somebody wrote."""

    def __init__(self, found: Any) -> None:
        if type(found) is not dict:
            raise ValueError(f"{type(found).__name__} where names and values belong")
        self.get = found.get

    def text(self, name: str) -> str:
        return _text(name, self.get(name))

    def text_or_none(self, name: str) -> str | None:
        return None if self.get(name) is None else self.text(name)

    def number(self, name: str) -> float:
        value: Any = self.get(name)
        if type(value) not in (int, float) or not 0 <= value < _MAX_NUMBER or not math.isfinite(value):
            raise ValueError(f"{name} is no number: {value!r:.50}")
        return float(value)

    def whole(self, name: str) -> int:
        value = self.get(name)
        if type(value) is not int or not 0 <= value < _MAX_NUMBER:
            raise ValueError(f"{name} is no whole number: {value!r:.50}")
        return value

    def list(self, name: str, most: int) -> list[Any]:
        value = self.get(name)
        if type(value) is not list or len(value) > most:
            raise ValueError(f"{name} is no list: {value!r:.50}")
        return value


def _text(name: str, value: Any) -> str:
    if type(value) is not str or len(value) > _MAX_TEXT:
        raise ValueError(f"{name} is no text: {value!r:.50}")
    return value


def _short(value: Any) -> Any:
    return value[:_MAX_TEXT] if type(value) is str else value


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no number")
