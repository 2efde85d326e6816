"""One segment: its file, its map, the records in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nobroker_mmap import files
from nobroker_mmap.errors import CorruptLogError, StorageError
from nobroker_mmap.segment import MapCache, open_segment
from tests.unit.mmap.harness import (
    SMALL,
    assert_clean,
    follow,
    many_segments,
    open_log,
    put,
    segment,
    small_log,
    text_of,
)
from tests.unit.mmap.test_handles import refuse


def test_what_is_no_record(tmp_path: Path) -> None:
    ends = small_log(tmp_path, close=True)
    found = open_segment(str(segment(tmp_path)))
    assert str(segment(tmp_path)) in repr(found)
    assert found.record_at(128).head() == {"s": 0, "n": 1}
    for offset in (0, 120, 129, 136, ends[-1] + 4096, SMALL - 56, SMALL, 2 * SMALL, -8):
        with pytest.raises(CorruptLogError) as caught:
            found.record_at(offset)
        assert caught.value.offset == max(0, min(offset, SMALL))
    found.end = ends[1] - 8
    with pytest.raises(CorruptLogError):
        found.record_at(ends[0] + (ends[1] - ends[0]) // 2)
    found.unmap()


def test_a_large_record_takes_two_looks(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1, text="x" * 400)
    put(log, 2, text="x" * 30_000)
    assert [text_of(log, key) for key in (1, 2)] == ["x" * 400 + "1", "x" * 30_000 + "2"]
    log.close()
    assert_clean(tmp_path)


def test_a_segment_that_is_another_one_by_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_log(tmp_path, close=True)
    path = segment(tmp_path)
    found = open_segment(str(path))
    before = path.read_bytes()
    os.truncate(path, 1000)
    with pytest.raises(CorruptLogError, match="1000 bytes"):
        found.map()
    path.write_bytes(b"N" + bytes(3) + before[4:])
    with pytest.raises(CorruptLogError, match="not the one this segment had"):
        found.map()
    path.write_bytes(before)
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_read", refuse)
        with pytest.raises(StorageError, match="too many files open"):
            found.map()
        with pytest.raises(StorageError, match="too many files open"):
            open_segment(str(path))
    with monkeypatch.context() as patch:
        patch.setattr(files, "read_at", refuse)
        with pytest.raises(StorageError, match="cannot be read"):
            open_segment(str(path))
    assert not found.mapped
    found.map()
    assert found.mapped
    path.unlink()
    assert found.record_at(128).head() == {"s": 0, "n": 1}, "the map keeps it"
    found.unmap()
    with pytest.raises(FileNotFoundError):
        found.map()


def test_few_segments_are_mapped_at_once(tmp_path: Path) -> None:
    many_segments(tmp_path, 4)
    log = open_log(tmp_path)
    follow(log)
    segments = list(log._chain.segments.values())
    cache = MapCache(2)
    for one in [*segments, segments[2], segments[0]]:
        cache.use(one).map()
        assert len(cache) <= 2
    assert [one.mapped for one in segments] == [True, False, True, False]
    cache.use(segments[2])
    cache.use(segments[1]).map()
    assert [one.mapped for one in segments] == [False, True, True, False], "the one used longest ago goes"
    cache.forget(3)
    cache.forget(3)
    assert [one.mapped for one in segments] == [False, True, False, False]
    cache.clear()
    assert (len(cache), any(one.mapped for one in segments)) == (0, False)
    log.close()
