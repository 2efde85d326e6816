"""A process that is stopped while it holds something: `python holder.py lock|lease DIRECTORY`."""

from __future__ import annotations

import sys
from typing import Any

from nobroker import NobrokerError, Queue
from nobroker.state import kinds


def lock(queue: Queue) -> None:
    """Hold the lock in the midst of an enqueue."""
    store: Any = queue._store
    session = store._session
    append = session.append_one

    def slowly(kind: int, *record: Any) -> Any:
        if kind == kinds.ENQUEUE:
            print("ready", flush=True)
            sys.stdin.readline()
        return append(kind, *record)

    session.append_one = slowly
    queue.enqueue("held")
    print("ended", flush=True)


def lease(queue: Queue) -> None:
    """Hold a lease that runs out."""
    job = queue.lease_one(visibility_timeout=0.3)
    print("ready", flush=True)
    sys.stdin.readline()
    told = []
    for verb in (queue.ack, queue.nack, lambda job: queue.extend(job, 10), queue.release):
        try:
            verb(job)
            told.append("nothing")
        except NobrokerError as error:
            told.append(type(error).__name__)
    print(*told, flush=True)


if __name__ == "__main__":
    with Queue(sys.argv[2]) as opened:
        {"lock": lock, "lease": lease}[sys.argv[1]](opened)
