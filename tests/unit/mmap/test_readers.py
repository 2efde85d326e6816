"""Following a log while others repair, compact, damage or replace it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from nobroker_mmap import opening
from nobroker_mmap.errors import CorruptLogError, Restart, StorageError
from nobroker_mmap.log import Log
from nobroker_mmap.reading import Reading
from nobroker_mmap.segment import Segment, open_segment
from nobroker_mmap.snapshot import Point, SnapshotWriter
from tests.unit.mmap.harness import (
    MOVE,
    PUT,
    assert_clean,
    content,
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
    text_of,
)
from tests.unit.mmap.test_moments import long

# -- what is read -----------------------------------------------------------------------------------


def test_reading_in_pieces(tmp_path: Path) -> None:
    log, peer = open_log(tmp_path), open_log(tmp_path)
    for key in range(6):
        put(log, 2 * key, 2 * key + 1)
    size = log.position // 6
    pieces = []
    while peer.behind():
        pieces.append([record.head()["s"] for record in peer.records(limit_bytes=size + 1)])
    assert pieces == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    log.close()
    peer.close()
    assert_clean(tmp_path)


def test_records_of_the_log_itself(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    with locked(log):
        log.append([(5, fmt.SKIPPABLE, b"\x80", b"", [])])
        log.append([(fmt.CLOSE, fmt.SKIPPABLE, b"\x80", b"", [])])
    put(log, 2)
    reader = open_log(tmp_path, read_only=True)
    assert [record.type for record in reader.records()] == [PUT, PUT]
    with locked(log):
        log.append([(6, 0, b"\x80", b"", [])])
    with pytest.raises(StorageError, match="type 6, which this release does not know"):
        list(reader.records())
    reader.close()
    log.close()


def test_a_log_of_which_nothing_tells_how_far_it_was_written(tmp_path: Path) -> None:
    many_segments(tmp_path, 3)
    os.unlink(tmp_path / "q.lock")
    reader = open_log(tmp_path, read_only=True)
    again = open_log(tmp_path, read_only=True)
    assert [key for key, _ in follow(reader)] == [0, 1, 2]
    writer = open_log(tmp_path)
    follow(writer)
    put(writer, 3)
    assert [key for key, _ in follow(again)] == [0, 1, 2]
    assert follow(again) == []
    assert again.load_snapshot() is None
    assert [key for key, _ in follow(again)] == [0, 1, 2, 3], "what came since is found by a new look"
    for handle in (reader, again, writer):
        handle.close()
    assert_clean(tmp_path)


# -- compaction by others ---------------------------------------------------------------------------


def test_segments_that_left_before_the_first_look(tmp_path: Path) -> None:
    log = long(tmp_path)
    late = open_log(tmp_path, load=False)
    with locked(log):
        log.append([part(2, "kept", kind=MOVE)])
        log.retire(4, {})
    assert late.load_snapshot() is None
    assert [key for key, _ in follow(late)] == [4, 2]
    assert [info.number for info in late.segments()] == [4]
    late.close()
    log.close()
    assert_clean(tmp_path)


def test_a_snapshot_whose_segment_is_leaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = long(tmp_path, 2)
    writer = log.begin_snapshot()
    writer.write("at 2")
    assert writer.commit()
    late = open_log(tmp_path, load=False)

    def gone(*_: object) -> None:
        raise FileNotFoundError("q.000002.seg")

    with monkeypatch.context() as patch:
        patch.setattr(opening, "snapshot_fits", gone)
        assert late.load_snapshot() is None
    assert [key for key, _ in follow(late)] == [1, 2]
    assert list(late.load_snapshot() or ()) == ["at 2"]
    late.close()
    log.close()
    assert_clean(tmp_path)


def test_a_snapshot_with_the_rows_of_another_segment(tmp_path: Path) -> None:
    log = long(tmp_path, 2)
    chain = log._chain
    point = Point(log.log_id, chain.newest.header.lineage, chain.cursor, chain.checksum, 1, 1)
    writer = SnapshotWriter(
        log.names, "1-1", point, chain.table, settle=lambda end: None, done=lambda lsn: True
    )
    assert writer.commit()
    late = open_log(tmp_path, load=False)
    assert late.load_snapshot() is None
    assert "the snapshot does not fit the log" in late.recovery.notes
    assert [key for key, _ in follow(late)] == [1, 2]
    assert text_of(late, 2) == "x" * 40_000 + "2"
    late.close()
    log.close()


# -- repairs by others ------------------------------------------------------------------------------


def repaired(directory: Path, log: Log) -> Log:
    """As after a failed sync: a handle that opens writes the log anew, in another lineage."""
    log.control.words[ctl.POISON] = ctl.YES
    return open_log(directory)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_repair_under_a_reader(tmp_path: Path, read_only: bool) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    reader = open_log(tmp_path, read_only=read_only)
    assert follow(reader) == [(1, "v1")]
    with locked(log):
        log.append([part(2)])
    log.control.words[ctl.POISON] = ctl.YES
    if read_only:
        assert [key for key, _ in follow(reader)] == [2], "what can be read is read"
    else:
        with pytest.raises(StorageError, match="a sync of it failed"):
            list(reader.records())
    late = open_log(tmp_path)
    assert reader.behind()
    with pytest.raises(StorageError, match="repaired"):
        list(reader.records())
    follow(late)
    for handle in (reader, log, late):
        handle.close()
    assert_clean(tmp_path)


def test_a_lock_file_cut_short_under_a_reader(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    reader = open_log(tmp_path, read_only=True)
    os.truncate(tmp_path / "q.lock", 100)
    for _ in range(2):
        reader.announce()
        assert follow(reader) in ([(1, "v1")], [])
    with pytest.raises(StorageError, match="cut short"):
        log.lag()
    with pytest.raises(StorageError, match="no control page"):
        _ = reader.control
    reader.close()
    log.close()
    assert_clean(tmp_path)


def test_a_lock_file_of_another_boot_under_a_reader(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    reader = open_log(tmp_path, read_only=True)
    log.control.words[ctl.BOOT] += 1
    put(log, 2)
    assert follow(reader) == [(1, "v1"), (2, "v2")]
    log.control.words[ctl.LINEAGE] += 1
    assert follow(reader) == []
    log.control.words[ctl.LINEAGE] -= 1
    log.control.words[ctl.BOOT] -= 1
    reader.close()
    log.close()
    assert_clean(tmp_path)


# -- damage under readers ---------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [True, False])
def test_a_segment_that_is_missing_under_a_reader(tmp_path: Path, read_only: bool) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    reader = open_log(tmp_path, read_only=read_only)
    for key in (2, 3, 4):
        put(log, key, text="x" * 40_000)
    segment(tmp_path, 2).rename(tmp_path / "aside")
    if read_only:
        assert [key for key, _ in follow(reader)] == [1, 2]
        assert reader.damage is not None
        assert reader.damage.path == str(segment(tmp_path, 2))
        assert reader.recovery.damage == str(reader.damage)
    else:
        with pytest.raises(CorruptLogError, match="missing") as caught:
            follow(reader)
        assert caught.value.path == str(segment(tmp_path, 2))
    (tmp_path / "aside").rename(segment(tmp_path, 2))
    assert [key for key, _ in content(tmp_path)] == [1, 2, 3, 4]
    reader.close()
    log.close()


@pytest.mark.parametrize("read_only", [True, False])
def test_the_segment_that_is_read_goes(tmp_path: Path, read_only: bool) -> None:
    log = open_log(tmp_path)
    reader = open_log(tmp_path, read_only=read_only)
    put(log, 1)
    segment(tmp_path).rename(tmp_path / "aside")
    if read_only:
        assert follow(reader) == []
        assert reader.damage is not None
        assert "the file is missing" in str(reader.damage)
    else:
        with pytest.raises(CorruptLogError, match="the file is missing"):
            follow(reader)
    (tmp_path / "aside").rename(segment(tmp_path))
    reader.load_snapshot()
    assert follow(reader) == [(1, "v1")]
    reader.close()
    log.close()
    assert_clean(tmp_path)


def test_segments_that_leave_while_they_are_looked_for(tmp_path: Path) -> None:
    log = long(tmp_path, 1)
    reader = open_log(tmp_path)
    follow(reader)
    for key in (2, 3):
        put(log, key, text="x" * 40_000)
    with locked(log):
        log.append([part(2, "kept", kind=MOVE)])
        log.retire(3, {})
    with pytest.raises(Restart):
        list(reader.records())
    reader.load_snapshot()
    assert [key for key, _ in follow(reader)] == [3, 2]
    reader.close()
    log.close()
    assert_clean(tmp_path)


@pytest.mark.parametrize("read_only", [True, False])
def test_bytes_that_come_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """What the control page says is written may reach another view of the file a little later."""
    log = open_log(tmp_path)
    put(log, 1)
    reader = open_log(tmp_path, read_only=read_only)
    assert follow(reader) == [(1, "v1")]
    end = put(log, 2)
    raw = segment(tmp_path).read_bytes()
    at = reader.position + 128
    overwrite(segment(tmp_path), at, bytes(end + 128 - at))
    looks = 0
    refuse_retired = Reading._refuse_retired

    def look(self: Reading, which: Segment) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            overwrite(segment(tmp_path), at, raw[at : end + 128])
        refuse_retired(self, which)

    monkeypatch.setattr(Reading, "_refuse_retired", look)
    assert follow(reader) == [(2, "v2")]
    assert looks == 2
    assert reader.damage is None
    reader.close()
    log.close()
    assert_clean(tmp_path)


def test_a_group_of_which_only_a_part_verifies(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    reader, peer = open_log(tmp_path, read_only=True), open_log(tmp_path)
    follow(reader), follow(peer)
    put(log, 2, 3, 4)
    place = log.find(4, 4)[0]
    flip(segment(tmp_path), place.offset + 70)
    assert follow(reader) == []
    assert reader.damage is not None
    assert (reader.damage.path, reader.damage.offset) == (str(segment(tmp_path)), place.offset)
    with pytest.raises(CorruptLogError) as caught:
        follow(peer)
    assert caught.value.offset == place.offset
    flip(segment(tmp_path), place.offset + 70)
    assert follow(peer) == [(2, "v2"), (3, "v3"), (4, "v4")]
    for handle in (reader, peer, log):
        handle.close()
    assert_clean(tmp_path)


def test_a_chain_that_is_broken_between_two_segments(tmp_path: Path) -> None:
    log = long(tmp_path, 2)
    log._release_files()
    header = open_segment(str(segment(tmp_path, 2))).header
    wrong = header._replace(previous_checksum=header.previous_checksum + 1)
    overwrite(segment(tmp_path, 2), 0, wrong.pack())
    reader = open_log(tmp_path, read_only=True)
    assert [key for key, _ in follow(reader)] == [1]
    assert reader.damage is not None
    assert "not the one the next segment follows" in str(reader.damage)
    reader.close()


def test_a_cursor_that_is_set_anew_in_the_middle_of_a_reading(tmp_path: Path) -> None:
    log = long(tmp_path, 2)
    peer = open_log(tmp_path)
    stream = peer.records()
    assert next(stream).head()["s"] == 1
    peer.rewind()
    peer._chain.reading = peer._chain.newest
    with pytest.raises(Restart):
        list(stream)
    peer.load_snapshot()
    assert [key for key, _ in follow(peer)] == [1, 2]
    assert keys_of(peer.find(0, 9)) == [1, 2]
    peer.close()
    log.close()
