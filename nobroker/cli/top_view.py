"""How `nobroker top` draws: all text made safe, and no more rows than there is room for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nobroker.cli import output, ps
from nobroker.cli.text import escape
from nobroker.cli.top_look import Look, Row

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

QUEUES: Final = (
    "QUEUE", "WAITING", "DELAYED", "RUNNING", "DEAD", "IN/S", "OUT/S", "OLDEST", "WAIT P50", "P95", "STATE",
)  # fmt: skip
PROCESSES: Final = tuple(column for column in ps.COLUMNS if column not in ("HOST", "SEEN"))
NO_LANE: Final = "(none)"
HELP: Final = "up/down choose   p pause   r resume   d requeue dead   q quit"
_OTHERS: Final = 9  # lines that are no rows: the head, two tables' own, between them, two notes, the help


def queue_cells(row: Row) -> tuple[str, ...]:
    """The cells of `QUEUES`."""
    state = ["paused"] if row.paused else []
    if row.limit is not None:
        state.append(f"at most {row.limit}")
    counts = (row.ready, row.delayed, row.leased, row.dead)
    rates = (_rate(row.added), _rate(row.ended))
    ages = (_age(age) for age in (row.oldest, row.wait_p50, row.wait_p95))
    return (row.name or NO_LANE, *(f"{count:,}" for count in counts), *rates, *ages, ", ".join(state))


def process_cells(look: Look) -> list[tuple[str, ...]]:
    """The cells of `PROCESSES`, a row for each process and each job beyond its first."""
    wanted = [ps.COLUMNS.index(column) for column in PROCESSES]
    return [tuple(row[at] for at in wanted) for row in ps.rows(look.processes, look.now)]


def head(look: Look, place: str) -> str:
    """The line above all."""
    total = look.total
    counts = f"{total.ready:,} waiting, {total.leased:,} running, {total.dead:,} dead"
    paused = "   PAUSED" if total.paused else ""
    return f"{time.strftime('%H:%M:%S')}  {place}   {counts}, {output.size(total.bytes)}{paused}"


def draw(look: Look, place: str, chosen: str | None, said: str, height: int | None) -> RenderableType:
    """One frame.

    Args:
        place: which queue it is.
        chosen: name of the chosen lane; None: there is nothing to choose.
        said: what became of the last key.
        height: lines that there are; None: as many as it takes.
    """
    from rich.console import Group
    from rich.text import Text

    processes = process_cells(look)
    rows = look.rows
    room = _room(height, len(rows), len(processes))
    at = next((number for number, row in enumerate(rows) if row.name == chosen), 0)
    first = max(0, min(at - room[0] // 2, len(rows) - room[0]))
    shown = rows[first : first + room[0]]
    queues = _table(QUEUES, QUEUES[1:-1])
    for row in shown:
        queues.add_row(*_texts(queue_cells(row)), style="reverse" if row.name == chosen else "")
    workers = _table(PROCESSES, ps.RIGHT)
    for cells in processes[: room[1]]:
        workers.add_row(*_texts(cells))
    parts: list[RenderableType] = [Text(escape(head(look, place)), no_wrap=True, style="bold"), queues]
    if len(shown) < len(rows):
        parts.append(_note(f"{len(rows) - len(shown)} more queues: choose up and down"))
    parts.append(Text())
    parts.append(workers if processes else _note("no process works on this queue"))
    if room[1] < len(processes):
        parts.append(_note(f"{len(processes) - room[1]} more rows: nobroker ps"))
    if chosen is not None:
        parts.append(_note(said or HELP))
    return Group(*parts)


def _room(height: int | None, queues: int, processes: int) -> tuple[int, int]:
    """How many rows of either table are shown."""
    if height is None:
        return queues, processes
    room = max(2, height - _OTHERS)
    if queues + processes <= room:
        return queues, processes
    for_queues = min(queues, max(1, room // 2, room - processes))
    return for_queues, min(processes, max(1, room - for_queues))


def _table(columns: Sequence[str], right: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        justify = "right" if column in right else "left"
        made.add_column(column, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    return made


def _texts(cells: Sequence[str]) -> list[RenderableType]:
    from rich.text import Text

    return [Text(escape(cell)) for cell in cells]


def _note(text: str) -> RenderableType:
    from rich.text import Text

    return Text(escape(text), no_wrap=True, style="dim")


def _age(seconds: float | None) -> str:
    if seconds is None or seconds >= 1:
        return output.duration(seconds)
    return f"{seconds * 1000:.0f} ms"


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"
