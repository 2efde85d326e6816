"""One process of the storm of kills: `python storm.py ROLE DIRECTORY NUMBER`. Ends by SIGKILL only."""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nobroker import NobrokerError, Queue, Worker
from tests.faults.limited import some_limits

SEGMENT = 128 * 1024
LIMITED_LEASE_S = 0.5


def opened(directory: str) -> Queue:
    return Queue(Path(directory) / "jobs", segment_size=SEGMENT, visibility_timeout=1.0, max_attempts=10**6)


def notes(directory: str, kind: str, number: str) -> int:
    return os.open(Path(directory) / f"{kind}-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def enqueue_for_ever(queue: Queue, out: int, number: str) -> Iterator[None]:
    """One by one and in batches; each job is noted, with its sequence number, once its enqueue has
    returned.
    """
    for turn in itertools.count():
        many = [f"{number}:{turn}:{index}" for index in range(1 + turn % 7)]
        if len(many) == 1:
            jobs = [queue.enqueue(many[0], priority=turn % 3)]
        else:
            jobs = list(queue.enqueue_many(many, priority=turn % 3))
        os.write(out, "".join(f"{job.payload} {job.seq}\n" for job in jobs).encode())
        yield


def come_and_go(directory: str, number: str) -> None:
    """How long it takes to get under way."""
    opened(directory).close()


def produce(directory: str, number: str) -> None:
    """Enqueue, with some regard for those who have to work it off."""
    out = notes(directory, "made", number)
    with opened(directory) as queue:
        for _ in enqueue_for_ever(queue, out, number):
            if queue.stats().ready > 2000:
                time.sleep(0.02)


def hoard(directory: str, number: str) -> None:
    """Enqueue what nobody works off, and junk between."""
    out = notes(directory, "made", number)
    with opened(directory) as queue:
        for _ in enqueue_for_ever(queue, out, number):
            queue.enqueue_many([None] * 5, lane="junk")


def clear(directory: str, number: str) -> None:
    """Work the junk off, so that compaction has something to do."""
    with opened(directory) as queue:
        while True:
            queue.ack_many(queue.lease(100, wait=1.0, lanes=["junk"], visibility_timeout=300.0))


def work(queue: Queue, out: int, rng: random.Random) -> None:
    """Lease, note what came, ack, note what is done; now and then nack, release or forget."""
    while True:
        jobs = queue.lease(rng.choice([1, 4, 20]), wait=0.2)
        for job in jobs:
            os.write(out, f"leased {job.seq} {job.lease_token} {job.payload}\n".encode())
        choice = rng.random()
        try:
            if choice < 0.8:
                queue.ack_many(jobs)
                os.write(out, "".join(f"acked {job.seq} {job.lease_token}\n" for job in jobs).encode())
            elif choice < 0.9:
                queue.release_many(jobs)
            else:
                queue.nack_many(jobs, delay=0.0, dead=False)
        except NobrokerError as error:
            if type(error).__name__ not in ("NotLeasedError", "JobNotFoundError"):
                raise


def threads(directory: str, number: str) -> None:
    """Two threads on one handle."""
    out = notes(directory, "worked", number)
    with opened(directory) as queue:
        for index in range(2):
            rng = random.Random(f"{number}/{index}")
            threading.Thread(target=end_together, args=(work, queue, out, rng), daemon=True).start()
        threading.Event().wait()


def end_together(work: Any, *words: Any) -> None:
    """An error in a thread ends the process, so that it is seen."""
    try:
        work(*words)
    except BaseException as error:
        print(f"{error!r}", file=sys.stderr, flush=True)
        os._exit(3)


def forks(directory: str, number: str) -> None:
    """A parent whose children work with the handle that they inherited; they die with it."""
    out = notes(directory, "worked", number)
    with opened(directory) as queue:
        queue.stats()
        parent = os.getpid()
        for index in range(2):
            if os.fork() == 0:
                rng = random.Random(f"{number}/{index}")
                threading.Thread(target=die_with, args=(parent,), daemon=True).start()
                end_together(work, queue, out, rng)
        end_together(work, queue, out, random.Random(number))


def die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.01)
    os._exit(0)


def compact(directory: str, number: str) -> None:
    """Compact and rotate without an end."""
    with opened(directory) as queue:
        while True:
            queue.compact()
            time.sleep(0.02)


def handlers(directory: str, number: str) -> None:
    """The library's own worker."""
    out = notes(directory, "worked", number)
    with opened(directory) as queue:
        Worker(
            queue, lambda job: os.write(out, f"ran {job.seq} {job.lease_token}\n".encode()), concurrency=2
        ).run()


def limited(directory: str, number: str) -> None:
    """Two threads that enqueue jobs with limits, and work them off."""
    out = notes(directory, "limited", number)
    with opened(directory) as queue:
        for index in range(2):
            rng = random.Random(f"{number}/{index}")
            threading.Thread(target=end_together, args=(within_limits, queue, out, rng), daemon=True).start()
        threading.Event().wait()


def within_limits(queue: Queue, out: int, rng: random.Random) -> None:
    """Each lease is noted when it has been had, and each end before it is begun: so nobody has given a slot
    back of whom there is no note.
    """

    def note(**words: Any) -> None:
        os.write(out, (json.dumps(words) + "\n").encode())

    while True:
        if queue.stats().ready < 30:
            for _ in range(10):
                queue.enqueue_many([None] * rng.choice([1, 2, 5]), **some_limits(rng, 0.08))
        began = time.monotonic()
        jobs = queue.lease(rng.choice([1, 2, 4]), wait=0.05, visibility_timeout=LIMITED_LEASE_S)
        fields = ("seq", "lease_token", "lane", "lease_deadline", "limits")
        leased = [[getattr(job, field) for field in fields] for job in jobs]
        note(t=[began, time.monotonic()], leased=leased)
        time.sleep(rng.choice([0.0, 0.002, 0.02]))
        choice = rng.random()
        if choice < 0.1:
            continue  # forgotten: they run out
        note(t=[time.monotonic()] * 2, ending=[job.lease_token for job in jobs])
        try:
            if choice < 0.8:
                queue.ack_many(jobs)
            elif choice < 0.9:
                queue.release_many(jobs)
            else:
                queue.nack_many(jobs, delay=0.0, dead=False)
        except NobrokerError as error:
            if type(error).__name__ not in ("NotLeasedError", "JobNotFoundError"):
                raise


ROLES = (come_and_go, produce, hoard, clear, threads, forks, compact, handlers, limited)

if __name__ == "__main__":
    {role.__name__: role for role in ROLES}[sys.argv[1]](*sys.argv[2:])
