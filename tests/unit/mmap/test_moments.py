"""What others do at the wrong moment: rotate, retire, close or remove while this handle is at something."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nobroker_mmap import backup, files
from nobroker_mmap import control as ctl
from nobroker_mmap.catalog import drop_log, list_logs
from nobroker_mmap.errors import CorruptLogError, Restart, StorageError
from nobroker_mmap.log import Log
from tests.unit.mmap.harness import (
    MOVE,
    SMALL,
    assert_clean,
    content,
    follow,
    locked,
    many_segments,
    open_log,
    part,
    put,
    segment,
    text_of,
)
from tests.unit.mmap.test_handles import once, refuse


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


def long(directory: Path, count: int = 4) -> Log:
    """One key in each segment."""
    log = open_log(directory)
    for key in range(1, count + 1):
        put(log, key, text="x" * 40_000)
    assert [info.number for info in log.segments()] == list(range(1, count + 1))
    return log


# -- appending --------------------------------------------------------------------------------------


def test_a_group_of_nothing_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with locked(log), pytest.raises(ValueError, match="at least one"):
        log.append([])
    put(log, 1)
    log.close()
    assert_clean(tmp_path)


def test_an_append_after_others_began_a_segment(tmp_path: Path) -> None:
    log, peer = open_log(tmp_path), open_log(tmp_path)
    put(log, 1)
    with locked(peer):
        peer.seal()
    log.lock()
    log.append([part(2)])
    log.unlock()
    assert log.active_number == 2
    follow(peer)
    assert [text_of(peer, key) for key in (1, 2)] == ["v1", "2"]
    log.close()
    peer.close()
    assert_clean(tmp_path)


def test_zeros_over_a_failed_write_that_are_not_durable_poison_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, peer = open_log(tmp_path), open_log(tmp_path)
    put(log, 1)
    write_at = files.write_at

    def failing(fd: int, data: bytes, offset: int) -> None:
        write_at(fd, data[:100], offset)
        monkeypatch.setattr(files, "write_at", write_at)
        no_space()

    with locked(log):
        monkeypatch.setattr(files, "write_at", failing)
        monkeypatch.setattr(files, "sync_data", refuse)
        with pytest.raises(StorageError, match="a sync failed") as caught:
            log.append([part(2)])
    monkeypatch.undo()
    assert caught.value.outcome == "unknown"
    for handle in (log, peer):
        with pytest.raises(StorageError, match="open the queue again"):
            handle.lock()
        handle.close()
    assert content(tmp_path) == [(1, "v1")]
    assert_clean(tmp_path)


def test_a_segment_whose_name_may_not_be_durable_poisons_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.lock()
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_directory", refuse)
        with pytest.raises(StorageError, match="a sync failed") as caught:
            log.seal()
    assert caught.value.outcome == "unknown"
    log.unlock()
    with pytest.raises(StorageError, match="open the queue again"):
        log.lock()
    log.close()
    log = open_log(tmp_path)
    assert follow(log) == [(1, "v1")]
    put(log, 2)
    log.close()
    assert_clean(tmp_path)


def test_the_last_eighth_is_kept_for_acknowledgements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    put(log, 1, text="x" * (SMALL * 3 // 4))
    os.unlink(tmp_path / "q.000002.new")
    room = SMALL - SMALL // 8 - 128 - log.position
    with locked(log), monkeypatch.context() as patch:
        patch.setattr(files, "preallocate", no_space)
        log.keep_room(room)
        with pytest.raises(StorageError, match="kept for acknowledgements") as caught:
            log.keep_room(room + 8)
        assert caught.value.outcome == "not written"
        assert not (tmp_path / "q.000002.new").exists()
        log.append([part(2, "an acknowledgement" * 400)])
        log.keep_room(SMALL)  # needs another segment anyway
    with locked(log):
        log.keep_room(2000)
    assert (tmp_path / "q.000002.new").stat().st_size == SMALL
    with locked(log), monkeypatch.context() as patch:
        patch.setattr(files, "preallocate", no_space)
        log.keep_room(2000)
    log.close()
    assert [key for key, _ in content(tmp_path)] == [1, 2]
    assert_clean(tmp_path)


def test_what_others_synced_by_rotating_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, peer = open_log(tmp_path, fsync=True), open_log(tmp_path)
    end = put(log, 1)
    with locked(peer):
        peer.seal()
    monkeypatch.setattr(files, "sync_data", lambda fd: pytest.fail("there is nothing to sync"))
    log._sync(end)
    log.control.say(ctl.DURABLE, 0)
    with pytest.raises(StorageError, match="moved on") as caught:
        log._sync(end)
    assert caught.value.outcome == "unknown"
    monkeypatch.undo()
    log.control.say(ctl.DURABLE, end)
    peer.close()
    log.close()
    assert_clean(tmp_path)


def test_durable_is_never_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, fsync=True)
    end = put(log, 1)
    later = end + 8

    def meanwhile(fd: int) -> None:
        log.control.say(ctl.DURABLE, later)

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_data", meanwhile)
        log.wait_durable(end)
    assert log.durable == later
    log.control.say(ctl.DURABLE, end)
    log.close()
    assert_clean(tmp_path)


def test_a_log_that_is_closed_while_somebody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, fsync=True)
    end = put(log, 1)

    def run(done: Any, sync: Any) -> None:
        log.close()
        done()

    monkeypatch.setattr(log._commit, "run", run)
    with pytest.raises(StorageError, match="closed before the sync") as caught:
        log.wait_durable(end)
    assert caught.value.outcome == "unknown"
    assert_clean(tmp_path)


def test_without_a_control_page_nothing_is_waited_for(tmp_path: Path) -> None:
    long(tmp_path).close()
    os.unlink(tmp_path / "q.lock")
    reader = open_log(tmp_path, read_only=True)
    reader.wait_durable(10**9, force=True)
    assert reader.behind()
    assert reader.lag() == 0
    assert not reader.has_waiters()
    assert [key for key, _ in follow(reader)] == [1, 2, 3, 4]
    assert follow(reader) == []
    reader.close()


# -- copies -----------------------------------------------------------------------------------------


def test_a_copy_goes_on_when_segments_are_retired_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = long(tmp_path / "a")

    def retire(*_: object) -> None:
        with locked(log):
            log.append([part(2, "kept", kind=MOVE)])
            log.retire(4, {})

    once(monkeypatch, files, "copy_range", retire)
    target = log.backup(tmp_path / "b")
    assert content(Path(target)) == [(4, "x" * 40_000 + "4"), (2, "kept2")]
    assert_clean(Path(target))
    log.close()
    assert_clean(tmp_path / "a")


def test_a_copy_ends_where_the_log_ended(tmp_path: Path) -> None:
    log = long(tmp_path / "a", 2)
    words = list(log.control.words)
    put(log, 3, text="x" * 40_000)
    put(log, 4, text="x" * 40_000)
    words[ctl.ACTIVE] = 4  # it was looked at a moment later
    backup.copy_log(log.names, str(tmp_path / "b"), words, 2)
    assert [key for key, _ in content(tmp_path / "b")] == [1, 2, 3], "whole segments, up to the end or beyond"
    log.close()
    assert_clean(tmp_path / "b")


def test_a_copy_of_what_is_damaged_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = long(tmp_path / "a")
    path = segment(tmp_path / "a", 2)
    path.rename(tmp_path / "aside")
    monkeypatch.setattr(backup, "_ATTEMPTS", 2)
    with pytest.raises(CorruptLogError, match="missing"):
        log.backup(tmp_path / "b")
    assert list((tmp_path / "b").iterdir()) == []
    (tmp_path / "aside").rename(path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "copy_range", no_space)
        with pytest.raises(StorageError, match=r"the copy failed: .*no space"):
            log.backup(tmp_path / "c")
    log.close()
    os.unlink(tmp_path / "a" / "q.lock")
    reader = open_log(tmp_path / "a", read_only=True)
    assert [key for key, _ in content(Path(reader.backup(tmp_path / "d")))] == [1, 2, 3, 4]
    segment(tmp_path / "a", 5).write_bytes(b"garbage")
    with pytest.raises(CorruptLogError) as caught:
        reader.backup(tmp_path / "e")
    assert caught.value.path == str(segment(tmp_path / "a", 5))
    reader.close()


# -- the list of logs -------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be read") as caught:
        list_logs(str(tmp_path / "file"))
    assert caught.value.path == str(tmp_path / "file")


def test_removing_leaves_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many_segments(tmp_path, 2)
    (tmp_path / "q.000009.seg").mkdir()
    (tmp_path / "q.000008.seg").symlink_to("nowhere")
    with monkeypatch.context() as patch:
        patch.setattr(files, "unlink", no_space)
        with pytest.raises(StorageError, match="could not be removed"):
            drop_log(str(tmp_path), "q")
    assert list_logs(str(tmp_path)) == ["q"]
    drop_log(str(tmp_path), "q")
    assert [path.name for path in tmp_path.iterdir()] == ["q.000009.seg"]


def test_what_a_reader_took_for_the_newest_left_before_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, peer = open_log(tmp_path), long(tmp_path, 2)

    def move_on(*_: object) -> None:
        for key in (3, 4):
            put(peer, key, text="x" * 40_000)
        with locked(peer):
            peer.append([part(1, "kept", kind=MOVE), part(2, "kept", kind=MOVE)])
            peer.retire(4, {})
        assert not segment(tmp_path, 2).exists()

    once(monkeypatch, files, "open_write", move_on, after=False)
    with pytest.raises(Restart):
        follow(log)  # without the lock
    log.lock()
    follow(log)
    log.append([part(5)])
    log.unlock()
    assert log.active_number == 4
    log.close()
    peer.close()
    assert_clean(tmp_path)
    assert {key for key, _ in content(tmp_path)} == {1, 2, 4, 5}


def test_the_newest_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, peer = open_log(tmp_path), long(tmp_path, 2)
    once(monkeypatch, files, "open_write", lambda path, *_: os.unlink(path), after=False)
    with pytest.raises(StorageError, match=r"000002\.seg: cannot be opened"):
        follow(log)
    log.close()
    peer.close()
