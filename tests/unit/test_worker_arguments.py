"""A worker refuses what it can't work with before it leases anything."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from nobroker import Worker
from tests.unit.fake_queue import FakeQueue

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "options",
    [
        {name: value}
        for name, values in {
            "concurrency": ["1", 1.0, True, None],
            "poll_interval": ["1", True, None, Decimal(1)],
            "max_jobs": ["1", 1.0, True],
            "idle_timeout": ["1", False],
            "handle_signals": [None, 1, "yes"],
            "batch": ["1", 2.0, False, None],
            "lanes": ["mail", b"mail", 3, [1], [None]],
        }.items()
        for value in values
    ],
    ids=str,
)
def test_wrong_types(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        Worker(FakeQueue(), print, **options)


@pytest.mark.parametrize(
    "options",
    [
        {name: value}
        for name, values in {
            "concurrency": [0, -1, 10**6],
            "poll_interval": [-1, -0.001, NAN, INF, -INF, 1e308],
            "max_jobs": [-1, 2**70],
            "idle_timeout": [-1.0, NAN, INF],
            "batch": [0, -5, 10**9],
            "lanes": [[]],
        }.items()
        for value in values
    ],
    ids=str,
)
def test_values_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Worker(FakeQueue(), print, **options)


def test_queue_and_handler() -> None:
    queue: Any = FakeQueue()
    with pytest.raises(TypeError, match="queue"):
        Worker("jobs", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="handler"):
        Worker(queue, None)  # type: ignore[arg-type]
    queue.read_only = True
    with pytest.raises(ValueError, match="read_only"):
        Worker(queue, print)


def test_defaults_are_visible() -> None:
    queue = FakeQueue()
    worker = Worker(queue, print)
    assert (worker.queue, worker.handler) == (queue, print)
    assert (worker.concurrency, worker.poll_interval, worker.batch) == (1, 0.1, 1)
    assert (worker.max_jobs, worker.idle_timeout, worker.lanes) == (None, None, None)
    assert worker.handle_signals is True
    counts = ["leased", "succeeded", "failed", "dead", "lost_leases"]
    assert worker.stats.to_dict() == dict.fromkeys(counts, 0)
    assert "concurrency=1" in repr(worker)
    assert Worker(queue, print, lanes=(name for name in ["a", "b"])).lanes == ("a", "b")
