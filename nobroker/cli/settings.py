"""Which queue a command is about, and how it opens it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nobroker.cli.failures import CommandError

if TYPE_CHECKING:
    from nobroker import Queue

DEFAULT_DIR = "jobs"
DEFAULT_QUEUE = "default"


@dataclass
class Settings:
    """The options every command has. `None` where the command line did not say."""

    given_dir: str | None = None
    given_queue: str | None = None
    json: bool = False
    says_all: bool = False

    @property
    def dir(self) -> str:
        """The queue directory: `--dir`, then the environment's `NOBROKER_DIR`, then `jobs`."""
        return self.given_dir or os.environ.get("NOBROKER_DIR") or DEFAULT_DIR

    @property
    def queue(self) -> str:
        return self.given_queue if self.given_queue is not None else DEFAULT_QUEUE

    def names(self) -> list[str]:
        """Return the names of the queues in the directory; none where there is no directory."""
        from nobroker import list_queues

        return list(list_queues(self.dir)) if os.path.isdir(self.dir) else []

    def exists(self, name: str | None = None) -> bool:
        """Whether the queue is there.

        Raises:
            CommandError: it was, and has lost its segments.
        """
        wanted, known = self.queue if name is None else name, self.names()
        if os.path.isdir(self.dir):
            self._must_have_segments(wanted, known)
        return any(other.casefold() == wanted.casefold() for other in known)

    def must_exist(self, name: str | None = None) -> None:
        """Raise `CommandError`, with advice, where the queue is not there."""
        wanted = self.queue if name is None else name
        if not os.path.exists(self.dir):
            raise CommandError(
                f"no directory {self.dir!r}, so no queue {wanted!r} in it;"
                " say where the queues are with --dir or NOBROKER_DIR, or make one with `nobroker enqueue`"
            )
        if not os.path.isdir(self.dir):
            raise CommandError(
                f"{self.dir!r} is not a directory; --dir names the directory the queues are in"
            )
        known = self.names()
        self._must_have_segments(wanted, known)
        if wanted.casefold() not in {name.casefold() for name in known}:
            there = f"it has {_some(known)}" if known else "it has none"
            raise CommandError(
                f"no queue {wanted!r} in {self.dir!r} ({there});"
                " choose one with -q, or make it with `nobroker enqueue`"
            )

    def _must_have_segments(self, wanted: str, known: list[str]) -> None:
        """A queue that has lost all of its segments is not the same as no queue."""
        left = sorted(
            name
            for name in os.listdir(self.dir)
            if name in (f"{wanted}.lock", f"{wanted}.snap", f"{wanted}.manifest")
        )
        if left and wanted not in known:
            raise CommandError(
                f"queue {wanted!r} in {self.dir!r} has lost every segment file ({wanted}.NNNNNN.seg), and its"
                f" jobs with them; {', '.join(left)} {'is' if len(left) == 1 else 'are'} still there:"
                " put the segments back from a backup,"
                " or remove what is left to begin an empty queue"
            )

    def open(self, name: str | None = None, **options: Any) -> Queue:
        """Open the queue for changing it; it is made where it does not exist.

        That it is in a container's own layer is said by `work` and `check`, not by every command.
        """
        from nobroker import Queue

        if not self.says_all and not options.get("read_only"):
            from nobroker.stores.log import warn_of_file_system

            warn_of_file_system(self.dir, layered=False)
        return Queue(self.dir, self.queue if name is None else name, **options)

    def open_existing(self, name: str | None = None, **options: Any) -> Queue:
        """Open a queue for changing it, which must be there.

        Raises:
            CommandError: it is not; nothing was made.
        """
        self.must_exist(name)
        return self.open(name, **options)

    @contextmanager
    def look(self, name: str | None = None) -> Iterator[Queue]:
        """Open a queue without the means to change it, which must be there.

        Of a damaged log what is shown is as it was before the damage; that is said on stderr.

        Raises:
            CommandError: it is not there; nothing was made.
        """
        self.must_exist(name)
        with self.open(name, read_only=True) as queue:
            yield queue
            if queue.recovery.damage != "none":
                from nobroker.cli.output import note

                note(f"warning: this is how it was before the damage: {queue.recovery.damage}")


def _some(names: list[str], limit: int = 8) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
