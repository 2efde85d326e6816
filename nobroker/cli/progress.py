"""How far a long command has come: a bar on a terminal, now and then a line elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from nobroker.cli.text import escape

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

LINE_EVERY = 5.0  # seconds between lines where no bar can be drawn


class Progress:
    """Counts things of one kind up to a total.

    Args:
        label: what is being done.
        total: how many there will be; None where that is not known.
        unit: what is counted, in the plural.
    """

    def __init__(self, label: str, total: int | None = None, unit: str = "jobs") -> None:
        self._label = escape(label)
        self._total = total
        self._unit = unit
        self._began = self._said = time.monotonic()
        self._done = 0
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        self._began = self._said = time.monotonic()
        if sys.stderr.isatty():
            self._bar = _draw()
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=self._total, rate="", note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def rate(self) -> float:
        """Things per second so far."""
        return self._done / max(time.monotonic() - self._began, 1e-9)

    def at(self, done: int, note: str = "", *, total: int | None = None) -> None:
        """Say that `done` things are done by now, and how many there will be if that has become clear."""
        self._done = done
        self._total = self._total if total is None else total
        speed = f"{self.rate:,.0f} {self._unit}/s"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=self._total, rate=speed, note=escape(note))
            return
        now = time.monotonic()
        if now - self._said >= LINE_EVERY:
            self._said = now
            of = "" if self._total is None else f" of {self._total:,}"
            more = f"  {escape(note)}" if note else ""
            print(f"{self._label}: {done:,}{of} {self._unit}, {speed}{more}", file=sys.stderr, flush=True)


def _draw() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=True),
    )
