"""Openings of logs that were cut short, damaged, poisoned, fenced or moved."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from nobroker_mmap import CorruptLogError, Restart, StorageError, files, salvage
from nobroker_mmap import control as ctl
from nobroker_mmap import format as fmt
from tests.unit.mmap.harness import (
    SMALL,
    assert_clean,
    content,
    flip,
    follow,
    keys_of,
    locked,
    open_log,
    overwrite,
    part,
    put,
    segment,
    text_of,
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk where a test opens a thousand logs."""
    for name in ("sync_data", "sync_file"):
        monkeypatch.setattr(files, name, lambda fd: None)
    monkeypatch.setattr(files, "sync_directory", lambda path: None)


def small_log(directory: Path, groups: int = 6, *, durable: bool = False, close: bool = False) -> list[int]:
    """A log of a few groups of two records; returns the offset at which each group ends, 128 first."""
    log = open_log(directory)
    ends = [128]
    for group in range(groups):
        end = put(log, 2 * group, 2 * group + 1, durable=durable)
        ends.append(end + 128)
    if close:
        log.close()
    else:
        log._release_files()  # as if the process had been killed
    return ends


def expected(groups: int) -> list[tuple[int, str]]:
    return [(key, f"v{key}") for key in range(2 * groups)]


def copy_of(source: Path, target: Path) -> Path:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=lambda _, names: [n for n in names if n.endswith(".wake")])
    return target


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


# -- poison and fences ------------------------------------------------------------------------------


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


# -- files that do not belong -----------------------------------------------------------------------


def many_segments(directory: Path, count: int = 5) -> list[tuple[int, str]]:
    log = open_log(directory)
    for key in range(count):
        put(log, key, text="x" * 50_000)
    log.close()
    return [(key, "x" * 50_000 + str(key)) for key in range(count)]


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    for number in range(1, 6):
        directory = tmp_path / str(number)
        many_segments(directory)
        os.unlink(segment(directory, number))
        for boot in ("boot-1", "boot-2"):
            if number == 5 and boot == "boot-2":
                continue  # nothing but this boot's control page knows that there was one
            with pytest.raises(CorruptLogError) as caught:
                open_log(directory, boot_id=boot)
            assert caught.value.path == str(segment(directory, number))


def test_all_segments_gone_in_the_same_boot(tmp_path: Path) -> None:
    many_segments(tmp_path, 2)
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    with pytest.raises(CorruptLogError, match="every other segment"):
        open_log(tmp_path)


@pytest.mark.parametrize("kind", ["link", "directory", "fifo", "garbage", "empty"])
def test_something_foreign_where_the_next_segment_belongs(tmp_path: Path, kind: str) -> None:
    small_log(tmp_path, close=True)
    path, outside = segment(tmp_path, 2), tmp_path / "outside"
    outside.write_bytes(b"precious")
    place_foreign(path, kind, outside)
    with pytest.raises(CorruptLogError) as caught:
        open_log(tmp_path)
    assert caught.value.path == str(path)
    assert outside.read_bytes() == b"precious"
    assert content(tmp_path) == expected(6)


def place_foreign(path: Path, kind: str, outside: Path) -> None:
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"garbage" * 1000 if kind == "garbage" else b"")


@pytest.mark.parametrize("kind", ["link", "directory", "fifo", "garbage", "empty"])
@pytest.mark.parametrize(
    "name", ["q.snap", "q.manifest", "q.000001.idx", "q.wake", "q.000009.seg", "q.000002.new"]
)
def test_foreign_files_under_other_names_of_ours(tmp_path: Path, name: str, kind: str) -> None:
    many_segments(tmp_path, 1)
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    path = tmp_path / name
    if path.exists():
        path.unlink()
    place_foreign(path, kind, outside)
    log = open_log(tmp_path)
    assert [key for key, _ in follow(log)] == [0]
    put(log, 1, text="x" * 50_000) if not (name.endswith(".new") and kind == "directory") else None
    assert text_of(log, 0) is not None
    log.wait(0.0)
    log.notify()
    log.close()
    assert outside.read_bytes() == b"precious"


def test_a_segment_of_another_log_is_refused(tmp_path: Path) -> None:
    many_segments(tmp_path / "a", 3)
    many_segments(tmp_path / "b", 3)
    for number in (1, 2, 3):
        work = copy_of(tmp_path / "a", tmp_path / "work")
        shutil.copy(segment(tmp_path / "b", number), segment(work, number))
        with pytest.raises(CorruptLogError):
            follow(open_log(work))


def test_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    from xxhash import xxh3_64_intdigest

    raw = bytearray(segment(tmp_path).read_bytes()[:128])
    raw[8] = 2
    raw[120:128] = xxh3_64_intdigest(bytes(raw[:120])).to_bytes(8, "little")
    overwrite(segment(tmp_path), 0, bytes(raw))
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*.seg")}
    with pytest.raises(StorageError, match="update"):
        open_log(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*.seg")} == before


def test_reading_ends_before_damage_in_the_middle(tmp_path: Path) -> None:
    made = many_segments(tmp_path)
    flip(segment(tmp_path, 3), 1000)
    log = open_log(tmp_path)
    with pytest.raises(CorruptLogError) as caught:
        follow(log)
    assert (caught.value.path, caught.value.offset) == (str(segment(tmp_path, 3)), 128)
    log.close()
    reader = open_log(tmp_path, read_only=True)
    assert follow(reader) == made[:2]
    assert follow(reader) == []
    assert reader.damage is not None
    assert reader.damage.path == str(segment(tmp_path, 3))
    reader.close()


# -- salvage ----------------------------------------------------------------------------------------


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


def test_salvage_of_the_tail(tmp_path: Path) -> None:
    ends = small_log(tmp_path)
    overwrite(segment(tmp_path), ends[-2] + 70, b"\xff")
    report = salvage(tmp_path, "q", boot_id="boot-1")
    assert report.bytes_lost > 0
    found = content(tmp_path)
    assert found == [*expected(5), (11, "v11")]
    assert_clean(tmp_path)


def test_salvage_waits_for_nobody(tmp_path: Path) -> None:
    from nobroker_mmap import LockTimeoutError

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
