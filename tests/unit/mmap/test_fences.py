"""Failed syncs, lost lock files, copies: when the log must go on in a new lineage."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import files
from nobroker_mmap.errors import CorruptLogError, Restart, StorageError
from tests.unit.mmap.harness import (
    assert_clean,
    content,
    copy_of,
    expected,
    flip,
    follow,
    open_log,
    overwrite,
    part,
    put,
    segment,
    small_log,
    text_of,
)


def test_a_failed_sync_poisons_every_handle_until_it_is_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, peer = open_log(tmp_path, fsync=True), open_log(tmp_path, fsync=True)
    put(log, 1, durable=True)
    end = put(log, 2)
    real = files.sync_data

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(files, "sync_data", broken)
    with pytest.raises(StorageError, match="sync failed") as caught:
        log.wait_durable(end)
    assert caught.value.outcome == "unknown"
    monkeypatch.setattr(files, "sync_data", real)
    for handle in (log, peer):
        with pytest.raises(StorageError, match="open the queue again"):
            handle.lock()
        with pytest.raises(StorageError) as caught:
            handle.wait_durable(end)
        assert caught.value.outcome == "unknown"
    late = open_log(tmp_path)
    assert late.unproven
    assert follow(late) == [(1, "v1"), (2, "v2")]
    assert len(late.segments()) == 2
    assert late.segments()[0].end_offset < end + 128, "what was not known durable was written anew"
    put(late, 3)
    assert text_of(late, 2) == "v2"
    for handle in (log, peer):
        with pytest.raises(StorageError, match="open the queue again"):
            handle.lock()
        handle.close()
    late.close()
    assert content(tmp_path) == [(1, "v1"), (2, "v2"), (3, "v3")]
    assert_clean(tmp_path)


def test_a_failed_sync_at_rotation_poisons_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    put(log, 1)

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_data", broken)
        log.lock()
        with pytest.raises(StorageError):
            log.seal()
        log.unlock()
    with pytest.raises(StorageError, match="open the queue again"):
        log.lock()
    log.close()
    assert content(tmp_path, boot_id="boot-2") == [(1, "v1")]


def test_lsns_do_not_repeat_after_a_fence(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    end = put(log, 1)
    log.control.words[ctl.POISON] = 1
    log._release_files()
    log = open_log(tmp_path)
    assert follow(log) == [(1, "v1")]
    assert log.segments()[1].base >= end
    log.close()


def test_a_removed_lock_file_fences_old_handles(tmp_path: Path) -> None:
    log, peer = open_log(tmp_path), open_log(tmp_path)
    put(log, 1)
    os.unlink(tmp_path / "q.lock")
    follow(peer)
    with pytest.raises(Restart):
        peer.lock()
    peer.load_snapshot()
    assert follow(peer) == [(1, "v1")]
    put(peer, 2)
    with pytest.raises(StorageError, match="open the queue again"):
        log.lock()
    log.close()
    peer.close()
    assert content(tmp_path) == [(1, "v1"), (2, "v2")]
    assert_clean(tmp_path)


def test_a_lock_file_removed_during_an_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.lock()
    real = files.write_at

    def meanwhile(fd: int, data: bytes, offset: int) -> None:
        monkeypatch.setattr(files, "write_at", real)
        os.unlink(tmp_path / "q.lock")
        other = open_log(tmp_path)
        assert follow(other) == [(1, "v1")]
        other.close()
        real(fd, data, offset)

    monkeypatch.setattr(files, "write_at", meanwhile)
    with pytest.raises(StorageError, match="removed") as caught:
        log.append([part(2)])
    assert caught.value.outcome == "unknown"
    log.unlock()
    log.close()
    assert content(tmp_path) == [(1, "v1")]
    assert_clean(tmp_path)


def test_a_truncated_lock_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    os.truncate(tmp_path / "q.lock", 0)
    with pytest.raises(StorageError, match="open the queue again"):
        log.lock()
    log.close()
    log = open_log(tmp_path)
    assert follow(log) == [(1, "v1")]
    log.close()
    assert_clean(tmp_path)


@pytest.mark.parametrize("length", [0, 1, 8, 39, 40, 100, 4095, 4096, 5000])
def test_a_lock_file_of_any_length(tmp_path: Path, length: int) -> None:
    small_log(tmp_path, close=True)
    os.truncate(tmp_path / "q.lock", length)
    log = open_log(tmp_path)
    assert follow(log) == expected(6)
    put(log, 50)
    log.close()
    assert_clean(tmp_path)


def test_every_bit_of_the_control_page(tmp_path: Path, quick: None) -> None:
    small_log(tmp_path / "made", close=True)
    for offset in range(15 * 8):
        work = copy_of(tmp_path / "made", tmp_path / "work")
        flip(work / "q.lock", offset, 3)
        try:
            log = open_log(work, boot_id="boot-1")
        except CorruptLogError:
            continue  # it says that more had been written: better safe than sorry
        assert follow(log) == expected(6)
        log.close()


def test_a_copy_of_the_whole_directory_is_unproven_and_goes_on(tmp_path: Path) -> None:
    small_log(tmp_path / "made", close=True)
    work = copy_of(tmp_path / "made", tmp_path / "work")
    log = open_log(work)
    assert log.unproven
    assert follow(log) == expected(6)
    put(log, 77)
    log.close()
    assert_clean(work)


def test_an_older_state_put_back_in_place_is_unproven(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    old = segment(tmp_path).read_bytes()
    log = open_log(tmp_path)
    follow(log)
    put(log, 100)
    log.close()
    overwrite(segment(tmp_path), 0, old)
    with pytest.raises(CorruptLogError):
        open_log(tmp_path)
    log = open_log(tmp_path, boot_id="boot-2")
    assert log.unproven
    log.close()
