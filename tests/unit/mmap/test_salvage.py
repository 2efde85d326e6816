"""Salvage: only what is damaged is lost, and it is told exactly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nobroker_mmap import format as fmt
from nobroker_mmap.errors import StorageError
from nobroker_mmap.salvage import salvage
from tests.unit.mmap.harness import (
    SMALL,
    assert_clean,
    content,
    expected,
    flip,
    follow,
    keys_of,
    locked,
    many_segments,
    open_log,
    overwrite,
    part,
    put,
    segment,
    small_log,
    text_of,
)


def test_salvage_loses_only_the_damaged_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(900):
        put(log, key)
    sealed = log.segments()[0]
    victim = log.find(100, 100)[0]
    log.close(lambda writer: writer.write("knows key 100"))
    flip(segment(tmp_path, victim.segment.number), victim.offset + 66)
    report = salvage(tmp_path, "q", boot_id="boot-1")
    assert sealed.number == victim.segment.number
    assert [(loss.path, loss.offset) for loss in report.losses] == [(sealed.path, victim.offset)]
    assert report.losses[0].end_lsn - report.losses[0].first_lsn == report.bytes_lost < 200
    assert [Path(p).name for p in report.kept_files] == ["q.000001.seg.salvaged"]
    log = open_log(tmp_path, load=False)
    assert log.load_snapshot() is None
    assert [key for key, _ in follow(log)] == [key for key in range(900) if key != 100]
    assert text_of(log, 100) is None
    assert text_of(log, 101) == "v101"
    put(log, 5000)
    log.close()
    assert_clean(tmp_path)
    assert salvage(tmp_path, "q", boot_id="boot-1").losses == []
    assert len(content(tmp_path)) == 900


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "harm", ["header", "gone", "truncated", "empty", "middle", "garbage", "longer header"]
)
def test_salvage_opens_whatever_is_left(tmp_path: Path, number: int, harm: str) -> None:
    made = many_segments(tmp_path)
    path = segment(tmp_path, number)
    if harm == "header":
        flip(path, 33)
    elif harm == "gone":
        path.unlink()
    elif harm == "truncated":
        os.truncate(path, 20_000)
    elif harm == "empty":
        os.truncate(path, 0)
    elif harm == "middle":
        overwrite(path, 30_000, b"damage")
    elif harm == "garbage":
        path.write_bytes(os.urandom(SMALL))
    else:
        overwrite(path, 0, bytes(60))
    report = salvage(tmp_path, "q", boot_id="boot-1")
    found = content(tmp_path)
    lost = [] if harm in ("header", "longer header") else [number - 1]
    assert found == [item for item in made if item[0] not in lost]
    log = open_log(tmp_path)
    follow(log)
    put(log, 99)
    log.close()
    assert_clean(tmp_path)
    if lost and number < 5:
        assert report.losses


def test_salvage_of_neighbours_that_are_both_gone(tmp_path: Path) -> None:
    made = many_segments(tmp_path)
    segment(tmp_path, 2).unlink()
    os.truncate(segment(tmp_path, 3), 0)
    salvage(tmp_path, "q", boot_id="boot-1")
    assert content(tmp_path) == [made[0], made[3], made[4]]
    log = open_log(tmp_path)
    put(log, 99)
    log.close()
    assert_clean(tmp_path)


def test_salvage_of_the_tail(tmp_path: Path) -> None:
    ends = small_log(tmp_path)
    overwrite(segment(tmp_path), ends[-2] + 70, b"\xff")
    report = salvage(tmp_path, "q", boot_id="boot-1")
    assert report.bytes_lost > 0
    found = content(tmp_path)
    assert found == [*expected(5), (11, "v11")]
    assert_clean(tmp_path)


def test_salvage_waits_for_nobody(tmp_path: Path) -> None:
    from nobroker_mmap.errors import LockTimeoutError

    with pytest.raises(StorageError, match="no queue"):
        salvage(tmp_path, "q", boot_id="boot-1")
    log = open_log(tmp_path)
    with pytest.raises(LockTimeoutError):
        salvage(tmp_path, "q", boot_id="boot-1", lock_timeout=0.05)
    with locked(log):
        log.append([part(1)])
    log.close()
    assert keys_of(open_log(tmp_path).find(0, 0)) == []
    assert fmt.GAP == 3
