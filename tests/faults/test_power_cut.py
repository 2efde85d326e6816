"""A real file system is shut down without flushing, while a process works on it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import Queue
from nobroker.clock import ManualClock
from tests.faults.account import Account
from tests.faults.book import SEGMENT
from tests.faults.kill_child import Children
from tests.faults.mounts import ext4_image, mount, unmount, unmount_at_last
from tests.faults.trial import Trial

fcntl = pytest.importorskip("fcntl")
SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING = struct.pack("<I", 2)
ROUNDS = 40


class Told:
    """What a working process has said through a FIFO."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._text = b""

    def lines(self) -> list[str]:
        """All whole lines so far."""
        while True:
            try:
                more = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                break
            if not more:
                break
            self._text += more
        return self._text.decode().split("\n")[:-1]

    def close(self) -> None:
        os.close(self._fd)


def account_of(before: list[str], after: list[str]) -> tuple[Account, int]:
    """What counts is what was read before the cut. Also the highest sequence number that anybody saw."""
    account = Account()
    for number, line in enumerate(after):
        what, *words = line.split()
        if what == "+":
            (account.there if number < len(before) else account.unknown).update(words)
        elif what == "-":
            (account.done if number < len(before) else account.perhaps_done).update(words)
        elif what == "?+":
            account.unknown.update(words)
        elif what == "?-":
            account.perhaps_done.update(words)
    highest = max((int(line[1:]) for line in after if line.startswith("#")), default=0)
    return account, highest


def wait_for(told: Told, beginning: str) -> None:
    """Until there is a line with that beginning."""
    end = time.monotonic() + 20
    while not any(line.startswith(beginning) for line in told.lines()):
        assert time.monotonic() < end, "the child does nothing"
        time.sleep(0.002)


def sync_directory(path: Path) -> None:
    """What was removed stays removed when the power fails."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    found = Children()
    yield found
    found.close()


def power_cut(directory: Path, image: Path, children: Children, rng: random.Random) -> tuple[Account, int]:
    """Let a child work on the mounted image and cut the power under it."""
    told = Told(directory / "notes")
    pid = children.begin("endless", directory)
    os.kill(pid, signal.SIGCONT)
    if rng.random() < 0.8:
        wait_for(told, "+")
    time.sleep(rng.uniform(0.0, 0.06))
    mounted = os.open(directory / "jobs", os.O_RDONLY | os.O_DIRECTORY)
    before = told.lines()
    try:
        fcntl.ioctl(mounted, SHUTDOWN, WITHOUT_FLUSHING)
    except OSError as error:
        pytest.skip(f"the file system does not allow to be shut down: {error}")
    finally:
        os.close(mounted)
        time.sleep(rng.uniform(0, 0.005))
        with contextlib.suppress(ProcessLookupError):  # it may have seen that the disk is gone, and ended
            os.kill(pid, signal.SIGKILL)
        children.end()
    account, highest = account_of(before, told.lines())
    told.close()
    mount_anew(image, directory / "jobs")
    return account, highest


def mount_anew(image: Path, jobs: Path) -> None:
    """Unmount, and mount. While somebody else holds a copy of all mounts (`unshare -m`), what was shut down
    lives on, and a new mount finds it as it is: then again.
    """
    end = time.monotonic() + 20
    while True:
        unmount(jobs)
        mount(["-o", "loop", str(image)], jobs)
        try:
            (jobs / "probe").touch()
            (jobs / "probe").unlink()
            return
        except OSError:
            assert time.monotonic() < end, "what was shut down does not go"
            time.sleep(0.05)


def cut_power(trial: Trial, children: Children, where: Path, rounds: int) -> None:
    """Again and again, with a new queue each time."""
    image, directory = where / "image", where / "work"
    jobs = directory / "jobs"
    jobs.mkdir(parents=True)
    ext4_image(image, 24)
    mount(["-o", "loop", str(image)], jobs)
    clock = ManualClock(time.time())
    try:
        for _, rng in trial.rounds(rounds, least=100):
            account, highest = power_cut(directory, image, children, rng)
            clock.reboot()
            with Queue(jobs / "queue", clock=clock, segment_size=SEGMENT) as queue:
                account.compare(queue)
                assert queue.enqueue({"key": "new"}).seq > highest, "a sequence number was given out again"
                assert [finding for finding in queue.check() if finding.severity != "note"] == []
            trial.count("acknowledged", len(account.there) + len(account.done))
            trial.count("unknown", len(account.unknown - account.there))
            shutil.rmtree(jobs / "queue")
            sync_directory(jobs)
            (directory / "notes").unlink()
    finally:
        unmount_at_last(jobs)


def test_the_power_fails(trial: Trial, children: Children, tmp_path: Path) -> None:
    cut_power(trial, children, tmp_path, ROUNDS)
    assert trial.figures["acknowledged"] > 0
    print(dict(trial.figures))
