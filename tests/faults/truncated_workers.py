"""A process that goes on with a queue whose files are cut short: `python truncated_workers.py DIR SEED`."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter

from nobroker import NobrokerError, Queue


def main(directory: str, seed: str) -> None:
    rng = random.Random(seed)
    queue = Queue(directory, fsync=False, segment_size=65536, lock_timeout=5.0)
    reader = Queue(directory, read_only=True)
    held = queue.lease(20)
    reader.list_jobs()
    print("ready", flush=True)
    sys.stdin.readline()
    acked = 0

    def ack() -> None:
        nonlocal acked
        if held:
            job = held.pop()
            queue.ack_many([job])
            acked += job.payload == b"x" * 900

    verbs = {
        "enqueue": lambda: queue.enqueue(b"y" * 700),
        "many": lambda: queue.enqueue_many([b"z" * 90] * 40),
        "lease": lambda: held.extend(queue.lease(3)),
        "ack": ack,
        "wait": lambda: queue.lease(1, wait=0.01, lanes=["nobody"]),
        "list": queue.list_jobs,
        "stats": queue.stats,
        "compact": queue.compact,
        "check": queue.check,
        "read": reader.list_jobs,
        "look": reader.stats,
        "reopen": lambda: Queue(directory, fsync=False, segment_size=65536, lock_timeout=5.0).close(),
    }
    typed: Counter[str] = Counter()
    untyped: list[str] = []
    for _ in range(40):
        name = rng.choice(list(verbs))
        try:
            verbs[name]()
        except NobrokerError as error:
            typed[type(error).__name__] += 1
        except Exception as error:
            untyped.append(f"{name}: {error!r}")
    for name, handle in (("close", queue), ("close reader", reader)):
        try:
            handle.close()
        except NobrokerError as error:
            typed[type(error).__name__] += 1
        except Exception as error:
            untyped.append(f"{name}: {error!r}")
    print(json.dumps({"typed": dict(typed), "untyped": untyped, "verbs": 40, "acked": acked}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
