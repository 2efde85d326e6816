"""Modelled power loss: every state that the disk may legally hold, opened."""

from __future__ import annotations

import copy
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from nobroker.clock import ManualClock
from nobroker_mmap import files
from nobroker_mmap.salvage import salvage
from tests.faults.book import Book, Expected, Found, Numbered, essence_of, let_go, open_image
from tests.faults.disk import Image, Recorder
from tests.faults.tap import installed
from tests.faults.trial import Trial
from tests.faults.workloads import WORKLOADS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the model is of a POSIX disk")
STATES = 1_000
LEAST = 10_000
"""For each of the workloads, in long runs."""
CLOSELY = 40
TWICE = 25
REMEMBERED = 20_000
BOOTS = 20
"""More than a workload has."""


class Opener:
    """Opens images; equal ones once."""

    def __init__(self, directory: Path, trial: Trial) -> None:
        self.directory = directory
        self.trial = trial
        self.calls = Numbered()
        self.known: dict[Any, Found] = {}
        self.made = 0

    def fresh(self) -> Path:
        self.made += 1
        path = self.directory / f"state-{self.made}"
        path.mkdir()
        return path

    def found(self, image: Image, clock: ManualClock) -> Found:
        key = image.key()
        if len(self.known) >= REMEMBERED:
            self.known.clear()
        if key not in self.known:
            self.trial.count("opened")
            path = self.fresh()
            closely = self.made % CLOSELY == 0
            with installed(self.calls):
                self.known[key] = open_image(image, path, self.calls, clock, closely=closely)
            shutil.rmtree(path)
        return self.known[key]


def judge(found: Found, expected: Expected) -> None:
    """Is what was found what a power cut may leave?"""
    if found.essence not in expected.essences:
        nearest = min(expected.essences, key=lambda other: len(other ^ found.essence))
        lost, extra = sorted(map(str, nearest - found.essence)), sorted(map(str, found.essence - nearest))
        raise AssertionError(
            f"not a state the queue was in since the last acknowledgement ({len(expected.essences)} were);"
            f" against the nearest, missing: {[t[:120] for t in lost]}, too much: {[t[:120] for t in extra]}"
        )
    assert found.seq > expected.numbers.seq, "a sequence number was given out again"
    assert found.token > expected.numbers.token, "a token was given out again"


def image_of(disk: Recorder, number: int, rng: random.Random) -> tuple[int, Image]:
    """The image of a round: first every prefix, whole and bare, then anything."""
    points = disk.position + 1
    if number < 3 * points:
        at, kind = divmod(number, 3)
        return at, disk.after_least(at, control=-kind) if kind < 2 else disk.after_all(at)
    at = rng.randrange(points)
    return at, disk.after_some(at, rng)


def second_cut(
    opener: Opener, image: Image, expected: Expected, clock: ManualClock, rng: random.Random
) -> None:
    """The power fails again while the opening repairs, or shortly after."""
    path = opener.fresh()
    disk = Recorder(path, image, image.write(path))
    book = Book(path, rng.random(), recorder=disk, clock=clock, before=expected)
    with book.recording():
        queue = book.open()
        book.first = essence_of(queue)
        book.do(queue, lambda: queue.enqueue("between two power cuts", priority=1000))
        book.do(queue, lambda: queue.lease(1), durable=False)
        let_go(queue)
    shutil.rmtree(path)
    again = copy.copy(clock)
    again.reboot()
    for _ in range(4):
        at = rng.randrange(disk.position + 1)
        opener.trial.count("states")
        opener.trial.count("second cuts")
        judge(opener.found(disk.after_some(at, rng), again), book.expected(at))


def lose_power(work: str, trial: Trial, directory: Path, states: int) -> Book:
    """Record a workload, then look at what the disk may hold: one state per round."""
    (directory / "recorded").mkdir()
    book = Book(directory / "recorded", trial.options.seed)
    with book.repeatable(), book.recording():
        WORKLOADS[work](book)
    opener = Opener(directory, trial)
    later = ManualClock()
    later.advance(10_000)
    for _ in range(BOOTS):
        later.reboot()
    for number, rng in trial.rounds(states, least=LEAST):
        at, image = image_of(book.disk, number, rng)
        expected = book.expected(at)
        trial.count("states")
        judge(opener.found(image, later), expected)
        if number % TWICE == 0:
            second_cut(opener, image, expected, later, rng)
    return book


@pytest.mark.parametrize("work", WORKLOADS)
def test_what_returned_is_there_after_a_power_cut(work: str, trial: Trial, quick_directory: Path) -> None:
    book = lose_power(work, trial, quick_directory, STATES)
    print(f"{work}: {book.disk.position} operations, {len(book.steps)} calls, {dict(trial.figures)}")


@pytest.mark.parametrize("fsync", [True, False])
def test_a_clean_end_says_nothing_of_what_came_after_it(fsync: bool, quick_directory: Path) -> None:
    """A peer saw a job that was not on the disk yet. Its number is not given out again."""
    (quick_directory / "recorded").mkdir()
    book = Book(quick_directory / "recorded", 1)
    with book.recording():
        with book.open() as queue:
            queue.enqueue("before")
        queue = book.open(fsync=fsync)
        job = queue.enqueue("seen by a peer")
        position = max(i for i, (kind, _) in enumerate(book.disk.kinds) if kind == "write") + 1
        let_go(queue)
    book.clock.reboot()
    calls = Numbered()
    for control in range(len(book.disk.controls_at(position))):
        image = book.disk.after_least(position, control=control)
        path = quick_directory / f"state-{control}"
        path.mkdir()
        with installed(calls):
            found = open_image(image, path, calls, book.clock, closely=True)
        assert len(found.essence) == 2
        assert found.seq > job.seq


def test_a_salvaged_file_is_kept_whenever_the_power_fails(quick_directory: Path) -> None:
    book = Book(quick_directory, 1)
    with book.recording():
        with book.open() as queue:
            queue.enqueue_many([{"pad": "x" * 500}] * 5)
            queue.enqueue("behind the damage")
            path = str(queue.path)
        fd = files.open_write(path)
        files.write_at(fd, b"damage", 1000)
        files.sync_file(fd)
        files.close(fd)
        began = book.disk.position
        report = salvage(quick_directory, "default", boot_id=book.clock.boot_id())
    assert report.losses
    assert report.kept_files
    damaged = book.disk.after_all(began).names["default.000001.seg"]
    for at in range(began, book.disk.position + 1):
        for attempt in range(20):
            image = book.disk.after_some(at, random.Random(f"{at}/{attempt}"))
            assert damaged in image.names.values(), f"lost after operation {at - began} of the repair"
