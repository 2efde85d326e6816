"""C11: forks while other threads hold whatever they hold."""

from __future__ import annotations

import io
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import Queue, Worker

pytestmark = [pytest.mark.processes, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")]
CHILDREN = 40


def fork(work: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(5)
    try:
        work()
    except BaseException:
        os._exit(9)
    os._exit(0)


def results(children: list[int]) -> Counter[int]:
    return Counter(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


@pytest.mark.parametrize("inherited", [True, False])
def test_children_of_a_busy_parent(tmp_path: Path, inherited: bool) -> None:
    queue = Queue(tmp_path, fsync=False, visibility_timeout=60)
    handler = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("nobroker")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    stop = threading.Event()
    errors: list[BaseException] = []
    acked: list[int] = []

    def busy() -> None:
        try:
            while not stop.is_set():
                queue.enqueue("parent")
                job = queue.lease_one()
                if job is not None and job.payload == "parent":
                    queue.ack(job)
                    acked.append(job.seq)
                elif job is not None:
                    queue.release(job)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(CHILDREN):

        def work(number: int = number) -> None:
            mine = queue if inherited else Queue(tmp_path, fsync=False)
            mine.enqueue(f"child {number}", priority=-1)
            mine.stats()

        children.append(fork(work))
    assert results(children) == Counter({0: CHILDREN})
    stop.set()
    for thread in threads:
        thread.join(20)
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    assert errors == []
    found = Counter(job.payload for job in queue.list_jobs() if job.payload != "parent")
    assert found == Counter(f"child {n}" for n in range(CHILDREN))
    assert len(set(acked)) == len(acked)
    assert list(queue.check()) == []
    queue.close()


def test_a_child_does_not_touch_what_the_parents_worker_holds(tmp_path: Path) -> None:
    queue = Queue(tmp_path, fsync=False, visibility_timeout=1)
    queue.enqueue("long")
    forked = threading.Event()

    def handler(job: Any) -> str:
        forked.wait(20)
        return "done by the parent"

    worker = Worker(queue, handler, idle_timeout=0.0, handle_signals=False, poll_interval=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    children = []
    for number in range(10):

        def work(number: int = number) -> None:
            queue.enqueue(number, delay=1000)
            queue.close()

        children.append(fork(work))
    assert results(children) == Counter({0: 10})
    forked.set()
    thread.join(30)
    assert worker.stats.lost_leases == 0
    (done,) = queue.list_jobs("done")
    assert (done.payload, done.attempts, done.result) == ("long", 1, "done by the parent")
    assert queue.stats().delayed == 10
    queue.close()


def test_a_fork_of_a_fork(tmp_path: Path) -> None:
    queue = Queue(tmp_path, fsync=False)

    def inner() -> None:
        queue.enqueue("grandchild")

    def outer() -> None:
        queue.enqueue("child")
        assert results([fork(inner)]) == Counter({0: 1})
        queue.enqueue("child again")

    queue.enqueue("parent")
    assert results([fork(outer)]) == Counter({0: 1})
    assert [job.payload for job in queue.list_jobs()] == ["parent", "child", "grandchild", "child again"]
    queue.close()
