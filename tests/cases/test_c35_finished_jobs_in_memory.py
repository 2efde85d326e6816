"""C35: nothing of finished jobs stays in memory, whoever finished them."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import Job, Queue

OPTIONS = {"fsync": False, "segment_size": 65536 * 4}


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def level() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def alive() -> int:
    """Jobs in memory, other tests' included."""
    gc.collect()
    return sum(isinstance(found, Job) for found in gc.get_objects())


def handles() -> tuple[int, int]:
    """Open descriptors and maps of queue files."""
    if not os.path.isdir("/proc/self/fd"):
        return 0, 0
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum(".seg" in line for line in maps)


def work_round(queue: Queue, other: Queue | None = None) -> None:
    queue.enqueue_many([b"x" * 1000] * 500, priority=1)
    taker = other or queue
    while jobs := taker.lease(250):
        taker.ack_many(jobs)


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_level_is_flat(tmp_path: Path, elsewhere: bool) -> None:
    with Queue(tmp_path, **OPTIONS) as queue, Queue(tmp_path, **OPTIONS) as other:  # type: ignore[arg-type]
        seen, before = {}, alive()
        for number in range(1, 41):
            work_round(queue, other if elsewhere else None)
            if number % 10 == 0:
                (other if elsewhere else queue).compact()
                queue.stats()
                seen[number] = (level(), *handles())
        assert seen[40][0] <= 1.3 * seen[10][0] + 200_000, seen
        assert seen[40][1] <= seen[10][1] + 2, seen
        assert seen[40][2] <= seen[10][2] + 4, seen
        assert alive() - before < 10


@pytest.mark.usefixtures("tracing")
def test_a_producer_forgets_what_others_finished(tmp_path: Path) -> None:
    with Queue(tmp_path, **OPTIONS) as producer, Queue(tmp_path, **OPTIONS) as consumer:  # type: ignore[arg-type]
        levels = []
        for number in range(1, 31):
            for n in range(60):
                producer.enqueue(b"y" * 200, priority=n % 3, job_id=f"{number}-{n}" if n % 4 == 0 else None)
            while jobs := consumer.lease(100):
                consumer.ack_many(jobs)
            if number % 10 == 0:
                levels.append(level())
        growth = levels[-1] - levels[0]
        # Own ids are promised to be remembered for keep_done: 300 of them; the census takes a byte a job.
        assert growth < 300 * 400 + 150_000, levels


@pytest.mark.usefixtures("tracing")
def test_an_idle_worker_writes_and_keeps_nothing(tmp_path: Path) -> None:
    with Queue(tmp_path, **OPTIONS) as queue:  # type: ignore[arg-type]
        queue.enqueue("later", delay=1000)
        for _ in range(500):
            queue.lease()
        before, files = level(), {path.name: path.stat().st_size for path in tmp_path.iterdir()}
        open_before = handles()
        for _ in range(20_000):
            assert queue.lease() == []
        for _ in range(300):
            assert queue.lease(lanes=["a"]) == []
            queue.stats()
        assert level() - before < 50_000
        assert handles() == open_before
        assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == files
