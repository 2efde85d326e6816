"""C7: options that are not finite or of the wrong type are refused before anything is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import BackoffPolicy, Job, Queue, Worker

from .words import drain

NAN, INF = math.nan, math.inf
Verb = Callable[[Queue, Job], Any]

WRONG: dict[str, Verb] = {
    **{
        f"delay={x!r}": lambda q, j, x=x: q.enqueue(1, delay=x)
        for x in (NAN, INF, "5", True, None, 1e308, -5, -INF, b"5", 10**400)
    },
    **{
        f"delays={x!r}": lambda q, j, x=x: q.enqueue_many([1, 2], delays=[0, x])
        for x in (NAN, INF, "5", True, None, -5)
    },
    **{
        f"run_at={x!r}": lambda q, j, x=x: q.enqueue(1, run_at=x)
        for x in (NAN, INF, "tomorrow", True, -5, 1e308)
    },
    **{
        f"priority={x!r}": lambda q, j, x=x: q.enqueue(1, priority=x)
        for x in (NAN, 1.5, "1", 2**70, 2**31, True, None)
    },
    **{
        f"max_attempts={x!r}": lambda q, j, x=x: q.enqueue(1, max_attempts=x)
        for x in (0, -1, 1.5, NAN, True, "3", 2**40)
    },
    **{
        f"expires_in={x!r}": lambda q, j, x=x: q.enqueue(1, expires_in=x)
        for x in (0, -1, NAN, INF, "5", True)
    },
    **{f"lease({x!r})": lambda q, j, x=x: q.lease(x) for x in (0, -1, 1.5, NAN, "1", True, None)},
    **{
        f"timeout={x!r}": lambda q, j, x=x: q.lease(1, visibility_timeout=x)
        for x in (0, -1, NAN, INF, "5", True)
    },
    **{f"wait={x!r}": lambda q, j, x=x: q.lease(1, wait=x) for x in (-1, NAN, "5", True)},
    **{f"nack delay={x!r}": lambda q, j, x=x: q.nack(j, delay=x) for x in (NAN, INF, -1, "5", True)},
    **{f"extend {x!r}": lambda q, j, x=x: q.extend(j, x) for x in (NAN, INF, -1, 0, "5", True, None)},
    **{f"release {x!r}": lambda q, j, x=x: q.release(j, delay=x) for x in (NAN, INF, -1, "5", True, None)},
    **{f"older_than={x!r}": lambda q, j, x=x: q.drop_dead(older_than=x) for x in (NAN, INF, -1, "5", True)},
    **{
        f"backoff {name}={x!r}": lambda q, j, name=name, x=x: BackoffPolicy(**{name: x})
        for name in ("base", "factor", "max_delay", "jitter")
        for x in (NAN, INF, -1, "1", True)
    },
    **{
        f"worker {name}={x!r}": lambda q, j, name=name, x=x: Worker(q, print, **{name: x})
        for name, values in {
            "concurrency": (0, -1, 1.5, NAN, True, "2"),
            "poll_interval": (-1, NAN, INF, "1", True),
            "idle_timeout": (-1, NAN, INF, "1", True),
            "max_jobs": (-1, 1.5, NAN, True),
            "batch": (0, -1, 1.5, True),
        }.items()
        for x in values
    },
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Queue, Job]]:
    with Queue(tmp_path_factory.mktemp("c07"), fsync=False, visibility_timeout=600) as queue:
        queue.enqueue_many(["held", "a", "b", "c"])
        job = queue.lease_one()
        assert job is not None
        yield queue, job
        queue.ack(job)
        assert drain(queue) == ["a", "b", "c"]


@pytest.mark.parametrize("name", WRONG)
def test_refused_with_nothing_written(held: tuple[Queue, Job], name: str) -> None:
    queue, job = held
    before = (queue.stats().bytes, [found.to_dict() for found in queue.list_jobs()])
    with pytest.raises((ValueError, TypeError)):
        WRONG[name](queue, job)
    assert (queue.stats().bytes, [found.to_dict() for found in queue.list_jobs()]) == before


def test_no_accepted_job_is_unleasable_for_ever(tmp_path: Path) -> None:
    century = 100 * 366 * 86400
    with Queue(tmp_path, fsync=False, backoff=BackoffPolicy(base=1e300, max_delay=1e300, jitter=0)) as queue:
        queue.enqueue("slow")
        slow = queue.lease_one()
        assert slow is not None
        job = queue.nack(slow)
        assert job.available_at - job.enqueued_at <= century + 10
        with pytest.raises(ValueError):
            queue.enqueue(1, delay=century * 1.001)
