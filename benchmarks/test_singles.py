"""Single calls on a queue with a backlog."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from itertools import count as numbers

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import work
from benchmarks.conftest import Filled
from nobroker import Job, Queue

PAYLOAD = work.payload(7)
ROUNDS = 200
both = pytest.mark.parametrize("fsync", [True, False], ids=["durable", "undurable"])


def one(queue: Queue) -> Job:
    job = queue.lease_one()
    if job is None:
        raise LookupError("the backlog is used up")
    return job


@both
def test_enqueue(benchmark: BenchmarkFixture, filled: Filled, size: int, fsync: bool) -> None:
    queue = filled(size, fsync=fsync)
    benchmark.pedantic(queue.enqueue, (PAYLOAD,), rounds=ROUNDS, iterations=1, warmup_rounds=5)
    assert len(queue) >= size


@both
def test_enqueue_with_an_own_id(benchmark: BenchmarkFixture, filled: Filled, size: int, fsync: bool) -> None:
    queue = filled(size, fsync=fsync)
    number = numbers()
    benchmark.pedantic(
        lambda: queue.enqueue(PAYLOAD, job_id=f"order-{next(number)}"), rounds=ROUNDS, warmup_rounds=5
    )


def test_lease(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    queue = filled(size)
    job = benchmark.pedantic(one, (queue,), rounds=ROUNDS, warmup_rounds=5)
    assert job.attempts == 1


def test_an_empty_lease(benchmark: BenchmarkFixture, filled: Filled) -> None:
    assert benchmark(filled(0).lease) == []


@both
def test_lease_and_ack(benchmark: BenchmarkFixture, filled: Filled, size: int, fsync: bool) -> None:
    queue = filled(size, fsync=fsync)
    benchmark.pedantic(lambda: queue.ack(one(queue)), rounds=ROUNDS, warmup_rounds=5)
    assert queue.stats().leased == 0


@both
def test_nack(benchmark: BenchmarkFixture, filled: Filled, size: int, fsync: bool) -> None:
    queue = filled(size, fsync=fsync)
    job = benchmark.pedantic(
        lambda job: queue.nack(job, error="no"), setup=lambda: ((one(queue),), {}), rounds=ROUNDS
    )
    assert job.last_error == "no"


def test_extend(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    queue = filled(size)
    job = one(queue)
    benchmark.pedantic(lambda: queue.extend(job, 60), rounds=ROUNDS, warmup_rounds=5)


def test_get(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    queue = filled(size)
    job = queue.enqueue(PAYLOAD)
    assert benchmark(queue.get, job.id) == job


def test_stats(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    assert benchmark(filled(size).stats).ready == size


def test_list_the_first_hundred(benchmark: BenchmarkFixture, filled: Filled, size: int) -> None:
    queue = filled(size)
    assert len(benchmark(lambda: queue.list_jobs("ready", limit=100))) == 100
