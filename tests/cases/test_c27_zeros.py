"""C27: runs of zero bytes and empty files, as a power cut leaves them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import CorruptLogError, NobrokerError, Queue
from nobroker.clock import ManualClock
from nobroker_mmap import format as fmt

from .words import drain, end, no_caches, outcome, segs

CLOCK_START = 1_700_000_000.0


def make(directory: Path, clock: ManualClock) -> list[tuple[int, dict[str, str]]]:
    """Ten jobs, three of them acked; after each call, where its record ended and what the queue said."""
    history = []
    queue = Queue(directory, fsync=False, clock=clock)
    history.append((end(segs(directory)[-1]), states(queue)))
    for n in range(10):
        queue.enqueue(n)
        history.append((end(segs(directory)[-1]), states(queue)))
    for _ in range(3):
        job = queue.lease_one()
        assert job is not None
        history.append((end(segs(directory)[-1]), states(queue)))
        queue.ack(job)
        history.append((end(segs(directory)[-1]), states(queue)))
    queue._store._session.log._release_files()  # type: ignore[attr-defined]  # as a killed process leaves it
    return history


def states(queue: Queue) -> dict[str, str]:
    return {repr(job.payload): str(job.state) for job in queue.list_jobs()}


def test_the_last_bytes_before_the_end(tmp_path: Path) -> None:
    clock = ManualClock(CLOCK_START)
    history = make(tmp_path / "made", clock)
    segment = segs(tmp_path / "made")[-1]
    last = end(segment)
    for k in range(1, 201, 3):
        directory = tmp_path / str(k)
        shutil.copytree(tmp_path / "made", directory)
        no_caches(directory)
        with (directory / segment.name).open("r+b") as file:
            file.seek(last - k)
            file.write(bytes(k))
        # Where zeros take the place of zeros nothing is lost, so the newest of two is also right.
        allowed = [said for at, said in history if at <= last - k][-1:] + [
            said for at, said in history if last - k < at <= last - k + 16
        ]
        with Queue(directory, fsync=False, clock=clock) as queue:
            said = states(queue)
            assert said in allowed, f"k={k}"
            assert queue.recovery.records_applied >= 0
        with Queue(directory, fsync=False, clock=clock) as queue:
            assert states(queue) == said
            queue.enqueue("new")
            drain(queue)
            assert list(queue.check()) == []
        shutil.rmtree(directory)


def zero_newest(directory: Path) -> None:
    path = segs(directory)[-1]
    path.write_bytes(bytes(path.stat().st_size))


def zero_records(directory: Path) -> None:
    path = segs(directory)[-1]
    data = path.read_bytes()
    path.write_bytes(data[: fmt.SEGMENT_HEADER_SIZE] + bytes(len(data) - fmt.SEGMENT_HEADER_SIZE))


def rest(pattern: str, data: bytes | None) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(pattern):
            if path.suffix != ".wake":
                path.write_bytes(bytes(path.stat().st_size) if data is None else data)

    damage.__name__ = f"{pattern} {'zeros' if data is None else 'empty'}"
    return damage


CACHES = ["*.snap", "*.manifest", "*.idx", "*.lock", "*.sync", "*.open"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Several segments, closed cleanly."""
    directory = tmp_path / "q"
    with Queue(directory, fsync=False, segment_size=65536, clock=ManualClock(CLOCK_START)) as queue:
        queue.enqueue_many(range(10), priority=1)
        queue.ack_many(queue.lease(3))
        for _ in range(4):
            queue.enqueue_many([b"x" * 1000] * 40)
    assert len(segs(directory)) >= 3
    return directory


@pytest.mark.parametrize("data", [None, b""], ids=["zeros", "empty"])
@pytest.mark.parametrize("pattern", CACHES)
def test_a_cache_of_zeros_changes_no_answer(made: Path, pattern: str, data: bytes | None) -> None:
    clock = ManualClock(CLOCK_START)
    with Queue(made, read_only=True, clock=clock) as queue:
        said = states(queue)
    rest(pattern, data)(made)
    for _ in range(2):
        with Queue(made, fsync=False, clock=clock) as queue:
            assert states(queue) == said
            assert queue.stats().done == 3
            assert queue.get(queue.list_jobs()[5].id).payload == 5


@pytest.mark.parametrize(
    "damage",
    [zero_newest, zero_records, rest("*.seg", b""), rest("*.000001.seg", b"")],
    ids=lambda d: d.__name__,
)
@pytest.mark.parametrize("caches", [True, False])
def test_a_segment_of_zeros(made: Path, damage: Any, caches: bool) -> None:
    if not caches:
        no_caches(made)
    damage(made)
    before = {path.name: path.read_bytes() for path in segs(made)}

    def use() -> dict[str, str]:
        with Queue(made, fsync=False, clock=ManualClock(CLOCK_START)) as queue:
            found = states(queue)
            queue.enqueue("new")
            return found

    first = outcome(use)
    if isinstance(first, NobrokerError):
        assert isinstance(first, CorruptLogError), first
        assert ".seg" in str(first)
        assert {path.name: path.read_bytes() for path in segs(made)} == before, "something was changed"
        return
    assert set(list(first.values())[:3]) <= {"done"}
    with Queue(made, fsync=False, clock=ManualClock(CLOCK_START)) as queue:
        assert states(queue) == {**first, "'new'": "ready"}
