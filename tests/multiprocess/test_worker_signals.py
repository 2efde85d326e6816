"""Workers in processes of their own: real signals, real forks, and what is left on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import BackoffPolicy, JobState, Queue

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.name == "nt", reason="signals that a process can catch"),
]

PRELUDE = """
import json, os, signal, sys, threading, time
from nobroker import BackoffPolicy, Queue, Worker

queue = Queue(sys.argv[1], visibility_timeout=1.0, backoff=BackoffPolicy(base=0, jitter=0))

def say(what):
    os.write(1, f"{what}\\n".encode())  # one write: lines of two threads do not mix

def work(handler, **options):
    stats = Worker(queue, handler, poll_interval=0.05, **options).run()
    say(json.dumps(stats.to_dict()))
"""


class Child:
    def __init__(self, directory: Path, code: str) -> None:
        script = PRELUDE + textwrap.dedent(code)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self, signum: int) -> None:
        self.process.send_signal(signum)

    def end(self, timeout: float = 20) -> tuple[int, dict[str, Any]]:
        """Its exit code, and the counts it printed last."""
        out, _ = self.process.communicate(timeout=timeout)
        lines = out.split("\n")
        return self.process.returncode, json.loads(lines[-2]) if len(lines) > 1 else {}


class Nursery:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[Child] = []

    def start(self, code: str) -> Child:
        self.children.append(Child(self.directory, code))
        return self.children[-1]


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    made = Nursery(tmp_path / "jobs")
    yield made
    for child in made.children:
        if child.process.poll() is None:
            child.process.kill()
        child.process.wait()
        if child.process.stdout is not None:
            child.process.stdout.close()


@pytest.fixture
def queue(nursery: Nursery) -> Iterator[Queue]:
    with Queue(nursery.directory, visibility_timeout=1.0, backoff=BackoffPolicy(base=0, jitter=0)) as made:
        yield made


SLOW = """
def handler(job):
    say("begun")
    end = time.monotonic() + 2.2
    while time.monotonic() < end:  # longer than two leases
        time.sleep(0.1)
    with open(sys.argv[1] + ".ran", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""


@pytest.mark.parametrize("how", ["signal", "stop", "max_jobs"])
def test_a_long_last_job_is_nobody_elses(nursery: Nursery, queue: Queue, how: str) -> None:
    job = queue.enqueue("slow")
    ends = {
        "signal": "work(handler)",
        "stop": """
            worker = Worker(queue, handler)
            threading.Timer(0.5, worker.stop).start()
            say(json.dumps(worker.run().to_dict()))
            """,
        "max_jobs": "work(handler, max_jobs=1)",
    }
    first = nursery.start(SLOW + textwrap.dedent(ends[how]))
    assert first.line() == "begun"
    if how == "signal":
        first.kill(signal.SIGTERM)
    second = nursery.start(SLOW + "work(handler, idle_timeout=3)")
    assert first.end() == (0, {"leased": 1, "succeeded": 1, "failed": 0, "dead": 0, "lost_leases": 0})
    code, counts = second.end()
    assert (code, counts["leased"]) == (0, 0)
    assert Path(f"{nursery.directory}.ran").read_text().split() == [str(first.process.pid)]
    done = queue.get(job.id)
    assert (done.state, done.attempts) == (JobState.DONE, 1)


def test_a_second_signal_gives_all_back_and_waits_for_nobody(nursery: Nursery, queue: Queue) -> None:
    queue.enqueue_many(range(6))
    child = nursery.start(
        """
        def handler(job):
            say("begun")
            threading.Event().wait(60)

        work(handler, concurrency=2, batch=2)
        """
    )
    assert [child.line(), child.line()] == ["begun", "begun"]
    child.kill(signal.SIGTERM)
    assert queue_gets(queue, ready=4), "what had not begun comes back at once"
    child.kill(signal.SIGINT)
    code, counts = child.end(timeout=10)
    assert (code, counts["leased"], counts["succeeded"]) == (0, 4, 0)
    assert queue.stats().ready == 6
    jobs = queue.lease(6)
    assert [job.payload for job in jobs] == list(range(6)), "they keep their places"
    assert {job.attempts for job in jobs} == {1}, "no attempt was burnt"


def queue_gets(queue: Queue, *, ready: int) -> bool:
    """Wait for other processes to give jobs back."""
    for _ in range(200):
        if queue.stats().ready == ready:
            return True
        queue.lease(1, wait=0.05, lanes=["of nobody"])
    return False


def test_a_process_ends_as_its_handler_wished(nursery: Nursery, queue: Queue) -> None:
    queue.enqueue_many(range(3))
    child = nursery.start(
        """
        def handler(job):
            sys.exit(7)

        work(handler, batch=3)
        """
    )
    assert child.end()[0] == 7
    assert queue.stats().ready == 3
    assert queue.list_jobs()[0].attempts == 1
    assert (queue.list_jobs()[0].last_error or "").startswith("SystemExit: 7")


def test_a_killed_worker_costs_an_attempt_and_a_killer_ends(nursery: Nursery, queue: Queue) -> None:
    job = queue.enqueue("killer", max_attempts=2)
    for _ in range(2):
        child = nursery.start(
            """
            def handler(job):
                os.kill(os.getpid(), signal.SIGKILL)

            work(handler)
            """
        )
        assert child.end()[0] == -signal.SIGKILL
    survivor = nursery.start("work(print, idle_timeout=1.5)")
    code, counts = survivor.end()
    assert (code, counts["leased"]) == (0, 0)
    assert queue.get(job.id).state is JobState.DEAD


def test_errors_that_cannot_be_stored_still_fail_the_job(nursery: Nursery, queue: Queue) -> None:
    queue.enqueue(1, max_attempts=2)
    queue.enqueue(2, max_attempts=2)
    child = nursery.start(
        """
        class Unspeakable(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        def handler(job):
            raise ValueError("bad \\udcff \\x00") if job.payload == 1 else Unspeakable()

        work(handler, idle_timeout=0.5)
        """
    )
    assert child.end() == (0, {"leased": 4, "succeeded": 0, "failed": 4, "dead": 2, "lost_leases": 0})
    errors = [job.last_error or "" for job in queue.dlq()]
    assert [error.split(":")[0] for error in errors] == ["ValueError", "Unspeakable"]


def test_forks_beside_a_working_worker(nursery: Nursery, queue: Queue) -> None:
    """Children use the inherited queue, whatever the parent's worker and heartbeat hold meanwhile."""
    queue.enqueue("long")
    child = nursery.start(
        """
        begun, over = threading.Event(), threading.Event()

        def handler(job):
            if job.payload == "long":
                begun.set()
                over.wait(30)

        worker = Worker(queue, handler, concurrency=4, poll_interval=0.01)
        thread = threading.Thread(target=worker.run)
        thread.start()
        begun.wait(10)
        codes = []
        for number in range(25):
            pid = os.fork()
            if pid == 0:
                signal.alarm(5)
                queue.enqueue(number)
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        deadline = time.monotonic() + 15
        while worker.stats.succeeded < 25 and time.monotonic() < deadline:
            time.sleep(0.05)
        over.set()
        worker.stop()
        thread.join()
        say(json.dumps({**worker.stats.to_dict(), "codes": sum(map(abs, codes))}))
        """
    )
    assert child.end(60) == (
        0,
        {"leased": 26, "succeeded": 26, "failed": 0, "dead": 0, "lost_leases": 0, "codes": 0},
    )
    assert queue.stats().done == 26
