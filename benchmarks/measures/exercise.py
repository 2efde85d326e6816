"""What is done with each peer, in a process of its own."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from benchmarks import work
from benchmarks.peers import Peer

MOST = 300_000  # jobs in one piece of work, however fast
SINGLES = 20  # between looks at the clock


def opened(module: str, directory: str, server: str | None, options: dict[str, Any]) -> Peer:
    peer: Peer = importlib.import_module(f"benchmarks.peers.{module}").Peer(directory, server, **options)
    return peer


def rates(
    module: str,
    directory: str,
    server: str | None,
    options: dict[str, Any],
    seconds: float,
    backlog: int,
    many: int,
    taken: int,
) -> dict[str, float]:
    """Jobs per second of each verb, each for about `seconds` on one queue, after a few jobs to warm up.

    Args:
        backlog: jobs that are put in before each kind of taking.
        many: jobs put in at once.
        taken: jobs taken at once.
    """
    peer = opened(module, directory, server, options)
    peer.put(work.payloads(5))
    peer.put_batch(work.payloads(5))
    peer.take(10)
    singles, batch = work.payloads(SINGLES), work.payloads(many)
    result = {
        "put": rate(lambda: put(peer.put, singles), seconds),
        "put_batch": rate(lambda: put(peer.put_batch, batch), seconds),
    }
    if clear := getattr(peer, "clear", None):
        clear()  # it can only work off everything: that is to be no more than the backlog
    fill(peer, backlog)
    result["take"] = rate(lambda: peer.take(SINGLES), seconds)
    fill(peer, backlog)
    result["take_batch"] = rate(lambda: peer.take_batch(taken), seconds)
    peer.close()
    return result


def fill(peer: Peer, backlog: int) -> None:
    for batch in work.batches(backlog):
        peer.put_batch(batch)


def put(verb: Callable[[list[work.Payload]], None], jobs: list[work.Payload]) -> int:
    verb(jobs)
    return len(jobs)


def rate(piece: Callable[[], int], seconds: float) -> float:
    watch = work.Stopwatch()
    while watch.seconds < seconds and watch.done < MOST:
        if not watch.run(piece):
            break
    return watch.rate


def marks(
    module: str, directory: str, server: str | None, options: dict[str, Any], count: int
) -> dict[str, Any]:
    """When, by the wall clock, `count` single puts and takes and one batch of each began and ended."""
    peer = opened(module, directory, server, options)
    peer.put(work.payloads(5))
    peer.take(5)
    found: dict[str, Any] = {}

    def mark(name: str, jobs: int, piece: Callable[[], Any]) -> None:
        began = time.time()
        piece()
        found[name] = [began, time.time(), jobs]

    mark("put", count, lambda: peer.put(work.payloads(count)))
    mark("take", count, lambda: peer.take(count))
    mark("put_batch", 200, lambda: peer.put_batch(work.payloads(200)))
    peer.close()
    return found
