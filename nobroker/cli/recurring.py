"""`nobroker recurring`: the recurring tasks of an application, and a look at a file of them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli import failures
from nobroker.cli.command import command
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker.app import App, RecurringError, RecurringTask
    from nobroker.app.ticks import Board

NEXT = 3


@command(
    "recurring",
    "nobroker recurring myshop.jobs",
    "nobroker recurring",
    "nobroker recurring check recurring.yml",
    "nobroker recurring check recurring.yml myshop.jobs",
)
@click.argument("words", nargs=-1, metavar="[PACKAGE...]")
@click.option(
    "--recurring",
    metavar="FILE",
    help="Recurring tasks.  [default: recurring.yml, where there is one]",
)
@click.option("--app", "chosen", metavar="MODULE:NAME", help="Which application, where there are several.")
def cli(settings: Settings, words: tuple[str, ...], recurring: str | None, chosen: str | None) -> int:
    """List the recurring tasks of an application, with their next runs.

    PACKAGE is named as for `run`. Without one, the tasks are listed that the queue has heard of, whatever
    became of them.

    `recurring check FILE [PACKAGE...]` says what is wrong in a file, one line an error, and runs nothing. The
    packages define the jobs; without them, names of jobs are not looked at.

    Exit codes: 0 all is well, 1 there are errors.
    """
    if words[:1] == ("check",):
        return _check(settings, words[1:], chosen)
    if not words:
        _list_known(settings)
        return failures.DONE
    from nobroker.app.recurring import known_tasks, seen
    from nobroker.cli.applications import load_application, take_file

    app = load_application(words, chosen)
    take_file(app, recurring)
    board = _board(settings, app)
    now = app._now()
    tasks, errors = known_tasks(app)
    _print(settings, [_row(task, now) for task in seen(tasks, board, now)])
    return _tell(errors)


def _check(settings: Settings, words: tuple[str, ...], chosen: str | None) -> int:
    if not words:
        raise click.UsageError("recurring check takes the name of a file")
    from nobroker.app.recurring_file import read
    from nobroker.cli.applications import load_application

    app = load_application(words[1:], chosen) if words[1:] else None
    tasks = {} if app is None else dict(app._tasks)
    errors = read(app, words[0], tasks)
    if settings.json:
        from nobroker.cli import output

        keys = ("file", "line", "task", "key", "reason")
        output.document([{key: getattr(error, key) for key in keys} for error in errors])
        return failures.FAILED if errors else failures.DONE
    return _tell(errors)


def _tell(errors: list[RecurringError]) -> int:
    from nobroker.cli import output

    for error in errors:
        output.note(f"error: {failures.one_line(error)}")
    return failures.FAILED if errors else failures.DONE


def _board(settings: Settings, app: App) -> Board | None:
    """What the queue says of the tasks; None: there is no queue yet. Nothing is made."""
    from nobroker.app.ticks import Board

    app.close()  # importing it may have enqueued something
    place = Settings(settings.given_dir or str(app.path), settings.given_queue or app.name)
    if not place.exists():
        return None
    with place.look() as queue:
        return Board(queue)


def _list_known(settings: Settings) -> None:
    from nobroker.app.schedules import as_utc, schedule_of
    from nobroker.app.ticks import Board
    from nobroker.clock import SystemClock

    with settings.look() as queue:
        board = Board(queue)
    now = SystemClock().wall_us() / 1e6
    rows = []
    for name, place in sorted(board.places.items()):
        schedule = schedule_of(place.schedule)
        upcoming = [as_utc(tick) for tick in islice(schedule.upcoming(max(int(now), place.tick)), NEXT)]
        last = None if place.last is None else as_utc(place.last.tick)
        rows.append(_cells(name, schedule.text, schedule.zone, upcoming, last, name in board.pauses))
    _print(settings, rows)


def _row(task: RecurringTask, now: float) -> dict[str, Any]:
    start = max(filter(None, [datetime.fromtimestamp(now, UTC), task.last_run]))
    upcoming = list(islice(task.upcoming(start), NEXT))
    return _cells(task.name, task.schedule, task.timezone, upcoming, task.last_run, task.paused)


def _cells(
    name: str, schedule: str, zone: str, upcoming: list[datetime], last: datetime | None, paused: bool
) -> dict[str, Any]:
    return {
        "task": name,
        "schedule": schedule,
        "timezone": zone,
        "next_local": upcoming,
        "next": upcoming,
        "last": last,
        "paused": paused,
    }


def _print(settings: Settings, rows: list[dict[str, Any]]) -> None:
    from nobroker.app.schedules import time_zone
    from nobroker.cli import output

    for row in rows:
        row["next_local"] = [
            moment.astimezone(time_zone(row["timezone"])).isoformat() for moment in row["next"]
        ]
        row["next"] = [_utc(moment) for moment in row["next"]]
        row["last"] = None if row["last"] is None else _utc(row["last"])
    if settings.json:
        output.document(rows)
        return
    columns = ("TASK", "SCHEDULE", "ZONE", "NEXT (LOCAL)", "NEXT (UTC)", "LAST (UTC)", "PAUSED")
    cells = []
    for row in rows:
        first = [row["task"], row["schedule"], row["timezone"]]
        last = [row["last"] or "-", "yes" if row["paused"] else "no"]
        for local, utc in zip(row["next_local"], row["next"], strict=True):
            cells.append((*first, local, utc, *last))
            first, last = ["", "", ""], ["", ""]
    output.table(columns, cells)


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
