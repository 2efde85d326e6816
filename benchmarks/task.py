"""Runs one function in a process of its own: python benchmarks/task.py MODULE:FUNCTION JSON-ARGUMENTS.

Every measurement happens in such a process: it starts with empty memory, and it can run under another
interpreter, with other packages, than the one that asks. The result is one line of JSON on standard output.
What a package prints goes to standard error instead.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def wait_for_go() -> None:
    """Say that the preparations are done, and wait until all the others have said it too."""
    answer({"ready": True})
    if not sys.stdin.readline():
        sys.exit("the process that started this one is gone")


def answer(message: dict[str, Any]) -> None:
    """Send one line to the process that started this one."""
    os.write(REAL_STDOUT, (json.dumps(message) + "\n").encode())


def main(argv: list[str]) -> None:
    module, _, function = argv[0].partition(":")
    # Last, so that a package of the same name as this project can come first; never the folder of this
    # script, whose modules are called like packages.
    sys.path[:] = [p for p in sys.path if p and Path(p).resolve() != ROOT / "benchmarks"]
    sys.path.append(str(ROOT))
    # The functions import this module by its full name; both names must mean the same open pipe.
    sys.modules["benchmarks.task"] = sys.modules[__name__]
    answer({"result": getattr(importlib.import_module(module), function)(**json.loads(argv[1]))})


REAL_STDOUT = 1
if __name__ == "__main__":
    REAL_STDOUT = os.dup(1)
    os.dup2(2, 1)
    main(sys.argv[1:])
