"""Sidecar, snapshot, manifest and control page are caches: losing or spoiling them changes no answer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nobroker_mmap.log import Log
from tests.unit.mmap.harness import (
    MOVE,
    assert_clean,
    content,
    flip,
    follow,
    keys_of,
    locked,
    open_log,
    part,
    put,
    text_of,
)

KEYS = 1500


def make(directory: Path, text: str = "v", close: bool = True) -> None:
    log = open_log(directory)
    for key in range(KEYS):
        put(log, key, text=text)
    put(log, 7, text="moved", kind=MOVE)
    put(log, 2000)
    if close:
        log.close(lambda writer: writer.write({"text": text}))
    else:
        log._release_files()


def verify(directory: Path, text: str = "v", boot_id: str = "boot-1") -> Log:
    """Every key is found, whatever the caches say."""
    log = open_log(directory, boot_id=boot_id)
    follow(log)
    assert keys_of(log.find(0, 3000)) == [*range(KEYS), 2000]
    assert text_of(log, 7) == "moved7"
    for key in (0, 6, 8, 600, KEYS - 1):
        assert text_of(log, key) == f"{text}{key}", key
    return log


def caches(directory: Path) -> list[Path]:
    return sorted(p for p in directory.iterdir() if p.suffix in (".idx", ".snap", ".manifest"))


def test_every_cache_removed(tmp_path: Path) -> None:
    make(tmp_path)
    assert len(caches(tmp_path)) >= 3
    for path in caches(tmp_path):
        path.unlink()
        verify(tmp_path).close()
    assert list(tmp_path.glob("*.idx")), "a lost index is written again"
    assert_clean(tmp_path)


def test_every_cache_swapped_with_every_other(tmp_path: Path) -> None:
    make(tmp_path / "made")
    make(tmp_path / "foreign", text="foreign")
    sources = caches(tmp_path / "made") + caches(tmp_path / "foreign")
    for target in caches(tmp_path / "made"):
        for source in sources:
            work = tmp_path / "work"
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(tmp_path / "made", work, ignore=shutil.ignore_patterns("*.wake"))
            shutil.copyfile(source, work / target.name)
            verify(work).close()


@pytest.mark.parametrize("suffix", [".idx", ".snap"])
def test_a_flip_in_a_cache_changes_nothing(tmp_path: Path, suffix: str) -> None:
    make(tmp_path)
    path = next(p for p in caches(tmp_path) if p.suffix == suffix)
    data = path.read_bytes()
    for offset in [*range(0, 72, 5), *range(72, len(data), len(data) // 7)]:
        path.write_bytes(data)
        flip(path, offset, 5)
        verify(tmp_path).close()
    for length in (0, 1, 63, 64, 65, len(data) - 1):
        path.write_bytes(data[:length])
        verify(tmp_path).close()
    assert_clean(tmp_path)


def test_a_snapshot_of_a_tail_that_was_lost_is_not_believed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    end = put(log, 2)
    writer = log.begin_snapshot()
    writer.write("with key 2")
    assert writer.commit()
    log._release_files()
    snap = (tmp_path / "q.snap").read_bytes()
    shutil.rmtree(tmp_path)
    log = open_log(tmp_path)
    put(log, 1)
    put(log, 9)
    log._release_files()
    (tmp_path / "q.snap").write_bytes(snap)
    log = open_log(tmp_path, load=False)
    assert log.load_snapshot() is None
    assert [key for key, _ in follow(log)] == [1, 9]
    assert log.position == end
    log.close()
    assert_clean(tmp_path)


def test_a_snapshot_survives_a_fence(tmp_path: Path) -> None:
    make(tmp_path)
    os.unlink(tmp_path / "q.lock")
    log = open_log(tmp_path, load=False)
    assert list(log.load_snapshot() or ()) == [{"text": "v"}]
    assert follow(log) == []
    assert keys_of(log.find(0, 3000)) == [*range(KEYS), 2000]
    log.close()
    verify(tmp_path).close()
    assert_clean(tmp_path)


def test_a_snapshot_in_a_segment_that_is_sealed_since(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(300):
        put(log, key)
    writer = log.begin_snapshot()
    writer.write("at 300")
    assert writer.commit()
    for key in range(300, KEYS):
        put(log, key)
    log._release_files()
    log = open_log(tmp_path, load=False, boot_id="boot-2")
    assert list(log.load_snapshot() or ()) == ["at 300"]
    assert [key for key, _ in follow(log)] == list(range(300, KEYS))
    assert keys_of(log.find(0, 3000)) == list(range(KEYS))
    log.close()


# -- retirement -------------------------------------------------------------------------------------


def three(directory: Path) -> Log:
    log = open_log(directory)
    for key in (1, 2, 3):
        put(log, key, text="x" * 40_000)
    assert [info.number for info in log.segments()] == [1, 2, 3]
    return log


def test_retired_segments_leave_for_good(tmp_path: Path) -> None:
    log = three(tmp_path)
    peer = open_log(tmp_path)
    follow(peer)
    with locked(log):
        log.append([part(2, "kept", kind=MOVE)])
        end = log.retire(3, {"t": 1})
    assert [info.number for info in log.segments()] == [3]
    assert sorted(p.name for p in tmp_path.glob("*.seg")) == ["q.000003.seg"]
    assert log.durable >= end
    follow(peer)
    for handle in (log, peer, open_log(tmp_path, boot_id="boot-2")):
        follow(handle)
        assert keys_of(handle.find(0, 9)) == [2, 3]
        assert text_of(handle, 2) == "kept2"
        handle.close()
    assert [key for key, _ in content(tmp_path)] == [3, 2]
    log = open_log(tmp_path)
    with locked(log), pytest.raises(ValueError, match="not one of"):
        log.retire(1, {})
    log.close()
    assert_clean(tmp_path)


def test_a_retirement_is_remembered_by_the_next_segments_and_by_snapshots(tmp_path: Path) -> None:
    log = three(tmp_path)
    with locked(log):
        log.retire(2, {})
    writer = log.begin_snapshot()
    assert writer.commit()
    log._release_files()
    log = open_log(tmp_path, boot_id="boot-2", load=False)
    assert list(log.load_snapshot() or ()) == []
    with locked(log):
        log.seal()
        log.seal()
    log.close()
    log = open_log(tmp_path, boot_id="boot-3")
    assert [key for key, _ in follow(log)] == []
    log.close()
    (tmp_path / "q.snap").unlink()
    assert [key for key, _ in content(tmp_path)] == [2, 3]
    assert_clean(tmp_path)


@pytest.mark.parametrize("read_only", [True, False])
def test_segments_retired_under_a_reader(tmp_path: Path, read_only: bool) -> None:
    log = three(tmp_path)
    reader = open_log(tmp_path, read_only=read_only)
    stream = reader.records()
    assert next(stream).head()["s"] == 1
    with locked(log):
        log.append([part(2, "kept", kind=MOVE)])
        log.retire(3, {})
    from nobroker_mmap.errors import Restart

    found = None
    for _ in range(3):
        try:
            found = [key for key, _ in follow(reader)]
            break
        except Restart:
            reader.load_snapshot()
    assert found == [3, 2]
    assert keys_of(reader.find(0, 9)) == [2, 3]
    reader.close()
    log.close()
    assert_clean(tmp_path)


def test_retired_files_that_come_back_are_removed(tmp_path: Path) -> None:
    log = three(tmp_path)
    saved = (tmp_path / "q.000001.seg").read_bytes()
    with locked(log):
        log.retire(3, {})
    log.close()
    (tmp_path / "q.000001.seg").write_bytes(saved)
    log = open_log(tmp_path)
    assert [f.severity for f in log.check()] == []
    assert [key for key, _ in follow(log)] == [3]
    log.close()
    assert not (tmp_path / "q.000001.seg").exists()
    assert_clean(tmp_path)
