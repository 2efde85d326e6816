"""Openings of logs that were cut short or damaged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nobroker_mmap.errors import CorruptLogError, StorageError
from tests.unit.mmap.harness import (
    SMALL,
    assert_clean,
    content,
    copy_of,
    expected,
    flip,
    follow,
    open_log,
    overwrite,
    put,
    segment,
    small_log,
)


def test_a_tail_torn_at_every_byte_is_cut_to_whole_groups(tmp_path: Path, quick: None) -> None:
    ends = small_log(tmp_path / "made")
    data = segment(tmp_path / "made").read_bytes()
    for cut in range(128, ends[-1] + 1):
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        for name in os.listdir(work):
            os.unlink(work / name)
        segment(work).write_bytes(data[:cut] + bytes(len(data) - cut))
        shutil.copy(tmp_path / "made" / "q.lock", work)
        whole = sum(end <= cut for end in ends) - 1
        if data[cut : ends[whole]].strip(b"\0") == b"" and cut < ends[-1]:
            # What was cut off may have been zeros anyway: padding after a record.
            whole = max(whole, sum(not data[cut:end].strip(b"\0") for end in ends) - 1)
        log = open_log(work, boot_id="boot-2")
        assert follow(log) == expected(whole), cut
        assert log.unproven
        put(log, 1000)
        log.close()
        assert [key for key, _ in content(work, boot_id="boot-2")][-1] == 1000


def test_a_shorter_file_is_damage_at_every_length(tmp_path: Path, quick: None) -> None:
    ends = small_log(tmp_path / "made", close=True)
    work = copy_of(tmp_path / "made", tmp_path / "work")
    lengths = [*range(0, ends[-1] + 200, 3), *range(ends[-1] + 200, SMALL, 4099), SMALL - 1]
    for length in sorted(lengths, reverse=True):
        os.truncate(segment(work), length)
        for options in ({}, {"read_only": True}):
            with pytest.raises(CorruptLogError) as caught:
                open_log(work, **options)
            assert caught.value.path == str(segment(work))
        assert segment(work).stat().st_size == length


def test_a_log_cut_short_under_a_reader_is_an_error_not_a_signal(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    log = open_log(tmp_path)
    follow(log)
    piece = log.find(3, 3)[0]
    log.read(piece)
    os.truncate(segment(tmp_path), 4096)
    with pytest.raises(CorruptLogError, match="4096 bytes"):
        log.read(piece)
    assert any(f.severity == "damage" for f in log.check())
    log.close()


@pytest.mark.parametrize("bit", [0, 6])
def test_a_flip_in_every_byte_never_gives_a_wrong_record(tmp_path: Path, bit: int, quick: None) -> None:
    ends = small_log(tmp_path / "made", groups=3, durable=True, close=True)
    good = expected(3)
    work = copy_of(tmp_path / "made", tmp_path / "work")
    data = segment(work).read_bytes()
    end = ends[-1]
    for offset in range(end):
        flip(segment(work), offset, bit)
        error = None
        try:
            log = open_log(work, boot_id="boot-2", read_only=True)
            found = follow(log)
            assert found == good[: len(found)], offset
            if found != good:
                assert log.damage is not None, offset
                assert log.damage.path == str(segment(work))
                assert log.damage.offset <= offset
            findings = [f for f in log.check() if f.severity == "damage"]
            assert findings or found == good, offset
            log.close()
        except CorruptLogError as caught:
            error = caught
        assert error is None or error.path == str(segment(work))
        if not padding(data, offset, end):
            with pytest.raises((CorruptLogError, StorageError)):
                print(offset, open_log(work, boot_id="boot-2").recovery)
            assert segment(work).read_bytes()[:offset] == data[:offset]
        overwrite(segment(work), 0, data)


def padding(data: bytes, offset: int, end: int) -> bool:
    """Is the byte one that no checksum covers?"""
    at = 128
    while at < end:
        body = int.from_bytes(data[at + 8 : at + 12], "little")
        stop = at + 64 + body
        following = (stop + 7) & ~7
        if stop <= offset < following:
            return True
        at = following
    return False


def test_what_this_boot_wrote_is_never_cut(tmp_path: Path) -> None:
    ends = small_log(tmp_path)
    overwrite(segment(tmp_path), ends[-2] + 70, b"\xff")
    before = segment(tmp_path).read_bytes()
    with pytest.raises(CorruptLogError) as caught:
        open_log(tmp_path)
    assert caught.value.offset == ends[-2]
    assert segment(tmp_path).read_bytes() == before


def test_what_a_later_record_knows_as_durable_is_never_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = put(log, 1, durable=True)
    second = put(log, 2)
    third = put(log, 3)
    log._release_files()
    data = segment(tmp_path).read_bytes()
    work = tmp_path
    overwrite(segment(work), 128 + 70, b"\xff")  # the first record: the later ones say that it was durable
    with pytest.raises(CorruptLogError) as caught:
        open_log(work, boot_id="boot-2")
    assert caught.value.offset == 128
    overwrite(segment(work), 0, data)
    overwrite(segment(work), 128 + first + 70, b"\xff")  # the second: nobody was told
    log = open_log(work, boot_id="boot-2")
    assert follow(log) == [(1, "v1")]
    assert log.recovery.repaired
    assert log.recovery.torn_file is not None
    torn = Path(log.recovery.torn_file)
    assert torn.name == f"q.000001.{128 + first}.torn"
    assert 0 < torn.stat().st_size <= third - first
    assert second < third
    log.close()
    assert_clean(work, boot_id="boot-2")


def test_an_unfinished_group_is_not_seen(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    start = log.position
    end = put(log, 2, 3, 4)
    middle = log.find(4, 4)[0].offset
    log._release_files()
    overwrite(segment(tmp_path), middle, bytes(end + 128 - middle))
    log = open_log(tmp_path, boot_id="boot-2")
    assert follow(log) == [(1, "v1")]
    assert log.recovery.orphan_records == 2
    put(log, 9)
    log.close()
    assert content(tmp_path, boot_id="boot-2") == [(1, "v1"), (9, "v9")]
    assert_clean(tmp_path, boot_id="boot-2")
    assert start < end
