"""Options and queues of the suites: `pytest benchmarks`, or one file of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import work
from benchmarks.figures import count
from nobroker import Queue

SIZES = (1000, 10_000, 100_000, 1_000_000)
DEFAULT_MOST = 10_000

Filled = Callable[..., Queue]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--most",
        type=int,
        default=DEFAULT_MOST,
        help=f"largest number of waiting jobs to measure with, of {', '.join(map(str, SIZES))}",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "size" in metafunc.fixturenames:
        most = metafunc.config.getoption("--most", default=DEFAULT_MOST)
        metafunc.parametrize("size", [s for s in SIZES if s <= most] or [SIZES[0]], ids=count)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    """Makes queues with so many waiting jobs, and closes them."""
    made: list[Queue] = []

    def make(size: int, name: str = "default", **options: Any) -> Queue:
        queue = Queue(tmp_path / "queue", name, **options)
        made.append(queue)
        for batch in work.batches(size, 10_000):
            queue.enqueue_many(batch)
        return queue

    yield make
    for queue in made:
        queue.close()
