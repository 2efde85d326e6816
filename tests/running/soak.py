"""A supervisor over a longer time, with all that happens to one: ``python -m tests.running.soak --seconds
600``.

Four processes that recycle by memory and by count, two that have each job to themselves, a scheduler. They
are killed, told to stop, restarted; the queue is paused; jobs grow, crash, hang. Nothing may be lost, and
nothing may be left at the end: no process, no lease, no descriptor more than at the beginning.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from nobroker import JobState
from tests.running.trial import Running, Trial, trial_in, wait_for

JOBS = """
import random

app = App("data", fsync=False, visibility_timeout=2, max_attempts=50)
kept = []

@app.job(retry=[Retry(Exception, attempts=50, wait=0.05)])
def count(number):
    time.sleep(random.random() * 0.02)
    note("runs", number)

@app.job(retry=[Retry(Exception, attempts=50, wait=0.05)])
def grow(number):
    kept.append(bytearray(os.urandom(4096) * 2048))
    note("runs", number)

@app.job(queue="alone", timeout=0.2, retry=[Retry(Exception, attempts=50, wait=0.05)])
def alone(number):
    what = random.random()
    if what < 0.1:
        os.kill(os.getpid(), random.choice([signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM]))
    elif what < 0.12:
        ctypes.PyDLL(None).sleep(60)
    note("runs", number)

@app.recurring("* * * * * *", name="tick", missed="all")
@app.job
def tick():
    note("ticks")
"""
CONFIG = """workers=(
    WorkerConfig(queues=('default',), processes=4, threads=2, memory_recycle_at={limit}, memory_interval=0.2,
                 memory_confirmations=2, max_jobs=300),
    WorkerConfig(queues=('alone',), isolation='process', threads=2),
), shutdown_timeout=10, heartbeat_interval=1"""
MB = 2**20


class Soak:
    """One run of it.

    Args:
        trial: where.
        seconds: how long jobs are enqueued and processes disturbed.
        seed: other random numbers.
    """

    def __init__(self, trial: Trial, seconds: float, seed: int) -> None:
        self.trial = trial
        self.seconds = seconds
        self.did: Counter[str] = Counter()
        self.enqueued = 0
        self._random = random.Random(seed)
        trial.add(JOBS)

    def run(self) -> dict[str, Any]:
        """Figures.

        Raises:
            AssertionError: something was lost, or left.
        """
        self._enqueue()
        running = self.trial.program(CONFIG.format(limit=120 * MB))
        wait_for(lambda: len(running.children()) == 7, running.log)
        self.trial.until("runs", 1)
        before = descriptors(running)
        self._disturb(running)
        self._see_all_done(running)
        # One child more or less has no descriptor here; a process that settles may just be there.
        wait_for(lambda: descriptors(running) == before, lambda: f"{before} {descriptors(running)}")
        assert running.end() == 0, running.log()[-3000:]
        return self._judged(running)

    def _disturb(self, running: Running) -> None:
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            what = self._random.choice(["enqueue"] * 6 + ["kill"] * 3 + ["term", "restart", "pause"])
            self.did[what] += 1
            getattr(self, f"_{what}")(running)
            time.sleep(self._random.random() * 0.4)

    def _enqueue(self, running: Running | None = None) -> None:
        for job, count in (("count", 60), ("grow", 4), ("alone", 6)):
            first, self.enqueued = self.enqueued, self.enqueued + count
            self.trial.later_all(job, range(first, self.enqueued))

    def _kill(self, running: Running) -> None:
        self._tell_one(running, signal.SIGKILL)

    def _term(self, running: Running) -> None:
        self._tell_one(running, signal.SIGTERM)

    def _tell_one(self, running: Running, number: int) -> None:
        there = running.children()
        if there:
            try:
                os.kill(self._random.choice(there), number)
            except ProcessLookupError:
                self.did["too late"] += 1

    def _restart(self, running: Running) -> None:
        running.tell(signal.SIGHUP)

    def _pause(self, running: Running) -> None:
        with self.trial.queue() as queue:
            queue.pause()
            time.sleep(0.2)
            queue.resume()

    def _see_all_done(self, running: Running) -> None:
        def done() -> bool:
            with self.trial.queue() as queue:
                stats = queue.stats(lane="default"), queue.stats(lane="alone")
                if sum(one.ready + one.delayed + one.leased for one in stats) > 1:
                    return False
                left = queue.list_jobs(JobState.READY) + queue.list_jobs(JobState.LEASED)
            return all(job.id.startswith("tick@") or job.lane.startswith("nobroker.") for job in left)

        wait_for(done, lambda: running.log()[-3000:], seconds=60 + self.seconds)

    def _judged(self, running: Running) -> dict[str, Any]:
        runs = Counter(int(number) for _, number in self.trial.lines("runs"))
        assert set(runs) == set(range(self.enqueued)), "each job has run"
        jobs = self.trial.jobs()
        states = Counter(str(job.state) for job in jobs if job.lane in ("default", "alone"))
        assert set(states) <= {"done", "ready"}, states
        assert states["ready"] <= 1, "at most a tick"
        assert self.trial.lines("ticks"), "the scheduler did something"
        log = running.log()
        return {
            "jobs": self.enqueued,
            "runs": sum(runs.values()),
            "processes": log.count("event=process.started role=worker"),
            "recycled": log.count("how=exit_code_75"),
            "killed": log.count("how=SIGKILL"),
            "timed out": log.count("event=job.killed"),
            "settled": log.count("event=job.settled"),
            **self.did,
        }


def descriptors(running: Running) -> int:
    """Open descriptors of the supervisor."""
    return len(os.listdir(f"/proc/{running.pid}/fd"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, trial_in(Path(home)) as trial:
        figures = Soak(trial, asked.seconds, asked.seed).run()
    print("  ".join(f"{name} {value}" for name, value in figures.items()), file=sys.stdout)


if __name__ == "__main__":
    main()
