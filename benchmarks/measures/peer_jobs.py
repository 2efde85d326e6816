"""The same no-op jobs with others. Each is counted in the job, and timed from the start of its threads."""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

THREADS = 4
PATIENCE_S = 120.0
# By the name of the function below: whose packages it needs, and how many jobs it runs off. Neither has a
# cheaper way for many.
PEERS: dict[str, dict[str, Any]] = {
    "quebec": {"who": "quebec", "quick": 12, "full": 100},
    "huey": {"who": "peers", "quick": 100, "full": 2_000},
}


class Counter:
    """Counts jobs in the threads that run them."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs
        self._lock = threading.Lock()
        self._all = threading.Event()

    def one(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._all.set()

    def rate(self, jobs: int, start: Callable[[], Any]) -> float:
        began = time.perf_counter()
        start()
        if not self._all.wait(PATIENCE_S):
            raise RuntimeError(f"{self._left} of {jobs} jobs were not run within {PATIENCE_S:.0f} s")
        return jobs / (time.perf_counter() - began)


def quebec(directory: str, jobs: int) -> float:
    os.environ.setdefault("RUST_LOG", "error")  # its lines for each job would cost it time
    import quebec as package

    counter = Counter(jobs)
    service = package.Quebec(
        f"sqlite:///{directory}/jobs.db?mode=rwc",
        worker_threads=THREADS,
        worker_polling_interval=timedelta(milliseconds=1),
    )
    service.create_tables()

    @service.register_job
    class Noop(package.BaseClass):  # type: ignore[misc]
        def perform(self, payload: dict[str, Any]) -> None:
            counter.one()

    service.perform_all_later([Noop.build({"n": number}) for number in range(jobs)])
    # No shutdown: that would end this process, and the answer with it. Its threads are daemons.
    return counter.rate(jobs, lambda: service.start(spawn=["worker"]))


def huey(directory: str, jobs: int) -> float:
    import huey as package

    counter = Counter(jobs)
    queue = package.SqliteHuey(filename=f"{directory}/huey.db", results=False)

    @queue.task()  # type: ignore[untyped-decorator]
    def noop(payload: dict[str, Any]) -> None:
        counter.one()

    for number in range(jobs):
        noop({"n": number})
    consumer = queue.create_consumer(
        workers=THREADS, worker_type="thread", periodic=False, initial_delay=0.001, max_delay=0.001
    )
    rate = counter.rate(jobs, consumer.start)
    consumer.stop(graceful=True)
    return rate
