"""Appending, reading, peers, rotation, the index, snapshots and closing, while nothing is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nobroker_mmap import format as fmt
from nobroker_mmap.errors import QueueClosedError, StorageError
from nobroker_mmap.log import Log
from tests.unit.mmap.harness import (
    MOVE,
    PUT,
    SMALL,
    assert_clean,
    content,
    follow,
    keys_of,
    locked,
    open_files,
    open_log,
    part,
    put,
    segment,
    text_of,
)


def test_a_group_is_read_back_by_the_writer_a_peer_and_a_later_opening(tmp_path: Path) -> None:
    log, peer = open_log(tmp_path), open_log(tmp_path)
    assert not peer.behind()
    put(log, 1, 2)
    assert peer.behind()
    assert follow(peer) == [(1, "v1"), (2, "v2")]
    assert not peer.behind()
    assert text_of(log, 2) == text_of(peer, 2) == "v2"
    log.close()
    peer.close()
    assert content(tmp_path) == [(1, "v1"), (2, "v2")]
    assert_clean(tmp_path)


def test_lsns_are_positions_in_one_stream(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lsns: list[int] = []
    for key in range(3000):
        with locked(log):
            got, end = log.append([part(key), part(key + 10_000)])
        lsns += got
        assert log.position == end
    assert len(log.segments()) > 3
    assert lsns == sorted(set(lsns))
    for at, lsn in enumerate(lsns[:2000:7]):
        assert log.read_at(lsn).head()["s"] == (at * 7 // 2 if at * 7 % 2 == 0 else 10_000 + at * 7 // 2)
    log.close()
    assert_clean(tmp_path)


def test_two_writers_take_turns_through_rotations(tmp_path: Path) -> None:
    logs = [open_log(tmp_path), open_log(tmp_path)]
    for key in range(4000):
        put(logs[key % 2], key)
    for log in logs:
        follow(log)
        assert keys_of(log.find(0, 5000)) == list(range(4000))
        assert text_of(log, 1234) == "v1234"
    for log in logs:
        log.close()
    assert [key for key, _ in content(tmp_path)] == list(range(4000))
    assert_clean(tmp_path)


def test_appending_before_the_records_of_others_is_refused(tmp_path: Path) -> None:
    log, peer = open_log(tmp_path), open_log(tmp_path)
    put(peer, 1)
    log.lock()
    with pytest.raises(RuntimeError, match="applied"):
        log.append([part(2)])
    log.unlock()
    log.close()
    peer.close()


def test_a_group_too_large_for_a_segment_gets_a_larger_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    with locked(log):
        big = (
            PUT,
            0,
            part(2)[2],
            b"\x91\xc6" + (3 * SMALL).to_bytes(4, "big") + b"x" * 3 * SMALL,
            [(2, 0, 1)],
        )
        log.append([big, part(3)])
    put(log, 4)
    sizes = [info.size for info in log.segments()]
    assert sizes == [SMALL, 4 * SMALL, SMALL] or sizes == [SMALL, 4 * SMALL]
    assert len(log.read(log.find(2, 2)[0]).body) > 3 * SMALL
    assert keys_of(log.find(0, 9)) == [1, 2, 3, 4]
    with locked(log), pytest.raises(ValueError, match="chunk"):
        log.append([(PUT, 0, part(5)[2], bytes(fmt.MAX_GROUP_SIZE), [])])
    log.close()
    assert_clean(tmp_path)


def test_segments_grow_up_to_the_wanted_size(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_size=4 * fmt.MIB)
    text = "x" * 10_000
    for key in range(900):
        put(log, key, text=text)
    assert [info.size // fmt.MIB for info in log.segments()] == [1, 2, 4, 4]
    log.close()
    assert_clean(tmp_path)


def test_the_newest_copy_of_a_key_is_found(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1, text="old", count=10)
    with locked(log):
        log.seal()
    put(log, 4, text="new", count=2, kind=MOVE)
    put(log, 50)
    for handle in (log, open_log(tmp_path)):
        follow(handle)
        pieces = handle.find(0, 100)
        assert [(p.first, p.last) for p in pieces] == [(1, 3), (4, 5), (6, 10), (50, 50)]
        assert [text_of(handle, key) for key in (3, 4, 5, 6)] == ["old3", "new4", "new5", "old6"]
        assert handle.keys_of(1) == ((1, 10), [])
        assert handle.keys_of(2) == ((50, 50), [(4, 0, 2)])
        handle.close()


def test_closing_cleanly_proves_that_nothing_was_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert (log.unproven, log.new_boot) == (False, False)
    put(log, 1)
    log.close()
    for boot in ("boot-1", "boot-2", "boot-3"):
        log = open_log(tmp_path, boot_id=boot)
        assert (log.unproven, log.new_boot) == (False, False)
        log.close()
    size = log.names
    log = open_log(tmp_path, boot_id="boot-3")
    position = log.recovery, list(log.records()), log.position
    log.close()
    log = open_log(tmp_path, boot_id="boot-3")
    list(log.records())
    assert log.position == position[2], "opening and closing alone must not grow the log"
    log.close()
    assert size.name == "q"


def test_a_new_boot_without_a_clean_close_is_told(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    other = open_log(tmp_path, boot_id="boot-2")
    assert (other.unproven, other.new_boot) == (True, True)
    assert follow(other) == [(1, "v1")]
    other.close()
    log.close()


def test_only_the_last_handle_writes_the_close_record(tmp_path: Path) -> None:
    log, peer = open_log(tmp_path), open_log(tmp_path)
    put(log, 1)
    before = peer.control.words[5]
    log.close()
    assert peer.control.words[5] == before
    follow(peer)
    peer.close()
    assert open_log(tmp_path, boot_id="other").unproven is False


def test_a_snapshot_spares_the_replay(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(1500):
        put(log, key)
    with log.mutex:
        writer = log.begin_snapshot()
    put(log, 2000)
    writer.write({"v": 1})
    writer.write([1, 2, 3])
    assert writer.commit()
    log.close()
    log = open_log(tmp_path, load=False)
    objects = log.load_snapshot()
    assert objects is not None
    assert list(objects) == [{"v": 1}, [1, 2, 3]]
    assert follow(log) == [(2000, "v2000")]
    assert keys_of(log.find(0, 3000)) == [*range(1500), 2000]
    again = log.load_snapshot()
    assert again is not None
    assert follow(log) == [(2000, "v2000")]
    log.close()
    assert_clean(tmp_path)


def test_closing_writes_a_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.close(lambda writer: writer.write("state"))
    log = open_log(tmp_path, load=False)
    assert list(log.load_snapshot() or ()) == ["state"]
    assert follow(log) == []
    assert text_of(log, 1) == "v1"
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir() if "tmp" in p.name) == []


def test_an_older_snapshot_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    old = log.begin_snapshot()
    put(log, 2)
    new = log.begin_snapshot()
    new.write("new")
    assert new.commit()
    old.write("old")
    assert not old.commit()
    log.close()
    log = open_log(tmp_path, load=False)
    assert list(log.load_snapshot() or ()) == ["new"]
    log.close()


def test_snapshot_due_after_growth(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_size=16 * fmt.MIB)
    assert not log.snapshot_due()
    for key in range(5):
        put(log, key, text="x" * fmt.MIB)
    assert log.snapshot_due()
    writer = log.begin_snapshot()
    writer.commit()
    assert not log.snapshot_due()
    log.close()


def test_a_closed_handle_refuses(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.close()
    log.close()
    with pytest.raises(QueueClosedError):
        log.lock()
    with pytest.raises(QueueClosedError):
        list(log.records())
    with pytest.raises(QueueClosedError):
        log.load_snapshot()


def test_handles_leak_no_descriptor(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    before = open_files()
    for _ in range(20):
        log = open_log(tmp_path)
        put(log, 1)
        log.wait_durable(log.position, force=True)
        log.wait(0.0)
        log.close()
    assert open_files() <= before


def test_read_only_changes_nothing_and_follows_a_writer(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no queue"):
        open_log(tmp_path / "none", read_only=True)
    with pytest.raises(StorageError, match="no queue"):
        open_log(tmp_path, read_only=True)
    assert not list(tmp_path.iterdir())
    log = open_log(tmp_path)
    put(log, 1)
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    reader = open_log(tmp_path, read_only=True)
    assert follow(reader) == [(1, "v1")]
    assert not reader.behind()
    with pytest.raises(StorageError, match="read-only"):
        reader.lock()
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before
    for key in range(2, 2000):
        put(log, key)
    assert reader.behind()
    assert [key for key, _ in follow(reader)] == list(range(2, 2000))
    assert keys_of(reader.find(0, 5000)) == list(range(1, 2000))
    log.lock()
    assert follow(open_log(tmp_path, read_only=True))
    log.unlock()
    reader.close()
    log.close()
    assert len(content(tmp_path, boot_id="any")) == 1999
    os.unlink(tmp_path / "q.lock")
    assert len(content(tmp_path)) == 1999


def test_no_more_than_the_allowed_number_of_segments_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    log._chain.maps._limit = 4
    for key in range(12):
        put(log, key, text="x" * 40_000)
    for _ in range(3):
        for key in range(12):
            assert text_of(log, key)
    assert len(log._chain.maps) <= 4
    assert sum(s.mapped for s in log._chain.segments.values()) <= 4
    log.close()
    assert_clean(tmp_path)


def test_names(tmp_path: Path) -> None:
    for bad in ("", ".a", "a/b", "x" * 101, "con", "NUL.txt", "com1", "a b", "ä", "-a", "a\n"):
        with pytest.raises(ValueError, match="name"):
            open_log(tmp_path, name=bad)
    open_log(tmp_path, name="mails").close()
    with pytest.raises(ValueError, match="case"):
        open_log(tmp_path, name="Mails")
    open_log(tmp_path, name="a.b-c_d9").close()


def test_every_option_that_cannot_work_is_refused(tmp_path: Path) -> None:
    for size in (1000, 65537, 2**29):
        with pytest.raises(ValueError, match="segment_size"):
            open_log(tmp_path, segment_size=size)


def test_segment_info(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 5, count=3)
    with locked(log):
        log.seal()
    first, second = log.segments()
    assert (first.number, first.base, first.first_key, first.last_key, first.rows) == (1, 0, 5, 7, 1)
    assert (second.number, second.base, second.first_key, second.last_key) == (
        2,
        first.end_offset - 128,
        0,
        -1,
    )
    assert first.path == str(segment(tmp_path))
    assert log.bytes_used() == first.end_offset + second.end_offset
    assert isinstance(log, Log)
    log.close()
