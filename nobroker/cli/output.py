"""What commands print: one JSON document, a table on a terminal, tab-separated text in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nobroker.cli.text import escape, gist, shorten

if TYPE_CHECKING:
    from nobroker import Job, QueueStats

COUNTS = ("ready", "delayed", "leased", "done", "dead", "total")
JOB_COLUMNS = ("ID", "STATE", "PRIORITY", "ATTEMPTS", "LANE", "PAYLOAD", "ERROR")
_CELL = 80  # characters of a payload or an error in a list


def on_terminal() -> bool:
    return sys.stdout.isatty()


def line(text: str) -> None:
    """Print one line of our own words and of stored text alike, made safe."""
    print(escape(text))


def note(text: str) -> None:
    """Say something beside the output, on stderr."""
    print(escape(text), file=sys.stderr, flush=True)


def encode(value: Any, indent: int | None = None) -> str:
    """Return `value` as strict JSON in ASCII; what JSON lacks becomes a tagged object."""
    from nobroker_tools.jsonvalue import dumps, to_jsonable

    if indent is None:
        text: str = dumps(value)
        return text
    try:
        return json.dumps(to_jsonable(value), indent=indent, allow_nan=False)
    except RecursionError:  # nested too deeply for the standard library
        text = dumps(value)
        return text


def document(value: Any) -> None:
    """Print `value` as one JSON document."""
    print(encode(value, indent=2))


def document_of_many(values: Iterable[Any]) -> int:
    """Print one JSON array, an item a line, each as soon as it is there; return how many there were."""
    count = 0
    for value in values:
        print(("[\n" if count == 0 else ",\n") + encode(value), end="")
        count += 1
    print("[]" if count == 0 else "\n]")
    return count


def display(value: Any) -> str:
    """Return a stored value in one line for people: JSON, but with readable letters, and safe to print."""
    from nobroker_tools.jsonvalue import dumps, to_jsonable

    try:
        return escape(json.dumps(to_jsonable(value), ensure_ascii=False))
    except RecursionError:  # nested too deeply for the standard library
        text: str = dumps(value)
        return text


def fields(report: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name."""
    from dataclasses import fields as fields_of

    return {field.name: getattr(report, field.name) for field in fields_of(report)}


def stats_dict(stats: QueueStats) -> dict[str, Any]:
    """Return the counts, then what comes with them."""
    counts = {name: getattr(stats, name) for name in COUNTS}
    return {
        **counts,
        "oldest_ready_age": stats.oldest_ready_age,
        "paused": stats.paused,
        "bytes": stats.bytes,
    }


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Print rows under their columns: a table on a terminal, else lines of cells that tabs part.

    Args:
        columns: the headings.
        rows: of as many cells; they are escaped here.
        right: headings of the columns that are flush right.
    """
    if not on_terminal():
        print("\t".join(columns))
        for row in rows:
            print("\t".join(escape(str(cell)) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(escape(str(cell))) for cell in row))
    Console(highlight=False, markup=False).print(drawn)


def pairs(values: Mapping[str, object]) -> None:
    """Print names and values, one pair a line, the values under each other."""
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        print(f"{name:<{width}}  {escape(str(value))}")


def job_row(job: Job) -> tuple[str, ...]:
    """Return the cells of `JOB_COLUMNS`."""
    state = job.state.value
    if state == "ready" and job.available_at > now():
        state = f"ready in {duration(job.available_at - now())}"
    return (
        job.id,
        state,
        str(job.priority),
        f"{job.attempts}/{job.max_attempts}",
        job.lane,
        shorten(display(job.payload), _CELL),
        shorten(gist(job.last_error or ""), _CELL),
    )


def jobs(found: Iterable[Job]) -> None:
    """Print jobs, one a row."""
    table(JOB_COLUMNS, (job_row(job) for job in found), right=("PRIORITY", "ATTEMPTS"))


def job(found: Job) -> None:
    """Print one job with all its fields."""
    from nobroker.cli.text import escape_lines

    fields = found.to_dict()
    shown = {name: _field(name, value) for name, value in fields.items()}
    width = max(len(name) for name in shown)
    for name, value in shown.items():
        first, *rest = escape_lines(value).split("\n")
        print(f"{name:<{width}}  {first}")
        for more in rest:
            print(f"{'':<{width}}  {more}")


def _field(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and (name.endswith("_at") or name == "lease_deadline"):
        return moment(value)
    if isinstance(value, str) and name not in ("payload", "result", "metadata", "progress", "job_state"):
        return value.rstrip("\n")
    return display(value)


def now() -> float:
    """Return the time in seconds since the epoch."""
    from nobroker.clock import SystemClock

    return SystemClock().wall_us() / 1e6


def moment(seconds: float) -> str:
    """Return a time in seconds since the epoch as a date and time of day of this place."""
    from datetime import datetime

    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return repr(seconds)  # beyond the calendar


def duration(seconds: float | None) -> str:
    """Return a length of time in a form for people: `12.3 s`, `4 min 10 s`, `3 h 5 min`, `2 d 4 h`."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def size(count: float) -> str:
    """Return a number of bytes in a form for people."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024 or unit == "GiB":
            return f"{count:.1f} {unit}"
    return f"{count:.0f} B"


def plural(count: int, word: str) -> str:
    """Return `1 job`, `2 jobs`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
