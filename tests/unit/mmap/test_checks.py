"""What a check says of each thing that can be wrong, and that it says nothing else."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from nobroker_mmap import check, files, recovery
from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from nobroker_mmap.log import Log
from tests.unit.mmap.harness import (
    PUT,
    assert_clean,
    expected,
    flip,
    follow,
    locked,
    many_segments,
    open_log,
    overwrite,
    part,
    put,
    rows,
    segment,
    small_log,
)
from tests.unit.mmap.test_handles import refuse
from tests.unit.mmap.test_openings import torn

Said = tuple[str, str, int, str]


def said(log: Log) -> list[Said]:
    return [(f.severity, os.path.basename(f.path), f.offset, f.message) for f in log.check()]


def said_of(directory: Path, boot_id: str = "boot-1") -> list[Said]:
    """By the check of a directory that cannot be opened."""
    source = check.RowSource(rows, frozenset({PUT}), frozenset())
    found = check.check_log(fmt.Names(directory, "q"), source, ctl.boot_hash(boot_id))
    return [(f.severity, os.path.basename(f.path), f.offset, f.message) for f in found]


def test_a_clean_log(tmp_path: Path) -> None:
    many_segments(tmp_path, 3)
    log = open_log(tmp_path)
    assert said(log) == said_of(tmp_path) == said_of(tmp_path, "boot-2") == []
    put(log, 9)
    assert said(log) == []
    log.close(lambda writer: writer.write("state"))
    assert said_of(tmp_path) == []
    os.unlink(tmp_path / "q.lock")
    assert said_of(tmp_path) == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_segment(tmp_path: Path, number: int) -> None:
    many_segments(tmp_path, 3)
    segment(tmp_path, number).unlink()
    assert [finding[1] for finding in said_of(tmp_path) if finding[0] == "damage"] == [f"q.{number:06d}.seg"]


def test_all_segments_missing(tmp_path: Path) -> None:
    many_segments(tmp_path, 2)
    for number in (1, 2):
        segment(tmp_path, number).unlink()
    ((severity, name, offset, _),) = said_of(tmp_path)
    assert (severity, name, offset) == ("damage", "q.000001.seg", 0)


def test_a_file_where_the_next_segment_belongs(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    segment(tmp_path, 2).write_bytes(b"garbage" * 100)
    assert [finding[:3] for finding in said_of(tmp_path)] == [("damage", "q.000002.seg", 0)]
    segment(tmp_path, 2).rename(segment(tmp_path, 7))
    assert said_of(tmp_path) == [("warning", "q.000007.seg", 0, "no segment of this queue, and ignored")]


def test_a_newer_version(tmp_path: Path) -> None:
    from tests.unit.mmap.test_format import sealed

    small_log(tmp_path, close=True)
    raw = bytearray(segment(tmp_path).read_bytes()[:128])
    raw[8] = 2
    overwrite(segment(tmp_path), 0, sealed(bytes(raw)))
    ((severity, name, _, message),) = said_of(tmp_path)
    assert (severity, name) == ("warning", "q.000001.seg")
    assert message.startswith("format version 2; ")


def test_a_poisoned_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.control.words[ctl.POISON] = ctl.YES
    ((severity, name, _, message),) = said(log)
    assert (severity, name) == ("warning", "q.lock")
    assert message.startswith("a sync failed")
    log.control.words[ctl.POISON] = 0
    assert said(log) == []
    log.close()


def test_an_unfinished_write(tmp_path: Path) -> None:
    start = torn(tmp_path)
    wanted = ("warning", "q.000001.seg", start, "an unfinished write that nobody was told of")
    assert said_of(tmp_path, "boot-2") == [wanted]
    assert [finding[:3] for finding in said_of(tmp_path)] == [("damage", "q.000001.seg", start)]


def test_what_a_writer_is_in_the_middle_of_is_not_told(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    end = log.position + 128
    log.control.words[ctl.HOLDER] = os.getpid()
    overwrite(segment(tmp_path), end, b"half a record")
    assert said(log) == []
    for holder in (0, 2**22 + 5):
        log.control.words[ctl.HOLDER] = holder
        assert said(log) == [("warning", "q.000001.seg", end, "an unfinished write that nobody was told of")]
    overwrite(segment(tmp_path), end, bytes(13))
    log.close()
    assert_clean(tmp_path)


def test_a_group_that_is_not_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    whole = log.position + 128
    put(log, 2, 3)
    last = log.find(3, 3)[0].offset
    log._release_files()
    overwrite(segment(tmp_path), last, bytes(200))
    assert said_of(tmp_path, "boot-2") == [
        ("warning", "q.000001.seg", whole, "an unfinished write that nobody was told of")
    ]


def test_bytes_between_records(tmp_path: Path) -> None:
    ends = small_log(tmp_path, close=True)
    overwrite(segment(tmp_path), ends[1] - 1, b"x")
    assert said_of(tmp_path) == [
        ("warning", "q.000001.seg", said_of(tmp_path)[0][2], "the gap after a record is not zero")
    ]
    assert ends[0] < said_of(tmp_path)[0][2] < ends[1]


def test_records_that_do_not_fit(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with locked(log):
        log.append([(PUT, 0, b"\x80", b"\x90", [])])
    log._release_files()
    ((severity, name, offset, message),) = said_of(tmp_path)
    assert (severity, name, offset) == ("damage", "q.000001.seg", 128)
    assert "does not fit" in message


def test_a_retirement_that_names_no_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    at = log.position + 128
    with locked(log):
        log.append([(fmt.RETIRE, 0, b"\x81\xa1f\x05", b"", [])])
    log._release_files()
    ((severity, name, offset, message),) = said_of(tmp_path)
    assert (severity, name, offset) == ("damage", "q.000001.seg", at)
    assert "names no segment" in message


def test_a_directory_in_the_next_place_of_a_damaged_log(tmp_path: Path) -> None:
    ends = small_log(tmp_path, close=True)
    flip(segment(tmp_path), ends[2] + 70)
    segment(tmp_path, 2).mkdir()
    assert [finding[:3] for finding in said_of(tmp_path)] == [
        ("damage", "q.000001.seg", ends[2]),
        ("damage", "q.000002.seg", 0),
    ]


def test_a_segment_of_another_log_among_ours(tmp_path: Path) -> None:
    for name in "ab":
        many_segments(tmp_path / name, 4)
    shutil.copy(segment(tmp_path / "b", 2), segment(tmp_path / "a", 2))
    found = said_of(tmp_path / "a")
    assert ("damage", "q.000002.seg") in [finding[:2] for finding in found]
    assert {finding[1] for finding in found} <= {"q.000002.seg", "q.000003.seg"}


def test_indexes(tmp_path: Path) -> None:
    made = many_segments(tmp_path, 3)
    log = open_log(tmp_path)
    follow(log)
    assert len(log.find(0, 9)) == len(made)
    log.close()
    one, two = tmp_path / "q.000001.idx", tmp_path / "q.000002.idx"
    raw = one.read_bytes()
    flip(one, 70)
    assert said_of(tmp_path) == [("note", "q.000001.idx", 0, "the index does not verify")]
    one.write_bytes(raw)
    assert said_of(tmp_path) == []
    log = open_log(tmp_path)
    table = log._chain.table_of(log._chain.segments[2])
    log._chain.write_sidecar(log._chain.segments[1], table)
    log.close()
    assert said_of(tmp_path) == [("warning", "q.000001.idx", 0, "the index does not agree with the segment")]
    one.unlink()
    two.unlink()
    assert said_of(tmp_path) == []


def test_snapshots(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.close(lambda writer: writer.write("state"))
    path = tmp_path / "q.snap"
    raw = path.read_bytes()
    assert said_of(tmp_path) == []
    flip(path, 80)
    assert said_of(tmp_path) == [("note", "q.snap", 0, "the snapshot does not verify")]
    path.write_bytes(raw)
    log = open_log(tmp_path)
    follow(log)
    writer = log.begin_snapshot()
    writer._point = writer._point._replace(checksum=5)
    assert writer.commit()
    assert said(log) == [("note", "q.snap", 0, "the snapshot does not fit the log")]
    log.close()
    path.unlink()
    path.mkdir()
    message = "a symbolic link, directory or special file under a name of ours; it is not touched"
    assert said_of(tmp_path) == [("warning", "q.snap", 0, message)]


def test_a_snapshot_of_segments_that_left(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in (1, 2, 3):
        put(log, key, text="x" * 40_000)
    writer = log.begin_snapshot()
    with locked(log):
        log.seal()
        log.append([part(4)])
        log.seal()
    assert writer.commit()
    kept = segment(tmp_path, 1).read_bytes()
    with locked(log):
        log.retire(5, {})
    assert said(log) == []
    segment(tmp_path, 1).write_bytes(kept)
    assert said(log) == [("note", "q.000001.seg", 0, "a retired segment")]
    log.close()
    open_log(tmp_path).close()
    assert_clean(tmp_path)


def test_a_wake_file_that_is_no_fifo(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.wait(0.0)
    assert said(log) == []
    log.close()
    (tmp_path / "q.wake").unlink()
    (tmp_path / "q.wake").write_bytes(b"")
    assert said_of(tmp_path) == [("note", "q.wake", 0, "not a FIFO")]


def test_files_of_others_are_none_of_ours(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    for name in ("r.000001.seg", "notes.txt", "q.000001.128.torn"):
        (tmp_path / name).symlink_to("nowhere")
    assert said_of(tmp_path) == []
    (tmp_path / "q.manifest").unlink()
    (tmp_path / "q.manifest").symlink_to("nowhere")
    assert [finding[:2] for finding in said_of(tmp_path)] == [("warning", "q.manifest")]


def test_damage_names_the_keys_that_are_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(300):
        put(log, 10 * key, count=5, text="x" * 40)
    victims = [log.find(key, key)[0] for key in (100, 110, 300)]
    follow(log)
    assert log.find(0, 0)
    for victim in victims:
        flip(Path(victim.segment.path), victim.offset + 70)
    found = [f for f in log.check() if f.severity == "damage"]
    assert [(f.offset, f.keys, f.keys_known) for f in found] == [
        (victims[0].offset, ((100, 104), (110, 114)), True),
        (victims[2].offset, ((300, 304),), True),
    ]
    assert found[0].length == victims[1].offset - victims[0].offset + found[1].length
    assert "recover --salvage" in found[0].advice
    for victim in victims:
        flip(Path(victim.segment.path), victim.offset + 70)
    log.close()
    assert_clean(tmp_path)


def test_damage_of_which_nothing_more_can_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = small_log(tmp_path, close=True)
    flip(segment(tmp_path), ends[2] + 70)
    exact = said_of(tmp_path)

    def nothing(self: Any) -> None:
        refuse()

    monkeypatch.setattr(check.Survey, "run", nothing)
    plain = said_of(tmp_path)
    assert [finding[:3] for finding in plain] == [finding[:3] for finding in exact]
    assert exact[0][:3] == ("damage", "q.000001.seg", ends[2])


def test_a_manifest_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "nobroker_mmap"):
        patch.setattr(files, "write_cache", refuse)
        log = open_log(tmp_path)
        put(log, 1)
        with locked(log):
            log.seal()
    assert "the manifest was not written" in caplog.text
    assert "the index was not written" in caplog.text
    put(log, 2)
    log.close()
    assert_clean(tmp_path)
    assert recovery.find_newest(fmt.Names(tmp_path, "q"), {1: str(segment(tmp_path))}, [])[1] is None
    assert expected(1) == [(0, "v0"), (1, "v1")]
