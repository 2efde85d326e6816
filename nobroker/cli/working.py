"""What `work` and `run` share: their log on stderr, how a worker ends, and the counts it prints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from nobroker.cli.failures import CommandError
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import WorkerStats

T = TypeVar("T")

COUNTS = ("leased", "succeeded", "failed", "dead", "lost_leases")


def to_the_end(run: Callable[[], T], what: str) -> T:
    """Run a worker until it ends.

    Args:
        what: whose code it calls: a handler, a job.

    Raises:
        CommandError: that code raised what ends a program.
    """
    try:
        return run()
    except SystemExit as error:
        raise CommandError(_ended_by(what, f"SystemExit({error.code!r})")) from error
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        # Raised by people's code, and raised again by the worker once it had ended in good order.
        raise CommandError(_ended_by(what, type(error).__name__)) from error


def _ended_by(what: str, error: str) -> str:
    return f"the {what} raised {error}; its job was nacked and the worker ended"


def report(settings: Settings, stats: WorkerStats) -> None:
    """Print the counts of a run."""
    from nobroker.cli import output

    values = {name: getattr(stats, name) for name in COUNTS}
    if settings.json:
        output.document(values)
    else:
        print("  ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in values.items()))


class _SafeFormatter(logging.Formatter):
    """One line a message, with nothing in it that a terminal would obey; of an exception, the last line."""

    def formatException(self, ei: Any) -> str:
        return f"{ei[0].__name__}: {ei[1]}" if ei and ei[0] is not None else ""

    def formatStack(self, stack_info: str) -> str:
        return ""

    def format(self, record: logging.LogRecord) -> str:
        from nobroker.cli.text import escape

        return escape(super().format(record).replace("\n", "; "))


def log_to_stderr(level: int, *, json: bool = False) -> bool:
    """Send the program's log to stderr; False when the user's code has set up a log of its own.

    Args:
        json: as JSON lines.
    """
    root = logging.getLogger()
    if root.handlers:
        return False
    to_stderr = logging.StreamHandler()
    if json:
        from nobroker.running.logs import JsonFormatter

        to_stderr.setFormatter(JsonFormatter())
    else:
        to_stderr.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(to_stderr)
    root.setLevel(level)
    return True
