"""One process of the history checker: `python historian.py DIRECTORY NOTES SECONDS SEED`.

Random verbs for a while; each with what it gave and when, by the monotonic clock, as a line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from nobroker import Job, JobNotFoundError, NotLeasedError, Queue
from tests.faults.limited import NARROW, some_limits

FIFO = "fifo"
"""The lane where nothing is given back, and nothing has limits."""
VISIBILITIES = (0.1, 0.5, 1.5)


class Historian:
    """A process that does things and remembers them."""

    def __init__(self, directory: str, notes: str, seconds: str, seed: str) -> None:
        self.rng = random.Random(seed)
        self.me = seed
        self.serial = 0
        self.end = time.monotonic() + float(seconds)
        self.queue = Queue(directory, segment_size=65536, fsync=self.rng.random() < 0.5, max_attempts=10**6)
        self.held: list[Job] = []
        self.notes = open(notes, "w", encoding="utf-8")  # noqa: SIM115  # closed by the end of the process

    def note(self, verb: str, work: Callable[[], Any], about: Callable[[Any], Any]) -> None:
        began = time.monotonic()
        try:
            given, refused = work(), None
        except (NotLeasedError, JobNotFoundError) as error:
            given, refused = None, type(error).__name__
        ended = time.monotonic()
        line = {"verb": verb, "t": [began, ended], "refused": refused, "what": about(given)}
        self.notes.write(json.dumps(line) + "\n")

    def enqueue(self) -> None:
        number = self.rng.choice([1, 1, 2, 20])
        payloads = [f"{self.me}:{self.serial + i}" for i in range(number)]
        self.serial += number
        options = self.rng.choice([{}, {"lane": FIFO}, some_limits(self.rng), some_limits(self.rng)])
        self.note(
            "enqueue",
            lambda: self.queue.enqueue_many(payloads, **options),
            lambda jobs: [[job.seq, job.payload] for job in jobs],
        )

    def lease(self) -> None:
        lanes = self.rng.choice([["", NARROW], ["", NARROW], [FIFO]])
        visibility = 600.0 if FIFO in lanes else self.rng.choice(VISIBILITIES)
        number = self.rng.choice([1, 2, 8])

        def work() -> list[Job]:
            wait = self.rng.choice([0.0, 0.05])
            jobs = self.queue.lease(number, visibility_timeout=visibility, lanes=lanes, wait=wait)
            self.held += jobs
            return jobs

        def about(jobs: list[Job]) -> Any:
            fields = ("seq", "payload", "lease_token", "attempts", "lease_deadline", "lane", "limits")
            return [[getattr(job, field) for field in fields] + [visibility] for job in jobs]

        self.note("lease", work, about)

    def settle(self, verb: str) -> None:
        if not self.held:
            return
        job = self.held.pop(self.rng.randrange(len(self.held)))
        if job.lane == FIFO and verb != "ack":
            verb = "ack"
        calls = {
            "ack": lambda: self.queue.ack(job),
            "nack": lambda: self.queue.nack(job, delay=0.0, dead=False),
            "release": lambda: self.queue.release(job),
        }
        self.note(verb, calls[verb], lambda _: [job.seq, job.lease_token])

    def extend(self) -> None:
        held = [job for job in self.held if job.lane != FIFO]
        if held:
            job = self.rng.choice(held)
            self.note(
                "extend",
                lambda: self.queue.extend(job, 0.4),
                lambda renewed: [job.seq, job.lease_token, renewed and renewed.lease_deadline],
            )

    def forget(self) -> None:
        """Let a lease run out."""
        kept = [job for job in self.held if job.lane == FIFO]
        self.held = kept + [job for job in self.held if job.lane != FIFO][:-1]

    def run(self) -> None:
        while time.monotonic() < self.end:
            verb = self.rng.choice(
                ["e", "l", "l", "l", "ack", "ack", "ack", "nack", "release", "x", "f", "c"]
            )
            if verb in ("ack", "nack", "release"):
                self.settle(verb)
            elif verb == "c":
                if self.rng.random() < 0.03:
                    self.queue.compact()
            else:
                {"e": self.enqueue, "l": self.lease, "x": self.extend, "f": self.forget}[verb]()
        for job in [job for job in self.held if job.lane == FIFO]:
            self.note(
                "ack", lambda job=job: self.queue.ack(job), lambda _, job=job: [job.seq, job.lease_token]
            )  # type: ignore[misc]
        self.notes.close()
        self.queue.close()


if __name__ == "__main__":
    Historian(*sys.argv[1:]).run()
