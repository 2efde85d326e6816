"""A child process of a supervisor that was started afresh: it imports the application anew.

What it is told is in its environment. Signals are blocked until it can take them.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import sys
from typing import Any

from nobroker.running import board as boards
from nobroker.running import signals
from nobroker.running.board import Board
from nobroker.running.forking import SPAWNED, leave
from nobroker.running.member import Member
from nobroker.running.tasks import task_of


def main() -> None:
    """Run this process's task, and end it."""
    leave(lambda: _run(json.loads(os.environ.pop(SPAWNED))))


def _run(told: dict[str, Any]) -> int:
    from nobroker.cli.applications import load_application
    from nobroker.cli.working import log_to_stderr

    sys.path[:] = told["sys_path"]
    task = task_of(told["task"])
    board = Board(mmap.mmap(told["board"], boards.size(task.threads)), task.threads)
    os.close(told["board"])
    os.set_inheritable(told["life"], False)
    member = Member(task, board, told["life"])
    member.enter()
    signals.unblock(set())
    packages, chosen, recurring, as_json = told["source"]
    app = load_application(packages, chosen)
    if log_to_stderr(logging.WARNING, json=as_json):
        logging.getLogger("nobroker").setLevel(told["log"])
    app.path, app.name = told["path"]
    for file in recurring:
        if file not in app._recurring_files:
            app.recurring_file(file)
    return member.run(app)


if __name__ == "__main__":
    main()
