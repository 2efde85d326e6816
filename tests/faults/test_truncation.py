"""Files that end too early: found so by an opening, or cut short under processes at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nobroker import CorruptLogError, NobrokerError, Queue
from nobroker_mmap import format as fmt
from nobroker_mmap.salvage import salvage
from tests.faults.stores import SMALL, Place, fill, leave, outcome, records, scratch, spans
from tests.faults.trial import Trial

BLOCK = 256
WORKERS = Path(__file__).with_name("truncated_workers.py")


def two_segments(directory: Path) -> Place:
    """A log of two segments with all its caches, closed."""
    place = Place(directory)
    with place.queue(fsync=True) as queue:
        fill(queue, 12, 8000)
    place.directory.joinpath("default.wake").unlink(missing_ok=True)
    place.keep()
    return place


def cut(path: Path, data: bytes, length: int) -> None:
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate(length)


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment(trial: Trial, tmp_path: Path, number: int) -> None:
    """At every length (8 of 256 in an ordinary run): an error that says where, and nothing is removed.
    With the file whole again, all is as before.
    """
    with scratch(tmp_path) as directory:
        place = two_segments(directory)
        before = place.answers(read_only=True)
        path = directory / f"default.{number:06d}.seg"
        data = place.kept[path.name]
        for turn, rng in trial.rounds(len(data) // BLOCK):
            at = turn * BLOCK % len(data)
            for length in range(at, at + BLOCK) if trial.long else rng.sample(range(at, at + BLOCK), 8):
                cut(path, data, length)
                refused(outcome(place.answers), path, length)
                seen = outcome(lambda: place.answers(read_only=True))
                if isinstance(seen, NobrokerError):
                    refused(seen, path, length)
                else:
                    assert [job for job in seen[0] if job not in before[0]] == [] or number == 2
                assert path.read_bytes() == data[:length], "something was changed"
                trial.count("lengths")
            place.restore()
        assert place.answers() == before


def refused(error: Any, path: Path, length: int) -> None:
    assert isinstance(error, CorruptLogError), (length, error)
    assert str(path) in str(error)
    assert error.offset <= max(length, fmt.SEGMENT_HEADER_SIZE)


def test_a_salvage_after_it(trial: Trial, tmp_path: Path) -> None:
    """It costs the records that the file has no more, and no other."""
    with scratch(tmp_path) as directory:
        place = two_segments(directory)
        whole, _ = records(directory, place.clock)
        for number, rng in trial.rounds(60):
            path = directory / f"default.{number % 2 + 1:06d}.seg"
            data = place.kept[path.name]
            length = rng.randrange(spans_end(place, path) + 100)
            base = fmt.parse_segment_header(data).base
            lost = {
                base + first - fmt.SEGMENT_HEADER_SIZE for first, end in spans_of(place, path) if end > length
            }
            cut(path, data, length)
            report = salvage(directory, "default", boot_id=place.clock.boot_id())
            after, damage = records(directory, place.clock)
            assert damage is None
            assert after == [record for record in whole if record[0] not in lost], report
            with place.queue() as queue:
                queue.enqueue("goes on")
                assert [found for found in queue.check() if found.severity == "damage"] == []
            place.restore()
            trial.count("salvages")


def spans_of(place: Place, path: Path) -> list[tuple[int, int]]:
    cut(path, place.kept[path.name], len(place.kept[path.name]))
    return spans(path)


def spans_end(place: Place, path: Path) -> int:
    return spans_of(place, path)[-1][1]


@pytest.mark.parametrize("kind", [".idx", ".snap", ".manifest", ".lock"])
def test_a_cache(trial: Trial, tmp_path: Path, kind: str) -> None:
    """At every length (each fourth in an ordinary run): no answer changes."""
    with scratch(tmp_path) as directory:
        place = two_segments(directory)
        before = place.answers(read_only=True)
        (path,) = (path for path in place.files() if path.suffix == kind)
        data = place.kept[path.name]
        lengths = range(0, min(len(data), 600), 1 if trial.long or len(data) < 600 else 4)
        rest = range(600, len(data), 1 if trial.long else 97)
        every = [*lengths, *rest]
        for number, _ in trial.rounds(len(every)):
            length = every[number % len(every)]
            cut(path, data, length)
            assert outcome(lambda: place.answers(read_only=True)) == before, length
            assert outcome(place.answers) == before, length
            place.restore()
            trial.count("lengths")


def test_an_open_log_and_a_lost_lock_page(tmp_path: Path) -> None:
    """A lock file cut short in the middle of its fields is not half believed: the queue opens and goes on."""
    with scratch(tmp_path) as directory:
        place = Place(directory)
        queue = place.queue(fsync=True)
        fill(queue)
        leave(queue)
        place.keep()
        before = place.answers(read_only=True)
        for length in range(0, 160, 4):
            os.truncate(directory / "default.lock", length)
            with place.queue(fsync=True) as queue:
                assert queue.stats().total == sum(before[2])
                seq = queue.enqueue("more").seq
                assert seq > max(job["seq"] for job in before[0])
                assert queue.check() == [] or length == 0
            place.restore()


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="truncates mapped files, which Linux allows")
@pytest.mark.parametrize("kind", [".seg", ".idx", ".snap", ".lock"])
def test_under_processes_at_work(trial: Trial, tmp_path: Path, kind: str) -> None:
    """Files of a queue are cut short while processes use it: typed errors, no signal, no hang."""
    for number, rng in trial.rounds(2):
        with scratch(tmp_path) as directory:
            place = Place(directory / f"q{number}")
            with Queue(place.directory, fsync=False, segment_size=SMALL) as queue:
                queue.enqueue_many([b"x" * 900] * 200)
            command = [sys.executable, str(WORKERS), str(place.directory)]
            workers = [
                subprocess.Popen(
                    [*command, str(rng.random())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                for _ in range(2)
            ]
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "ready\n"
            victims = [path for path in place.files() if path.suffix == kind]
            for path in victims:
                share = rng.choice([0.0, 0.0, 0.3, 0.6])
                os.truncate(path, int(path.stat().st_size * share))
            outputs = [worker.communicate("\n", timeout=60)[0] for worker in workers]
            noticed = acked = 0
            for worker, out in zip(workers, outputs, strict=True):
                assert worker.returncode == 0, (worker.returncode, kind)
                said = json.loads(out.splitlines()[-1])
                assert said["untyped"] == []
                noticed += len(said["typed"])
                acked += said["acked"]
                trial.count("verbs", said["verbs"])
            if not noticed:
                all_is_there(place.directory, 200 - acked)
            trial.count("processes", len(workers))


def all_is_there(directory: Path, jobs: int) -> None:
    """Nobody noticed: then nothing that counts was cut off, or it was in memory, and compaction saved it."""
    with Queue(directory, fsync=False) as queue:
        left = [job for job in queue.list_jobs() if job.payload == b"x" * 900 and job.state != "done"]
        assert len(left) == jobs, "nobody noticed"
        assert [found for found in queue.check() if found.severity == "damage"] == []
