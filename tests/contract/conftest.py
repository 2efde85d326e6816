"""Queues on every store, on a clock that tests move; in the end each is asked again, from its files alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import Queue
from nobroker.clock import ManualClock

STORES = ["log"]
"""Names of the stores that must keep the contract."""

CACHES = (".snap", ".idx", ".manifest", ".lock", ".sync", ".wake", ".new")
"""What may be lost without changing an answer."""


def answers(queue: Queue) -> dict[str, Any]:
    """All that a queue says of itself but the bytes it takes."""
    stats = queue.stats().to_dict()
    del stats["bytes"]
    return {
        "stats": stats,
        "jobs": [repr(job.to_dict()) for job in queue.list_jobs()],
        "order": [job.id for job in queue.list_jobs("ready")],
        "paused": queue.paused,
    }


class Opener:
    """Opens queues in one directory, all on one clock that tests move."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.clock = ManualClock()
        self.check = True
        self._opened: list[Queue] = []

    def __call__(self, name: str = "default", **options: Any) -> Queue:
        options = {"fsync": False, "clock": self.clock, "segment_size": 65536, **options}
        queue = Queue(options.pop("path", self.dir), name, **options)
        self._opened.append(queue)
        return queue

    def reopen(self, queue: Queue, **options: Any) -> Queue:
        """Close, and open again."""
        queue.close()
        return self(queue.name, **options)

    def scanned(self, name: str, target: Path, **options: Any) -> Queue:
        """The queue as its log alone gives it: a copy without any cache."""
        shutil.copytree(self.dir, target, ignore=lambda _, names: [n for n in names if n.endswith(CACHES)])
        return self(name, path=target, **options)

    def finish(self, target: Path) -> None:
        """Check every queue that was opened, from its live handle, reopened, and from the log alone."""
        names = sorted({queue.name for queue in self._opened if queue.dir == self.dir})
        try:
            if self.check and self.dir.is_dir():
                for number, name in enumerate(names):
                    self._check_one(name, target / str(number))
        finally:
            for queue in self._opened:
                queue.close()

    def _check_one(self, name: str, target: Path) -> None:
        live = self(name)
        assert list(live.check()) == []
        said = answers(live)
        scanned = answers(self.scanned(name, target))
        assert scanned == said, "a scan of the log says something else than the open queue"
        for queue in self._opened:
            if queue.name == name and queue.dir == self.dir:
                queue.close()
        again = self(name)
        assert answers(again) == said, "reopened, the queue says something else"
        assert list(again.check()) == []


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Name of the store under test."""
    return str(request.param)


@pytest.fixture
def open_queue(store: str, tmp_path: Path) -> Iterator[Opener]:
    """Opens a queue on the store under test. In the end all that were opened must check out."""
    opener = Opener(tmp_path / "jobs")
    yield opener
    opener.finish(tmp_path / "scanned")


@pytest.fixture
def clock(open_queue: Opener) -> ManualClock:
    """The clock of all queues that `open_queue` opens."""
    return open_queue.clock


@pytest.fixture
def queue(open_queue: Opener) -> Queue:
    """A queue with a plain backoff: failed jobs wait 10 seconds."""
    from nobroker import BackoffPolicy

    return open_queue(backoff=BackoffPolicy(base=10.0, factor=1.0, jitter=0.0))


@pytest.fixture
def failing(queue: Queue) -> Callable[[Any], Any]:
    """Enqueue a payload and send it to the dead-letter queue."""

    def fail(payload: Any, **options: Any) -> Any:
        made = queue.enqueue(payload, **options)
        return queue.nack(_leased(queue, made.id), error=f"no {payload}", dead=True)

    return fail


def _leased(queue: Queue, job_id: str) -> Any:
    job = queue.lease_one()
    assert job is not None
    assert job.id == job_id
    return job
