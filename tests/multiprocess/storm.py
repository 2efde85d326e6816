"""The processes of the kill storm: `python storm.py ROLE DIRECTORY [NUMBER]`. Each ends with exit code 0, or
by SIGKILL.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from nobroker import Queue

SEGMENT = 256 * 1024


def produce(directory: str, number: str) -> None:
    """Enqueue for ever, one by one and in batches; note each serial number once its enqueue has returned."""
    notes = os.open(Path(directory) / f"returned-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with Queue(Path(directory) / "jobs", segment_size=SEGMENT) as queue:
        for turn in itertools.count():
            many = [f"{number}:{turn}:{index}" for index in range(1 + turn % 7)]
            if len(many) == 1:
                queue.enqueue({"serial": many[0]}, priority=turn % 3)
            else:
                queue.enqueue_many([{"serial": serial} for serial in many], priority=turn % 3)
            os.write(notes, "".join(serial + "\n" for serial in many).encode())
            queue.enqueue_many([None] * 5, lane="junk")


def consume(directory: str) -> None:
    """Work the junk off, so that compaction has something to do."""
    with Queue(Path(directory) / "jobs", segment_size=SEGMENT) as queue:
        while True:
            queue.ack_many(queue.lease(100, wait=1.0, lanes=["junk"]))


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
