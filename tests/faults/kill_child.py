"""Does a small piece of work in children that stop before the part in which something befalls them.

`python -m tests.faults.kill_child`, then lines `SCENARIO DIRECTORY` on the standard input; for each, the pid
of the stopped child and, when it has ended, its status on the standard output. So a child costs a fork and no
import. `Children` is the other end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nobroker import NobrokerError, Queue
from nobroker_mmap import control
from tests.faults.book import SEGMENT, let_go
from tests.faults.plants import PLANTS


class Work:
    """The work of one child; notes what it is about to do and what has returned."""

    def __init__(self, directory: Path) -> None:
        self.jobs = directory / "jobs"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.notes = os.open(directory / "notes", flags, 0o644)
        self.count = 0

    def stop(self) -> None:
        """From here on every system call is one at which the child may be killed."""
        os.kill(os.getpid(), signal.SIGSTOP)

    def open(self) -> Queue:
        return Queue(self.jobs, segment_size=SEGMENT)

    def noted(self, what: str, keys: list[str], call: Callable[[], Any]) -> None:
        text = " ".join(keys)
        os.write(self.notes, f"?{what} {text}\n".encode())
        call()
        os.write(self.notes, f"{what} {text}\n".encode())

    def enqueue(self, queue: Queue, count: int, size: int = 10) -> None:
        keys = [f"{os.getpid()}-{self.count + index}" for index in range(count)]
        self.count += count
        jobs = [{"key": key, "pad": "x" * size} for key in keys]
        self.noted("+", keys, lambda: queue.enqueue_many(jobs))

    def work_off(self, queue: Queue, count: int) -> None:
        held = queue.lease(count)
        keys = [job.payload["key"] for job in held]
        self.noted("-", keys, lambda: queue.ack_many(held))


def create(work: Work) -> None:
    work.stop()
    work.enqueue(work.open(), 2)


def append(work: Work) -> None:
    queue = work.open()
    work.enqueue(queue, 1)
    work.stop()
    work.enqueue(queue, 1)
    work.enqueue(queue, 3)


def ack(work: Work) -> None:
    queue = work.open()
    work.enqueue(queue, 4)
    work.stop()
    work.work_off(queue, 2)
    work.work_off(queue, 1)
    queue.nack(queue.lease(1)[0], error="once more")


def rotate(work: Work) -> None:
    queue = work.open()
    work.enqueue(queue, 1, 29_000)
    work.stop()
    work.enqueue(queue, 1, 29_000)  # reserves the next segment
    work.enqueue(queue, 1, 29_000)  # begins it


def snapshot(work: Work) -> None:
    queue = work.open()
    work.enqueue(queue, 3)
    work.work_off(queue, 1)
    work.stop()
    queue.close()


def compact(work: Work) -> None:
    queue = work.open()
    work.enqueue(queue, 2, 20_000)
    work.work_off(queue, 1)
    work.enqueue(queue, 2, 20_000)
    work.work_off(queue, 1)
    work.stop()
    queue.compact()
    work.enqueue(queue, 1)


def recover(work: Work) -> None:
    """Opens what is there; a torn tail when there is nothing yet."""
    if not work.jobs.exists():
        queue = work.open()
        work.enqueue(queue, 2)
        log = queue._store._session.log  # type: ignore[attr-defined]
        path, end = queue.path, log.position - log._chain.newest.origin
        let_go(queue)
        with open(path, "r+b") as file:
            file.seek(end)
            file.write(b"NBr1 half a record, and then the machine went down")
    work.stop()
    work.enqueue(work.open(), 1)


def repair(work: Work) -> None:
    """Opens after a failed sync."""
    queue = work.open()
    work.enqueue(queue, 2)
    queue._store._session.log._words[control.POISON] = 1  # type: ignore[attr-defined]
    let_go(queue)
    work.stop()
    work.enqueue(work.open(), 1)


def replaced(work: Work) -> None:
    """Opens without the lock file."""
    queue = work.open()
    work.enqueue(queue, 2)
    let_go(queue)
    (work.jobs / "default.lock").unlink()
    work.stop()
    work.enqueue(work.open(), 1)


def endless(work: Work) -> None:
    """A bit of everything, until the disk is gone."""
    work.jobs /= "queue"
    work.stop()
    try:
        queue = work.open()
        while True:
            for size in (100, 3_000, 9_000):
                work.enqueue(queue, 2, size)
                os.write(work.notes, b"#%d\n" % max(job.seq for job in queue._iter_jobs()))
                work.work_off(queue, 3)
            if work.count % 30 == 0:
                queue.compact()
            if work.count % 36 == 0:
                queue.close()
                queue = work.open()
    except NobrokerError:
        return


def returned_early() -> None:
    """A planted fault: calls return before they have begun."""

    def noted(self: Work, what: str, keys: list[str], call: Callable[[], Any]) -> None:
        os.write(self.notes, f"{what} {' '.join(keys)}\n".encode())
        call()

    Work.noted = noted  # type: ignore[method-assign]


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (create, append, ack, rotate, snapshot, compact, recover, repair, replaced)
}
"""Those that end."""


class Children:
    """Starts them, one at a time."""

    def __init__(self, *planted: str) -> None:
        command = [sys.executable, "-m", "tests.faults.kill_child", *planted]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def begin(self, scenario: str, directory: Path) -> int:
        """The pid of a child that has stopped."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{scenario} {directory}\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        """Waits for the end of the child; its status."""
        return self._answer()

    def close(self) -> None:
        self._process.communicate()


def main(*planted: str) -> None:
    for name in planted:
        {**PLANTS, "returned_early": returned_early}[name]()
    with tempfile.TemporaryDirectory() as directory, Queue(directory) as queue:
        queue.enqueue("loads what is loaded at the first call")
        queue.ack_many(queue.lease(1))
        queue.compact()
    for line in sys.stdin:
        scenario, directory = line.split()
        pid = os.fork()
        if pid == 0:
            globals()[scenario](Work(Path(directory)))
            os._exit(0)
        os.waitpid(pid, os.WUNTRACED)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
