"""C1: integers beyond 64 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nobroker import Queue

from .words import drain

VALUES = [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40, -(10**40), 10**5000, 0, -1]


def places(value: int) -> list[Any]:
    return [value, {"n": value}, [value], {"a": [{"b": value}]}, {value: value}, [[value, "x"], value]]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{str(v)[:12] if abs(v) < 10**50 else 'huge'}")
def test_each_comes_back(tmp_path: Path, value: int) -> None:
    queue = Queue(tmp_path, fsync=False)
    for payload in places(value):
        queue.enqueue(payload, metadata=payload)
    queue.close()
    with Queue(tmp_path) as queue:
        for payload in places(value):
            job = queue.lease_one()
            assert job is not None
            assert bool(job.payload == job.metadata == payload)
            queue.extend(job, 30, progress=value, state=[value])
            queue.ack(job, result={"r": value})
            found = queue.get(job.id)
            assert (found.progress, found.job_state, found.result) == (value, [value], {"r": value})
            assert type(found.progress) is int


def test_in_a_batch(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False) as queue:
        queue.enqueue_many([1, 2**64, 3, *VALUES])
        queue.enqueue(1)
    with Queue(tmp_path, fsync=False) as queue:
        assert drain(queue) == [1, 2**64, 3, *VALUES, 1]
