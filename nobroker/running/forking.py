"""Starting child processes: by a fork, or by running a fresh interpreter.

- Signals are blocked around it, so that no handler of the parent runs in the child, and none is lost.
- The child has the reading end of one pipe, the life line, whose writing end only the supervisor has. When
  it dies, however, the kernel closes that end, and all children see it.
- A forked child never returns into its parent's code: what stands around the call of the supervisor
  (``finally``, ``with``) is the supervisor's. It goes the interpreter's own way out: threads that are not
  daemons, ``atexit``.
- No queue is open in the supervisor when it forks, and no thread runs there.
"""

from __future__ import annotations

import atexit
import json
import logging
import mmap
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from nobroker.running import board as boards
from nobroker.running import signals
from nobroker.running.board import Board
from nobroker.running.member import Member
from nobroker.running.plans import FAILED
from nobroker.running.tasks import Task

if TYPE_CHECKING:
    from nobroker.app import App

SPAWNED: Final = "_NOBROKER_SPAWNED"
"""In the environment of a child that is about to start: what it is told."""
_ENTRY: Final = "nobroker.cli.spawned"

_log = logging.getLogger("nobroker.running")


class Source(NamedTuple):
    """Where a fresh interpreter finds the application.

    Attributes:
        packages: to be imported.
        app: ``module:name``; None: the one whose jobs are in the packages.
        recurring: files of recurring tasks.
        json: whether the log is JSON lines.
    """

    packages: tuple[str, ...]
    app: str | None = None
    recurring: tuple[str, ...] = ()
    json: bool = False


class Started(NamedTuple):
    """A child process as it was started."""

    pid: int
    board: Board


class Starter:
    """Starts children of this process.

    Args:
        app: whose jobs.
        source: for fresh interpreters; None: children are forked.
    """

    def __init__(self, app: App, source: Source | None) -> None:
        self._app = app
        self._source = source
        self._life, self._hold = os.pipe()

    def close(self) -> None:
        """Let go of the life line: children that are still there end."""
        os.close(self._life)
        os.close(self._hold)

    def start(self, task: Task) -> Started:
        """Start a child.

        Raises:
            OSError: the system can't.
        """
        return self._fork(task) if self._source is None else self._spawn(task, self._source)

    def _fork(self, task: Task) -> Started:
        board = Board(mmap.mmap(-1, boards.size(task.threads)), task.threads)
        _flush()
        with signals.blocked() as mask:
            pid = os.fork()
            if pid == 0:
                leave(lambda: self._forked(task, board, mask))
        return Started(pid, board)

    def _forked(self, task: Task, board: Board, mask: set[int]) -> int:
        os.close(self._hold)
        member = Member(task, board, self._life)
        member.enter()
        signals.unblock(mask)
        return member.run(self._app)

    def _spawn(self, task: Task, source: Source) -> Started:
        with tempfile.TemporaryFile(prefix="nobroker-") as file:
            file.truncate(boards.size(task.threads))
            board = Board(mmap.mmap(file.fileno(), boards.size(task.threads)), task.threads)
            told = {
                "task": task.to_dict(),
                "life": self._life,
                "board": file.fileno(),
                "source": list(source),
                "path": [os.fspath(self._app.path), self._app.name],
                "sys_path": sys.path,
                "log": logging.getLogger("nobroker").getEffectiveLevel(),
            }
            environment = {**os.environ, SPAWNED: json.dumps(told)}
            command = [sys.executable, "-m", _ENTRY]
            _flush()
            for fd in (self._life, file.fileno()):
                os.set_inheritable(fd, True)
            try:
                with signals.blocked():  # the mask is handed on: it unblocks them when it can take them
                    pid = os.posix_spawn(sys.executable, command, environment)
            finally:
                os.set_inheritable(self._life, False)
        return Started(pid, board)


def leave(run: Callable[[], int]) -> None:
    """Run a child process, and end it with the exit code that comes of it."""
    code = FAILED
    try:
        code = run()
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        _flush()
    except BaseException:
        _log.exception("event=process.failed pid=%d: at its end", os.getpid())
        code = code or FAILED
    finally:
        os._exit(code)


def threads_of_others() -> Sequence[str]:
    """Names of threads that would not be there in a forked child."""
    return [one.name for one in threading.enumerate() if one is not threading.main_thread()]


def _flush() -> None:
    """What is in a buffer would be written once more by each forked child."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
