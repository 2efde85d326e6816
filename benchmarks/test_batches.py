"""Calls for many jobs, and those whose cost grows with the queue."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import count as numbers
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import work
from benchmarks.conftest import Filled
from nobroker import Queue
from nobroker_tools.dump import dump_events, dump_jobs
from nobroker_tools.importer import import_jsonl

BATCH = work.payloads(work.BATCH)
ROUNDS = 20
FEW_ROUNDS = 5
both = pytest.mark.parametrize("fsync", [True, False], ids=["durable", "undurable"])


def closed(queue: Queue) -> Path:
    queue.close()
    return queue.dir


@both
def test_enqueue_many(benchmark: BenchmarkFixture, filled: Filled, size: int, fsync: bool) -> None:
    queue = filled(size, fsync=fsync)
    benchmark.pedantic(queue.enqueue_many, (BATCH,), rounds=ROUNDS, warmup_rounds=1)


def test_enqueue_many_with_own_ids(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    queue = filled(size)
    number = numbers()

    def ids() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (BATCH,), {"job_ids": [f"order-{next(number)}" for _ in BATCH]}

    benchmark.pedantic(queue.enqueue_many, setup=ids, rounds=ROUNDS)


@both
def test_lease_and_ack_many(benchmark: BenchmarkFixture, filled: Filled, size: int, fsync: bool) -> None:
    queue = filled(size, fsync=fsync)

    def add() -> None:
        queue.enqueue_many(BATCH)

    benchmark.pedantic(
        lambda: queue.ack_many(queue.lease(work.BATCH)), setup=add, rounds=ROUNDS, warmup_rounds=1
    )


def test_open(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    directory = closed(filled(size))

    def opening() -> Queue:
        queue = Queue(directory)
        queue.stats()
        return queue

    benchmark.pedantic(lambda: opening().close(), rounds=FEW_ROUNDS)


def test_list_all(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    queue = filled(size)
    assert len(benchmark.pedantic(queue.list_jobs, rounds=FEW_ROUNDS)) == size


def test_compact(benchmark: BenchmarkFixture, tmp_path: Path, size: int) -> None:
    """With `size` jobs waiting and twice as many finished."""
    number = numbers()
    opened: list[Queue] = []

    def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
        queue = Queue(tmp_path / str(next(number)), fsync=False, auto_compact=False)
        opened.append(queue)
        for batch in work.batches(2 * size):
            queue.enqueue_many(batch)
            queue.ack_many(queue.lease(work.BATCH))
        for batch in work.batches(size):
            queue.enqueue_many(batch)
        return (queue,), {}

    benchmark.pedantic(Queue.compact, setup=make, rounds=3)
    for queue in opened:
        queue.close()
        shutil.rmtree(queue.dir)


@pytest.mark.parametrize("dump", [dump_events, dump_jobs], ids=["events", "jobs"])
def test_dump(
    benchmark: BenchmarkFixture, filled: Filled, tmp_path: Path, size: int, dump: Callable[..., Any]
) -> None:
    directory = closed(filled(size))

    def run() -> None:
        with (tmp_path / "out").open("w") as out:
            dump(str(directory), "default", out)

    benchmark.pedantic(run, rounds=FEW_ROUNDS)


def test_import(benchmark: BenchmarkFixture, filled: Filled, tmp_path: Path, size: int) -> None:
    lines = tmp_path / "jobs.jsonl"
    lines.write_text("".join(json.dumps(job) + "\n" for job in work.payloads(size)))
    queue = filled(0)

    def run() -> int:
        with lines.open("rb") as file:
            return int(import_jsonl(file, queue).added)

    assert benchmark.pedantic(run, rounds=FEW_ROUNDS) == size
