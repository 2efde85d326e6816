"""What the demo's workers do: size and SHA-256 of a file. It fails on purpose where the payload says so.

`nobroker work nobroker.cli.demo_handler:hash_file` runs it; the environment sets the scene.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import Any

from nobroker import Job

FIXED = "NOBROKER_DEMO_FIXED"  # set: the fault that makes some files fail every time is repaired
VICTIM = "NOBROKER_DEMO_VICTIM"  # a path: this worker is to be killed; it writes there what it is working on
AFTER = "NOBROKER_DEMO_AFTER"  # a path: this worker's first job waits until the victim has written there
CALLS_BEFORE_END = 40  # jobs the victim finishes first

FLAKY = "fails at its first try"
BROKEN = "fails until the fault is repaired"

_CHUNK = 1 << 20
_PATIENCE_S = 60.0
_calls = 0


class OnPurpose(Exception):
    """A failure that belongs to the show."""


def digest(path: str) -> dict[str, Any]:
    """Return size in bytes and SHA-256 of a file, read in pieces."""
    found = hashlib.sha256()
    size = 0
    with open(path, "rb") as file:
        while piece := file.read(_CHUNK):
            found.update(piece)
            size += len(piece)
    return {"size": size, "sha256": found.hexdigest()}


def hash_file(job: Job) -> dict[str, Any]:
    """Handle one job of the demo; what it returns becomes the job's result."""
    trouble = job.payload.get("trouble")
    if trouble == FLAKY and job.attempts == 1:
        raise OnPurpose("the disk was busy (the first try fails on purpose)")
    if trouble == BROKEN and not os.environ.get(FIXED):
        raise OnPurpose("this kind of file is not supported yet (fails on purpose until it is repaired)")
    _perhaps_wait_for_the_victim()
    _perhaps_wait_to_be_killed(job)
    return digest(job.payload["path"])


def _perhaps_wait_for_the_victim() -> None:
    """In the other worker: however slowly the victim starts, leave it enough to be killed in the midst of."""
    mark = os.environ.get(AFTER)
    until = time.monotonic() + _PATIENCE_S
    while mark and _calls == 0 and not os.path.exists(mark) and time.monotonic() < until:
        time.sleep(0.01)


def _perhaps_wait_to_be_killed(job: Job) -> None:
    """In the worker that is to be killed: say which job is in hand, then hang as a real one might."""
    global _calls
    _calls += 1
    mark = os.environ.get(VICTIM)
    if mark and _calls > CALLS_BEFORE_END:
        with open(mark + ".new", "w", encoding="utf-8") as file:
            file.write(job.id)
        os.replace(mark + ".new", mark)
        threading.Event().wait()
