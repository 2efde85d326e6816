"""Looking after a log: check, backup, listing and removing; full disks; waiting and waking."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from nobroker_mmap import files
from nobroker_mmap import format as fmt
from nobroker_mmap.catalog import drop_log, list_logs
from nobroker_mmap.errors import LockTimeoutError, StorageError
from nobroker_mmap.log import Log
from tests.unit.mmap.harness import (
    PUT,
    SMALL,
    assert_clean,
    content,
    flip,
    follow,
    keys_of,
    locked,
    open_log,
    part,
    put,
    segment,
)


def test_check_names_what_is_wrong(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(900):
        put(log, key)
    assert log.check() == []
    piece = log.find(5, 5)[0]
    other = log.find(800, 800)[0]
    flip(Path(piece.segment.path), piece.offset + 70)
    flip(Path(other.segment.path), other.offset + 70)
    found = [(f.path, f.offset) for f in log.check() if f.severity == "damage"]
    assert found == [(piece.segment.path, piece.offset), (other.segment.path, other.offset)]
    flip(Path(piece.segment.path), piece.offset + 70)
    flip(Path(other.segment.path), other.offset + 70)
    assert log.check() == []
    log.close()
    assert_clean(tmp_path)


def test_check_beside_a_writer_reports_nothing(tmp_path: Path) -> None:
    log, reader = open_log(tmp_path), open_log(tmp_path, read_only=True)
    stop = threading.Event()

    def write() -> None:
        for key in range(3000):
            put(log, key)
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    rounds = 0
    while not stop.is_set():
        assert [f for f in reader.check() if f.severity == "damage"] == []
        rounds += 1
    thread.join()
    assert rounds > 0
    reader.close()
    log.close()


def test_backup_is_a_log_of_its_own(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a")
    for key in range(900):
        put(log, key)
    target = log.backup(tmp_path / "b")
    put(log, 5000)
    assert [key for key, _ in content(target)] == list(range(900))
    copy = open_log(target)
    assert copy.unproven
    assert copy.log_id == log.log_id
    follow(copy)
    put(copy, 6000)
    assert keys_of(copy.find(0, 9000)) == [*range(900), 6000]
    copy.close()
    with pytest.raises(ValueError, match="empty"):
        log.backup(tmp_path / "b")
    log.close()
    assert_clean(target)
    assert_clean(tmp_path / "a")


def test_backup_while_others_write_and_retire(tmp_path: Path) -> None:
    log, reader = open_log(tmp_path / "a"), open_log(tmp_path / "a", read_only=True)
    stop = threading.Event()

    def write() -> None:
        key = 0
        while not stop.is_set() and key < 20_000:
            put(log, key, text="x" * 500)
            key += 1
            numbers = [info.number for info in log.segments()] if key % 200 == 0 else []
            if len(numbers) > 3:
                with locked(log):
                    log.retire(numbers[2], {})

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for attempt in range(5):
            target = reader.backup(tmp_path / f"b{attempt}")
            keys = [key for key, _ in content(target)]
            assert keys == list(range(keys[0], keys[0] + len(keys))) if keys else True
            assert_clean(target)
    finally:
        stop.set()
        thread.join()
    reader.close()
    log.close()


def test_listing_and_removing(tmp_path: Path) -> None:
    assert list_logs(tmp_path / "none") == []
    for name in ("b", "a.b", "a"):
        open_log(tmp_path, name=name).close()
    assert list_logs(tmp_path) == ["a", "a.b", "b"]
    (tmp_path / "notes.txt").write_text("mine")
    log = open_log(tmp_path, name="a")
    with pytest.raises(LockTimeoutError):
        drop_log(tmp_path, "a")
    log.close()
    drop_log(tmp_path, "a")
    assert list_logs(tmp_path) == ["a.b", "b"]
    with pytest.raises(StorageError, match="no queue"):
        drop_log(tmp_path, "a")
    drop_log(tmp_path, "b")
    drop_log(tmp_path, "a.b")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


# -- full disks -------------------------------------------------------------------------------------


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


def test_a_full_disk_at_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "preallocate", no_space)
        key = 0
        while log.position + 128 + 80 <= SMALL:
            put(log, key)
            key += 1
        with pytest.raises(StorageError, match="space") as caught:
            put(log, key)
        assert caught.value.outcome == "not written"
        with pytest.raises(StorageError):
            put(log, key)
        assert not list(tmp_path.glob("*.new"))
    put(log, key)
    assert keys_of(log.find(0, 9999)) == list(range(key + 1))
    log.close()
    assert_clean(tmp_path)


def test_space_is_reserved_before_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    put(log, 0, text="x" * 40_000)
    assert (tmp_path / "q.000002.new").stat().st_size == SMALL
    monkeypatch.setattr(files, "preallocate", no_space)
    put(log, 1, text="x" * 40_000)
    assert [info.number for info in log.segments()] == [1, 2]
    log.close()
    monkeypatch.undo()
    assert_clean(tmp_path)


def test_a_full_disk_at_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files, "preallocate", no_space)
        with pytest.raises(StorageError):
            open_log(tmp_path)
    assert not list(tmp_path.glob("*.seg"))
    assert_clean(tmp_path)


@pytest.mark.parametrize("written", [0, 1, 70, 100, 1000])
def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    real = files.write_at

    def failing(fd: int, data: bytes, offset: int) -> None:
        monkeypatch.setattr(files, "write_at", real)
        real(fd, data[:written], offset)
        raise OSError(errno.EDQUOT, "quota")

    monkeypatch.setattr(files, "write_at", failing)
    with pytest.raises(StorageError, match="quota") as caught:
        put(log, 2)
    assert caught.value.outcome == "not written"
    put(log, 3)
    log.close()
    assert [key for key, _ in content(tmp_path)] == [1, 3]
    assert_clean(tmp_path)


def test_a_write_that_can_not_be_undone_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    real = files.write_at

    def failing(fd: int, data: bytes, offset: int) -> None:
        if data.strip(b"\0"):
            real(fd, data, offset)
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_at", failing)
        with pytest.raises(StorageError) as caught:
            put(log, 2)
    assert caught.value.outcome == "unknown"
    put(log, 3)
    assert keys_of(log.find(0, 9)) == [1, 2, 3], "what is whole on the disk was adopted"
    log.close()
    assert_clean(tmp_path)


def test_an_interrupt_inside_a_rotation_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.sync_directory
    log = open_log(tmp_path)
    put(log, 1)

    def interrupted(path: str) -> None:
        monkeypatch.setattr(files, "sync_directory", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "sync_directory", interrupted)
    log.lock()
    with pytest.raises(KeyboardInterrupt):
        log.seal()
    log.unlock()
    put(log, 2)
    log.close()
    assert [key for key, _ in content(tmp_path)] == [1, 2]
    assert_clean(tmp_path)


# -- waiting ----------------------------------------------------------------------------------------


def wait_in_thread(log: Log, woken: list[bool]) -> threading.Thread:
    thread = threading.Thread(target=lambda: woken.append(any(log.wait(20) for _ in range(20))))
    thread.start()
    return thread


def test_one_notification_wakes_one_waiter_of_any_process(tmp_path: Path) -> None:
    logs = [open_log(tmp_path) for _ in range(3)]
    producer = open_log(tmp_path)
    producer.notify()
    woken: list[bool] = []
    for log in logs:
        log.announce()
    threads = [wait_in_thread(log, woken) for log in logs]
    while sum(log._waiters._wakers != set() for log in logs) < 3:
        time.sleep(0.001)
    started = time.monotonic()
    for expected in (1, 2, 3):
        producer.notify()
        while len(woken) < expected:
            time.sleep(0.001)
        time.sleep(0.01)
        assert len(woken) == expected
    assert time.monotonic() - started < 5
    assert woken == [True, True, True]
    for thread in threads:
        thread.join()
    for log in (*logs, producer):
        log.close()


def test_local_waiters_are_all_woken_and_a_close_does_it_too(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for wake in (log.wake_local, log.close):
        woken: list[bool] = []
        threads = [wait_in_thread(log, woken) for _ in range(3)]
        while len(log._waiters._wakers) < 3:
            time.sleep(0.001)
        wake()
        for thread in threads:
            thread.join(5)
        assert woken == [True] * 3
    assert log.wait(5)


def test_without_a_fifo_waiting_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "make_fifo", lambda path: False)
    log = open_log(tmp_path)
    started = time.monotonic()
    assert log.wait(10) is False
    assert time.monotonic() - started < 1
    log.notify()
    log.close()


def test_a_full_pipe_stops_nobody(tmp_path: Path) -> None:
    log, waiter = open_log(tmp_path), open_log(tmp_path)
    waiter.wait(0.0)
    for _ in range(70_000):
        log._waiters.send()
    assert waiter.wait(0.0)
    log.close()
    waiter.close()


# -- bytes ------------------------------------------------------------------------------------------


def test_the_bytes_are_those_that_are_documented(tmp_path: Path) -> None:
    from xxhash import xxh3_64_intdigest

    log = open_log(tmp_path)
    with locked(log):
        log.append([(PUT, 0, b"\x82\xa1s\x05\xa1n\x01", b"\x91\xa1x", None)])
    raw = segment(tmp_path).read_bytes()
    assert raw[:8] == b"NBSEG\r\n\x1a"
    assert int.from_bytes(raw[120:128], "little") == xxh3_64_intdigest(raw[:120])
    record = raw[128 : 128 + 80]
    assert record[:6] == b"NBr1\x10\x01"
    assert int.from_bytes(record[8:12], "little") == 10
    assert int.from_bytes(record[12:16], "little") == 7
    assert record[64:74] == b"\x82\xa1s\x05\xa1n\x01\x91\xa1x"
    assert int.from_bytes(record[56:64], "little") == xxh3_64_intdigest(record[:56] + record[64:74])
    assert raw[208 : 208 + 64] == bytes(64)
    assert keys_of(log.find(5, 5)) == [5]
    log.close()


def test_headers_of_any_bytes(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    raw = segment(tmp_path).read_bytes()[:128]
    assert fmt.parse_segment_header(raw).pack() == raw
    for offset in range(128):
        for bit in range(8):
            bad = bytearray(raw)
            bad[offset] ^= 1 << bit
            with pytest.raises(fmt.HeaderError):
                fmt.parse_segment_header(bytes(bad))
    for length in range(128):
        with pytest.raises(fmt.HeaderError):
            fmt.parse_segment_header(raw[:length])
    assert os.path.exists(segment(tmp_path))
    assert part(1)[0] == PUT
