"""Every call that changes the disk fails, once and from then on: typed errors only, nothing acknowledged that
is not durable, and all that was acknowledged is there afterwards.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nobroker import NobrokerError, Queue, StorageError
from nobroker.clock import ManualClock
from tests.faults.account import Account, key_of
from tests.faults.book import SEGMENT, Numbered, let_go
from tests.faults.disk import FileState, Recorder
from tests.faults.tap import installed
from tests.faults.trial import Trial

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the model is of a POSIX disk")


class Fault(NamedTuple):
    """What goes wrong."""

    call: str
    number: int
    """`errno`, or 0 for a short write."""
    lasting: bool

    def __str__(self) -> str:
        name = errno.errorcode[self.number] if self.number else "short"
        return f"{self.call}-{name}-{'lasting' if self.lasting else 'once'}"


FAULTS = [
    Fault(call, number, lasting)
    for call, numbers in {
        "sync": (errno.EIO,),
        "directory sync": (errno.EIO,),
        "write": (errno.ENOSPC, errno.EIO, 0),
        "size": (errno.ENOSPC, errno.EDQUOT),
        "create": (errno.ENOSPC, errno.EDQUOT),
        "rename": (errno.ENOSPC,),
        "unlink": (errno.EIO,),
    }.items()
    for number in numbers
    for lasting in (False, True)
]


class Planted:
    """A fault at the nth call of its kind, or from there on."""

    def __init__(self, fault: Fault, point: int) -> None:
        self.fault = fault
        self.point = point
        self.calls = 0

    def befalls(self, call: str) -> bool:
        if self.fault.call != call:
            return False
        self.calls += 1
        return self.calls > self.point if self.fault.lasting else self.calls == self.point + 1


class FailingDisk(Recorder):
    """A disk of which some calls fail."""

    def __init__(self, directory: Path, planted: list[Planted]) -> None:
        super().__init__(directory)
        self.planted = planted
        self.over = False
        self.lost_syncs = 0
        """How often a sync of a segment failed."""

    def _fault(self, call: str) -> Fault | None:
        """What befalls this call."""
        if self.over:
            return None
        met = [planted.fault for planted in self.planted if planted.befalls(call)]
        return met[0] if met else None

    def _fail(self, call: str) -> None:
        fault = self._fault(call)
        if fault is not None:
            raise OSError(fault.number, os.strerror(fault.number) + " (planted)")

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not os.path.lexists(path):
            self._fail("create")
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        fault = self._fault("write")
        if fault is not None:
            half = memoryview(data)[: len(data) // 2]
            if fault.number:  # a part, or all of it, may have been written before
                super().pwrite(fd, data if fault.number == errno.EIO else half, offset)
                raise OSError(fault.number, os.strerror(fault.number) + " (planted)")
            return super().pwrite(fd, half or data, offset)
        return super().pwrite(fd, data, offset)

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        self._fail("size")
        super().posix_fallocate(fd, offset, length)

    def fsync(self, fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            self._fail("directory sync")
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:
        try:
            self._fail("sync")
        except OSError:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(".seg"):
                self.lost_syncs += 1
            self._file("failed sync", fd, FileState.sync_failed)
            raise
        super().fdatasync(fd)

    def replace(self, source: str, target: str) -> None:
        self._fail("rename")
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        if os.path.lexists(path):
            self._fail("unlink")
        super().unlink(path)


class Run:
    """Two handles at work on a failing disk, as two processes would be."""

    def __init__(self, directory: Path, disk: FailingDisk) -> None:
        self.directory = directory
        self.disk = disk
        self.account = Account()
        self.moments: list[tuple[int, Account]] = [(0, Account())]
        """How many operations there had been when a call returned, and what was known then."""
        self.clock = ManualClock()
        self.handles: list[Queue | None] = [None, None]
        self.opened_at = [0, 0]
        self.failed: list[int] = []
        """How many operations there had been when a call raised an error."""
        self.keys = (f"job-{number}" for number in itertools.count())

    def call(self, which: int, call: Callable[[Queue], Any]) -> tuple[Any, NobrokerError | None]:
        """One call; only typed errors come back, and no success on a handle that saw a sync fail."""
        queue = self.handles[which]
        try:
            if queue is None:
                self.opened_at[which] = self.disk.lost_syncs
                queue = Queue(self.directory, clock=self.clock, segment_size=SEGMENT)
                self.handles[which] = queue
            answer = call(queue)
        except NobrokerError as error:
            self.failed.append(self.disk.position)
            return None, error
        if self.disk.lost_syncs > self.opened_at[which]:
            raise AssertionError(f"a handle that was open when a sync failed works on: {answer}")
        return answer, None

    def enqueue(self, which: int, count: int, size: int) -> None:
        keys = [next(self.keys) for _ in range(count)]
        jobs = [{"key": key, "pad": "x" * size} for key in keys]
        _, error = self.call(which, lambda queue: queue.enqueue_many(jobs))
        self.account.enqueued(keys, error)
        self.note()

    def work(self, which: int, count: int) -> None:
        held, _ = self.call(which, lambda queue: queue.lease(count))
        if held:
            keys = [key_of(job) for job in held]
            _, error = self.call(which, lambda queue: queue.ack_many(held))
            self.account.acked(keys, error)
            self.note()

    def note(self) -> None:
        self.moments.append((self.disk.position, self.account.copy()))

    def known_at(self, position: int) -> Account:
        """What was known after so many operations."""
        index = bisect_right(self.moments, position, key=lambda moment: moment[0]) - 1
        account = self.moments[index][1]
        return account.while_becoming(self.moments[min(index + 1, len(self.moments) - 1)][1])

    def close(self, which: int) -> None:
        queue, self.handles[which] = self.handles[which], None
        if queue is not None:
            queue.close()

    def do(self) -> None:
        for turn in range(3):
            self.enqueue(0, 2, 9_000)
            self.enqueue(1, 3, 9_000)
            self.work(0, 2)
            self.work(1, 1 + turn)
            if turn == 1:
                self.call(1, lambda queue: queue.compact())
                self.close(0)
        self.close(0)
        self.close(1)
        self.enqueue(0, 1, 10)

    def after(self, rng: random.Random) -> None:
        """The disk is well again: everything is opened anew. Then, besides, the power had failed, now or at
        some moment before.
        """
        disk = self.disk
        disk.over = True
        for queue in self.handles:
            if queue is not None:
                let_go(queue)
        position, calls = disk.position, Numbered()
        cuts = [(position, disk.after_least(position))]
        before = rng.choice([rng.randrange(position + 1), *self.failed[:5]])
        cuts += [(at, disk.after_some(at, rng)) for at in (position, before)]
        with Queue(self.directory, clock=self.clock, segment_size=SEGMENT) as queue:
            self.look(queue, self.account)
        later = ManualClock()
        later.reboot()
        for at, image in cuts:
            shutil.rmtree(self.directory)
            self.directory.mkdir()
            calls.numbers = image.write(self.directory)
            with installed(calls), Queue(self.directory, clock=later, segment_size=SEGMENT) as queue:
                self.look(queue, self.known_at(at))

    def look(self, queue: Queue, account: Account) -> None:
        account.compare(queue)
        job = queue.enqueue({"key": "afterwards"}, priority=9)
        assert queue.lease(1)[0].id == job.id
        queue.ack(job.id)
        damage = [finding for finding in queue.check() if finding.severity != "note"]
        assert damage == []


def one_run(directory: Path, planted: list[Planted], rng: random.Random) -> Run:
    """The workload with some faults."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    run = Run(directory, FailingDisk(directory, planted))
    with installed(run.disk):
        run.do()
        run.after(rng)
    return run


def fail_everywhere(fault: Fault, trial: Trial, directory: Path) -> None:
    """Each call of a kind fails in one run. In long runs then, besides, any other call."""
    where = directory / "jobs"
    counted = Planted(fault, 10**9)
    one_run(where, [counted], random.Random(0))
    points = counted.calls
    assert points > 2
    for number, point, rng in trial.points(points, again=True):
        planted = [Planted(fault, point)]
        if number >= points:
            planted.append(Planted(rng.choice(FAULTS), rng.randrange(points)))
            trial.count("pairs of faults")
        run = one_run(where, planted, rng)
        trial.count("errors seen", len(run.failed))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_failing_call(fault: Fault, trial: Trial, quick_directory: Path) -> None:
    fail_everywhere(fault, trial, quick_directory)
    print(f"{fault}: {dict(trial.figures)}")


def test_what_was_refused_does_not_come_after_a_power_cut(quick_directory: Path) -> None:
    """The write of an ack fails, and the power right after: the job is there to be worked again."""
    directory = quick_directory / "jobs"
    directory.mkdir()
    disk, clock = FailingDisk(directory, []), ManualClock()
    with installed(disk):
        queue = Queue(directory, clock=clock, segment_size=SEGMENT)
        job = queue.enqueue("work")
        held = queue.lease(1)
        disk.planted = [Planted(Fault("write", errno.EIO, False), 0)]
        with pytest.raises(StorageError) as caught:
            queue.ack(held[0])
        assert caught.value.outcome == "not written"
        let_go(queue)
    clock.reboot()
    for attempt in range(30):
        image = disk.after_some(disk.position, random.Random(attempt))
        where = quick_directory / str(attempt)
        where.mkdir()
        calls = Numbered()
        calls.numbers = image.write(where)
        with installed(calls), Queue(where, clock=clock, segment_size=SEGMENT) as again:
            assert [found.id for found in again.lease(2)] == [job.id]
            assert [finding for finding in again.check() if finding.severity != "note"] == []
