"""Limits among processes that are killed: never more holders than the limit, and no slot is lost.

Holders tell in files of their own when they begin and end; nothing that the queue says is believed.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from nobroker import Job, Limit, NotLeasedError, Queue

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
]

PROCESSES, JOBS, KILLS = 8, 60, 20
LEASE_S = 0.8
LIMITS = {"one": 1, "two": 2, "three": 3}
LANES = ("", "a", "b")


def limits_of(number: int) -> list[Limit]:
    names = list(LIMITS)
    chosen = [names[number % 3]] if number % 4 else [names[number % 3], names[(number + 1) % 3]]
    return [Limit(name, LIMITS[name]) for name in chosen]


def hold_jobs(directory: str, log: str) -> None:
    """Lease, hold, ack, until nothing is left or somebody kills us."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(what: str, job: Job, sure_until: float) -> None:
        line = {"what": what, "token": job.lease_token, "keys": job.payload, "at": time.monotonic()}
        os.write(file, json.dumps({**line, "until": sure_until}).encode() + b"\n")

    pick = random.Random(os.getpid())
    with Queue(directory, fsync=False, visibility_timeout=LEASE_S, max_attempts=1000) as queue:
        while True:
            sure_until = time.monotonic() + LEASE_S
            job = queue.lease_one(wait=0.2)
            if job is None:
                if not queue.stats().ready and not queue.stats().leased:
                    return
                continue
            tell("begin", job, sure_until)
            pause(pick.uniform(0, 0.03))
            tell("end", job, sure_until)
            with contextlib.suppress(NotLeasedError):  # too slow: somebody else has it
                queue.ack(job) if pick.random() < 0.8 else queue.release(job)


def put_in(queue: Queue, total: int) -> int:
    for number in range(total, total + JOBS):
        limits = limits_of(number)
        keys = [limit.key for limit in limits]
        queue.enqueue(keys, limits=limits, lane=LANES[number % 3], max_attempts=1000)
    return JOBS


def pause(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)


def most_at_once(lines: list[dict[str, Any]], died: dict[str, float]) -> dict[str, int]:
    """How many holders each key had at once, by their own words."""
    moments: list[tuple[float, int, str]] = []
    begun: dict[int, dict[str, Any]] = {}
    for line in lines:
        if line["what"] == "begin":
            begun[line["token"]] = line
            continue
        began = begun.pop(line["token"])
        moments += _interval(began, min(line["at"], line["until"]))
    for began in begun.values():  # killed in the midst
        moments += _interval(began, min(died[began["log"]], began["until"]))
    held, most = dict.fromkeys(LIMITS, 0), dict.fromkeys(LIMITS, 0)
    for _, change, key in sorted(moments):
        held[key] += change
        most[key] = max(most[key], held[key])
    return most


def _interval(began: dict[str, Any], end: float) -> list[tuple[float, int, str]]:
    if end <= began["at"]:
        return []
    return [(at, change, key) for key in began["keys"] for at, change in ((began["at"], 1), (end, -1))]


def test_never_more_holders_than_the_limit_and_no_slot_is_lost(tmp_path: Path) -> None:
    directory = str(tmp_path / "jobs")
    context = multiprocessing.get_context("fork")
    serial, pick = 0, random.Random(1)
    running: dict[str, Any] = {}
    died: dict[str, float] = {}
    deadline = time.monotonic() + 120
    kills = total = 0
    while time.monotonic() < deadline:
        for log in [log for log, process in running.items() if not process.is_alive()]:
            died.setdefault(log, time.monotonic())
            del running[log]
        with Queue(directory, fsync=False) as queue:
            if kills < KILLS and queue.stats().ready < JOBS:
                total += put_in(queue, total)
            if queue.stats().done == total:
                break
        while len(running) < PROCESSES:
            serial += 1
            log = str(tmp_path / f"holder-{serial}")
            running[log] = context.Process(target=hold_jobs, args=(directory, log))
            running[log].start()
        pause(0.08)
        if kills < KILLS:
            log, process = pick.choice(list(running.items()))
            process.kill()
            process.join()
            died[log] = time.monotonic()
            kills += 1
    for log, process in running.items():
        process.join(20)
        died.setdefault(log, time.monotonic())
    lines = [
        {**json.loads(line), "log": str(path)}
        for path in tmp_path.glob("holder-*")
        for line in path.read_bytes().splitlines()
    ]
    lines.sort(key=lambda line: line["at"])
    assert kills == KILLS, "nothing was tried"
    with Queue(directory, fsync=False) as queue:
        assert queue.stats().done == total, "a slot was lost for ever"
        most = most_at_once(lines, died)
        assert all(most[key] <= limit for key, limit in LIMITS.items()), most
        assert most["three"] > 1, "there was something to see"
        queue.enqueue_many(range(9), limits=[Limit(key, n) for key, n in LIMITS.items() if n > 1])
        assert len(queue.lease(20)) == 2
        assert queue.check() == []
