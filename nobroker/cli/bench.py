"""`nobroker bench`: how fast the queue is on this machine and this disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nobroker.cli.command import command
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker import Queue

Row = dict[str, Any]


@command("bench", "nobroker bench", "nobroker --dir /mnt/disk/jobs bench --jobs 50000 --no-fsync")
@click.option(
    "-n",
    "--jobs",
    type=click.IntRange(min=1),
    default=5000,
    metavar="N",
    help="Jobs per row.  [default: 5000]",
)
@click.option("--fsync/--no-fsync", default=True, help="Wait for the disk, as queues do, or not.")
def cli(settings: Settings, jobs: int, fsync: bool) -> None:
    """Measure the main calls on a queue made for it, beside the queue directory, and deleted afterwards."""
    from nobroker.cli import output

    rows = measure(_place(settings), jobs, fsync)
    if settings.json:
        output.document(rows)
        return
    output.table(
        ("CALL", "JOBS", "SECONDS", "JOBS/S"),
        (
            (row["name"], f"{row['jobs']:,}", f"{row['seconds']:.3f}", f"{row['ops_per_sec']:,.0f}")
            for row in rows
        ),
        right=("JOBS", "SECONDS", "JOBS/S"),
    )


def _place(settings: Settings) -> str | None:
    """Return a directory on the disk that the queues are on, where one was named; else the usual one."""
    if settings.given_dir is None and not os.environ.get("NOBROKER_DIR"):
        return None
    path = Path(settings.dir).resolve()
    return str(next(parent for parent in (path, *path.parents) if parent.is_dir()))


def measure(place: str | None, jobs: int, fsync: bool) -> list[Row]:
    """Run every measurement once; return its rows in the order of a job's life."""
    from nobroker import Queue

    directory = tempfile.mkdtemp(prefix="nobroker-bench-", dir=place)
    rows: list[Row] = []
    try:
        for name, prepared, run in _measurements(jobs):
            with Queue(directory, f"bench-{len(rows)}", fsync=fsync) as queue:
                if prepared:
                    queue.enqueue_many(_payloads(jobs))
                began = time.perf_counter()
                count = run(queue)
                seconds = time.perf_counter() - began
            rows.append(
                {"name": name, "jobs": count, "seconds": seconds, "ops_per_sec": count / max(seconds, 1e-9)}
            )
    finally:
        shutil.rmtree(directory)
    return rows


def _payloads(count: int) -> list[dict[str, Any]]:
    return [
        {"send_email_to": "ann@example.org", "template": "welcome", "n": number} for number in range(count)
    ]


def _measurements(jobs: int) -> list[tuple[str, bool, Callable[[Queue], int]]]:
    """Return (name, whether the queue is filled before, what is timed: returns how many jobs)."""
    singles = max(1, jobs // 10)

    def enqueue(queue: Queue) -> int:
        for payload in _payloads(singles):
            queue.enqueue(payload)
        return singles

    def enqueue_many(queue: Queue) -> int:
        return len(queue.enqueue_many(_payloads(jobs)))

    def lease_and_ack(queue: Queue) -> int:
        done = 0
        while done < singles and (job := queue.lease_one()) is not None:
            queue.ack(job)
            done += 1
        return done

    def lease_and_ack_many(queue: Queue) -> int:
        done = 0
        while batch := queue.lease(1000):
            queue.ack_many(batch)
            done += len(batch)
        return done

    return [
        ("enqueue", False, enqueue),
        ("enqueue_many", False, enqueue_many),
        ("lease_one + ack", True, lease_and_ack),
        ("lease(1000) + ack_many", True, lease_and_ack_many),
    ]
