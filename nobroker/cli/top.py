"""`nobroker top`: queues and workers, live."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from nobroker.cli.command import command
from nobroker.cli.failures import CommandError, one_line
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from nobroker import Queue
    from nobroker.cli.signals import Stop
    from nobroker.cli.top_look import Look

REQUEUED_AT_ONCE: Final = 1000
_KEY_S: Final = 0.2  # a signal is noticed as soon as that


@command("top", "nobroker top", "nobroker top --every 5", "nobroker top --once", "nobroker --json top --once")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    metavar="SECONDS",
    help="Look again after so long.  [default: 1]",
)
@click.option("--once", is_flag=True, help="Print one look, and end; also without a terminal.")
def cli(settings: Settings, every: float, once: bool) -> None:
    """Show the queues of an application, what works on them and what runs now, until q or Ctrl-C.

    IN/S and OUT/S are jobs a second since the last look. WAIT is how long jobs waited, where workers measure
    that: the largest of all workers.

    Keys: up and down, or k and j, choose a queue. p pauses it, r resumes it, in all processes. d makes its
    dead jobs ready again.
    """
    with settings.look() as queue:
        if once:
            _print(settings, _look(settings, queue, None))
            return
        if settings.json:
            raise click.UsageError("--json goes with --once")
        if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
            raise CommandError("top draws on a terminal, and this is none; --once prints one look")
        Top(settings, queue, every).run()


def _look(settings: Settings, queue: Queue, before: Look | None) -> Look:
    from nobroker.cli import output, top_look
    from nobroker.running.registry import processes

    found = processes(settings.dir, settings.queue)
    return top_look.look(queue, found, before, at=time.monotonic(), now=output.now())


def _print(settings: Settings, look: Look) -> None:
    from nobroker.cli import output, top_view

    if settings.json:
        output.document({"queue": settings.queue, **look.to_dict()})
        return
    if output.on_terminal():
        from rich.console import Console

        console = Console(highlight=False, markup=False)
        console.print(top_view.draw(look, _place(settings), None, "", None))
        return
    output.line(top_view.head(look, _place(settings)))
    output.table(top_view.QUEUES, [top_view.queue_cells(row) for row in look.rows])
    output.table(top_view.PROCESSES, top_view.process_cells(look))


def _place(settings: Settings) -> str:
    return f"{settings.dir} {settings.queue}"


class Top:
    """The live view."""

    def __init__(self, settings: Settings, queue: Queue, every: float) -> None:
        self._settings = settings
        self._queue = queue
        self._every = every
        self._look = _look(settings, queue, None)
        self._chosen: str | None = None
        self._said = ""

    def run(self) -> None:
        """Until q, a signal, or the end of the terminal, which is put back as it was however it ends."""
        from rich.console import Console
        from rich.live import Live

        from nobroker.cli.keys import Keys
        from nobroker.cli.signals import stop_on_signals

        console = Console(highlight=False, markup=False)
        with stop_on_signals("SIGHUP", "SIGQUIT") as stop, Keys() as keys:
            with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
                while not stop.is_set():
                    live.update(self._draw(console), refresh=True)
                    if not self._until_something(keys, stop):
                        return

    def _draw(self, console: Console) -> Any:
        from nobroker.cli import top_view

        return top_view.draw(
            self._look, _place(self._settings), self._name() or "", self._said, console.height
        )

    def _until_something(self, keys: Any, stop: Stop) -> bool:
        """Wait for a key, or for the next look; whether to go on."""
        due = self._look.at + self._every
        while not stop.is_set():
            left = due - time.monotonic()
            if left <= 0:
                self._look = _look(self._settings, self._queue, self._look)
                return True
            key = keys.get(min(left, _KEY_S))
            if key is not None:
                return self._obey(key)
        return False

    def _obey(self, key: str) -> bool:
        """Do what a key says; whether to go on."""
        from nobroker import NobrokerError
        from nobroker.cli.keys import DOWN, ENDED, UP

        if key in ("q", ENDED):
            return False
        if key in (UP, "k", DOWN, "j"):
            self._choose(-1 if key in (UP, "k") else 1)
            self._said = ""
        elif key in "prd" and (name := self._name()) is not None:
            try:
                self._said = self._change(key, name)
            except (NobrokerError, CommandError, OSError) as error:
                self._said = one_line(error)
            self._look = _look(self._settings, self._queue, self._look)
        return True

    def _name(self) -> str | None:
        """Of the chosen queue; of the first, when the chosen one has gone."""
        names = [row.name for row in self._look.rows]
        return self._chosen if self._chosen in names else next(iter(names), None)

    def _choose(self, step: int) -> None:
        names = [row.name for row in self._look.rows]
        name = self._name()
        if name is not None:
            self._chosen = names[max(0, min(names.index(name) + step, len(names) - 1))]

    def _change(self, key: str, lane: str) -> str:
        """Pause, resume or requeue; what was done."""
        from nobroker.cli import output, top_view

        shown = lane or top_view.NO_LANE
        with self._settings.open_existing() as queue:
            if key == "p":
                queue.pause(lane=lane)
                return f"paused {shown}"
            if key == "r":
                queue.resume(lane=lane)
                return f"resumed {shown}" + ("; the queue as a whole is paused" if queue.paused else "")
            dead = queue.dlq(limit=REQUEUED_AT_ONCE, lane=lane)
            done = sum(queue.requeue_dead(job.id) for job in dead)
            left = queue.stats(lane=lane).dead
        more = f", {left:,} are left" if left else ""
        return f"requeued {output.plural(done, 'dead job')} of {shown}{more}"
