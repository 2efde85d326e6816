"""A segment whose records do not all verify is not retired: compaction would hide what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from nobroker import CorruptLogError, Queue
from nobroker.clock import SystemClock
from nobroker_mmap.format import RECORD_HEADER_SIZE, RECORD_MAGIC
from nobroker_mmap.salvage import salvage


def filled(path: Path) -> dict[str, int]:
    """A queue of several segments; what its jobs carry, by id."""
    with Queue(path, segment_size=65536, fsync=False) as queue:
        return {queue.enqueue({"n": n, "fill": "x" * 400}).id: n for n in range(500)}


def spoil(path: Path, share: float) -> None:
    """A wrong bit in one record of a sealed segment, whose index is lost, too."""
    segment = sorted(path.glob("*.seg"))[1]
    data = bytearray(segment.read_bytes())
    record = data.find(RECORD_MAGIC, int(len(data) * share))
    data[record + RECORD_HEADER_SIZE + 40] ^= 4
    segment.write_bytes(data)
    for index in path.glob("*.idx"):
        index.unlink()


def compact_again_and_again(path: Path) -> None:
    with Queue(path, fsync=False, segment_size=65536) as queue:
        for _ in range(10):
            queue.compact()


def payloads(queue: Queue) -> dict[str, int]:
    return {job.id: job.payload["n"] for job in queue.list_jobs()}


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("cache", ["kept", "lost"])
def test_compaction_refuses_and_salvage_loses_one(tmp_path: Path, share: float, cache: str) -> None:
    made = filled(tmp_path)
    spoil(tmp_path, share)
    if cache == "lost":
        for snapshot in tmp_path.glob("*.snap"):
            snapshot.unlink()
    with pytest.raises(CorruptLogError) as error:
        compact_again_and_again(tmp_path)
    assert error.value.path.endswith("000002.seg")
    assert error.value.offset > 0
    assert len(list(tmp_path.glob("*.000002.seg"))) == 1
    salvage(tmp_path, "default", boot_id=SystemClock().boot_id())
    with Queue(tmp_path, fsync=False, segment_size=65536) as queue:
        left = payloads(queue)
        queue.compact()
        assert payloads(queue) == left
        assert list(queue.check()) == []
    assert left.items() <= made.items()
    assert len(left) == len(made) - 1


@pytest.mark.parametrize("batch", [64, 100, 1000])
def test_compaction_of_sound_segments_finds_no_loss(tmp_path: Path, batch: int) -> None:
    """Also where one record ends and the next begins at the edge of a page of the census."""
    with Queue(tmp_path, fsync=False, segment_size=65536) as queue:
        queue.enqueue_many([{"n": -n} for n in range(1, 4096 % batch or batch)])  # so that one ends at 4,095
        for first in range(0, 9000, batch):
            queue.enqueue_many([{"n": n} for n in range(first, first + batch)])
        before = payloads(queue)
        queue.compact()
        assert payloads(queue) == before
        assert list(queue.check()) == []
