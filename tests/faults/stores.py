"""Queues with known content, what they answer, and their files put back as they were."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nobroker import NobrokerError, Queue
from nobroker.clock import ManualClock
from nobroker.stores.following import Following, Options
from nobroker_mmap import format as fmt

SMALL = 65536
MEMORY = Path("/dev/shm")


@contextmanager
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory that costs no disk, where there is such a thing."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        yield tmp_path
        return
    found = Path(tempfile.mkdtemp(prefix="nobroker-faults-", dir=MEMORY))
    try:
        yield found
    finally:
        shutil.rmtree(found)


@dataclass
class Place:
    """A queue directory whose files can be put back."""

    directory: Path
    clock: ManualClock = field(default_factory=ManualClock)
    kept: dict[str, bytes] = field(default_factory=dict)

    def queue(self, **options: Any) -> Queue:
        """Open it."""
        given = {"fsync": False, "clock": self.clock, "segment_size": SMALL, "auto_compact": False, **options}
        return Queue(self.directory, **given)

    def files(self) -> list[Path]:
        """All regular files."""
        return sorted(path for path in self.directory.iterdir() if path.is_file())

    def keep(self) -> None:
        """Remember all files as they are."""
        self.kept = {path.name: path.read_bytes() for path in self.files()}

    def restore(self) -> None:
        """Put the remembered files back, in place, and remove all others."""
        for path in self.files():
            if path.name not in self.kept:
                path.unlink()
        for name, data in self.kept.items():
            path = self.directory / name
            if not path.exists() or path.stat().st_size != len(data) or path.read_bytes() != data:
                with open(path, "r+b" if path.exists() else "wb") as file:
                    file.write(data)
                    file.truncate()

    def changed(self, kind: str = "seg") -> list[str]:
        """Names of the kept files of a kind that are not as they were kept."""
        return [
            name
            for name, data in self.kept.items()
            if name.endswith(kind) and (self.directory / name).read_bytes() != data
        ]

    def answers(self, **options: Any) -> Any:
        """All that a queue says of its jobs."""
        with self.queue(**options) as queue:
            return said(queue)


def said(queue: Queue) -> Any:
    """All that an open queue says of its jobs."""
    jobs = [job.to_dict() for job in queue.list_jobs()]
    ready = [job.seq for job in queue.list_jobs("ready")]
    stats = queue.stats()
    counts = (stats.ready, stats.delayed, stats.leased, stats.done, stats.dead)
    return jobs, ready, counts, queue.paused, queue.get(jobs[0]["id"]).to_dict() if jobs else None


def leave(queue: Queue) -> None:
    """As a killed process would: nothing is said, nothing is written."""
    store: Any = queue._store
    store._session.log._release_files()


def fill(queue: Queue, jobs: int = 24, size: int = 2000) -> None:
    """Jobs in every state, by records of every usual type."""
    for number in range(jobs):
        queue.enqueue({"n": number, "pad": f"{number:04}" * (size // 4)}, priority=number % 3)
        if number % 6 == 5:
            queue.enqueue_many([{"n": number, "i": i} for i in range(9)], lane="many")
            held = queue.lease(5)
            queue.ack(held[0], result=number)
            queue.nack(held[1], error="tried", delay=number)
            queue.nack(held[2], error="dead", dead=True)
            queue.extend(held[3], 500.0, progress=number, state={"at": number})
            queue.release(held[4], state=["given back", number])
            queue.reschedule(held[4].id, delay=number / 10)
            queue.enqueue(number, job_id=f"own-{number}")
    queue.cancel(queue.enqueue("not wanted").id)
    queue.pause(lane="paused")


def records(directory: Path, clock: ManualClock) -> tuple[list[tuple[int, int, bytes]], Any]:
    """(offset, type, body) of each record that a reader is given, and the damage at which it stops."""
    following = Following(directory, "default", Options(read_only=True), clock.boot_id())
    log = following.log
    try:
        found = [(record.lsn, record.type, record.body) for record in log.records()]
        return found, log.damage
    finally:
        log.close()


def spans(path: Path) -> list[tuple[int, int]]:
    """(first, end) offsets of the records of a sound segment file."""
    data = path.read_bytes()
    found, at = [], fmt.SEGMENT_HEADER_SIZE
    while data[at : at + 4] == fmt.RECORD_MAGIC:
        end = at + (fmt.RECORD_HEADER_SIZE + int.from_bytes(data[at + 8 : at + 12], "little") + 7) // 8 * 8
        found.append((at, end))
        at = end
    return found


def outcome(work: Any) -> Any:
    """What a call returns, or the typed error that it raises."""
    try:
        return work()
    except NobrokerError as error:
        return error


@contextmanager
def flipped(path: Path, offset: int, bit: int) -> Iterator[None]:
    """A file with one bit changed, in place, and put back."""
    fd = os.open(path, os.O_RDWR)
    try:
        old = os.pread(fd, 1, offset)
        os.pwrite(fd, bytes([old[0] ^ 1 << bit]), offset)
        try:
            yield
        finally:
            os.pwrite(fd, old, offset)
    finally:
        os.close(fd)
