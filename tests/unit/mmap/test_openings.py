"""Openings of logs that somebody left in a strange state, and of snapshots that do not fit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import files, opening, recovery, rotation
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import CorruptLogError, StorageError
from nobroker_mmap.offsets import Table
from nobroker_mmap.snapshot import Snapshot
from tests.unit.mmap.harness import (
    PUT,
    SMALL,
    assert_clean,
    content,
    copy_of,
    expected,
    flip,
    follow,
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
from tests.unit.mmap.test_handles import refuse

# -- what is missing or wrong -----------------------------------------------------------------------


@pytest.mark.parametrize("number, readable", [(1, None), (2, 1), (4, 3), (5, 4)])
def test_a_reader_reads_up_to_a_missing_segment(tmp_path: Path, number: int, readable: int | None) -> None:
    made = many_segments(tmp_path)
    segment(tmp_path, number).unlink()
    if readable is None:
        with pytest.raises(CorruptLogError, match="missing") as caught:
            open_log(tmp_path, read_only=True)
        assert caught.value.path == str(segment(tmp_path, number))
        return
    reader = open_log(tmp_path, read_only=True)
    assert follow(reader) == made[:readable]
    assert reader.damage is not None
    assert reader.damage.path == str(segment(tmp_path, number))
    assert reader.recovery.damage == str(reader.damage)
    reader.close()


def test_a_reader_is_not_led_into_another_log(tmp_path: Path) -> None:
    made = many_segments(tmp_path / "a")
    many_segments(tmp_path / "b")
    shutil.copy(segment(tmp_path / "b", 1), segment(tmp_path / "a", 1))
    with pytest.raises(CorruptLogError):
        open_log(tmp_path / "a", read_only=True)
    shutil.copy(segment(tmp_path / "b", 2), segment(tmp_path / "b", 1))
    with pytest.raises(CorruptLogError, match="says that this is segment 2") as caught:
        open_log(tmp_path / "b", read_only=True)
    assert caught.value.offset == 16
    with pytest.raises(CorruptLogError, match="says that this is segment 2"):
        open_log(tmp_path / "b", boot_id="boot-2")
    assert len(made) == 5


def test_a_copy_of_a_segment_in_the_next_place(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    shutil.copy(segment(tmp_path, 1), segment(tmp_path, 2))
    with pytest.raises(CorruptLogError, match="says that this is segment 1") as caught:
        open_log(tmp_path)
    assert (caught.value.path, caught.value.offset) == (str(segment(tmp_path, 2)), 16)
    assert content(tmp_path) == expected(6)


def test_segments_that_go_away_while_they_are_looked_at(tmp_path: Path) -> None:
    many_segments(tmp_path, 2)
    names = fmt.Names(tmp_path, "q")
    there = {number: names.segment(number) for number in (1, 2)}
    newest, damage = recovery.find_newest(names, {**there, 3: names.segment(3)}, [])
    assert (newest.number, damage) == (2, None)
    with pytest.raises(CorruptLogError, match="went away"):
        recovery.find_newest(names, {3: names.segment(3)}, [])
    with pytest.raises(CorruptLogError, match="missing"):
        opening.survey(names, 1, 3)
    with pytest.raises(CorruptLogError, match="names a first segment beyond it"):
        opening.survey(names, 3, 2)
    assert [found.number for found in opening.survey(names, 2, 2)] == [2]
    segment(tmp_path, 1).unlink()
    with pytest.raises(CorruptLogError, match="missing"):
        opening.survey(names, 1, 2)


def test_a_disk_that_does_not_allow_a_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_log(tmp_path)
    for name in ("sync_directory", "sync_file"):
        with monkeypatch.context() as patch:
            patch.setattr(files, name, refuse)
            with pytest.raises(StorageError, match=r"could not be (opened|synced)"):
                open_log(tmp_path, boot_id="boot-2")
    assert content(tmp_path, boot_id="boot-2") == expected(6)
    assert_clean(tmp_path, boot_id="boot-2")


def torn(directory: Path) -> int:
    """A log whose last group was not written as a whole; returns the offset at which it began."""
    ends = small_log(directory)
    overwrite(segment(directory), ends[-2] + 70, b"\xff")
    return ends[-2]


def test_a_torn_tail_that_cannot_be_kept_is_cut_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "copy_range", refuse)
        log = open_log(tmp_path, boot_id="boot-2")
    assert follow(log) == expected(5)
    assert log.recovery.torn_file is None
    assert log.recovery.bytes_discarded > 0
    assert any("could not be kept" in note for note in log.recovery.notes)
    assert log.recovery.describe() == f"{log.recovery.bytes_discarded} bytes of an unfinished write cut"
    log.close()
    assert_clean(tmp_path, boot_id="boot-2")


def test_a_torn_tail_that_cannot_be_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = torn(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "zero_range", refuse)
        with pytest.raises(StorageError, match="could not be cut"):
            open_log(tmp_path, boot_id="boot-2")
    log = open_log(tmp_path, boot_id="boot-2")
    assert log.recovery.torn_file == str(tmp_path / f"q.000001.{start}.torn")
    assert "kept as" in log.recovery.describe()
    assert follow(log) == expected(5)
    log.close()
    assert_clean(tmp_path, boot_id="boot-2")


def test_what_an_opening_tells(tmp_path: Path) -> None:
    ends = small_log(tmp_path, close=True)
    log = open_log(tmp_path)
    assert log.recovery.describe().startswith("nothing to repair; ")
    log.close()
    flip(segment(tmp_path), ends[2] + 70)
    reader = open_log(tmp_path, read_only=True)
    follow(reader)
    assert reader.recovery.describe() == f"damage: {reader.damage}"
    reader.close()


# -- what stands behind the end ---------------------------------------------------------------------


def test_a_segment_that_is_full_to_the_last_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    around = 64 + len(part(2)[2]) + len(b"\x91\xda\0\0")
    put(log, 2, text="x" * (SMALL - 128 - log.position - around - 1))
    assert log.position == SMALL - 128
    log._release_files()
    log = open_log(tmp_path, boot_id="boot-2")
    assert [key for key, _ in follow(log)] == [1, 2]
    put(log, 3)
    assert text_of(log, 3) == "v3"
    log.close()
    assert_clean(tmp_path, boot_id="boot-2")


def test_large_records_behind_damage_are_found(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_size=16 * fmt.MIB)
    put(log, 1, text="x" * 1_000_000)
    put(log, 2, text="NBr1" * 3 + "xNBr1" * 180_000, durable=True)
    put(log, 3, text="y" * 500_000)
    assert log.active_number == 2
    log._release_files()
    path = segment(tmp_path, 2)
    overwrite(path, 128 + 70, b"\xff")
    with pytest.raises(CorruptLogError) as caught:
        open_log(tmp_path, boot_id="boot-2", segment_size=16 * fmt.MIB)
    assert (caught.value.path, caught.value.offset) == (str(path), 128)


def test_bytes_that_look_like_too_many_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_size=fmt.MIB)
    put(log, 1)
    header, end = log._chain.newest.header, log.position + 128
    log._release_files()
    fakes = bytearray()
    for offset in range(end + 64, fmt.MIB - 64, 64):
        size = fmt.MIB - offset - 64
        fakes += fmt.RECORD_HEADER.pack(
            *(fmt.RECORD_MAGIC, PUT, 1, 0, size, 1, 1, 0, header.lineage, offset - 128, 0, 0, 0)
        )
    overwrite(segment(tmp_path), end + 64, bytes(fakes))
    with pytest.raises(CorruptLogError, match="too many records"):
        open_log(tmp_path, boot_id="boot-2", segment_size=fmt.MIB)


# -- leftovers --------------------------------------------------------------------------------------


def test_a_prepared_segment_is_used_only_as_it_should_be(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number, strange in ((2, bytes(1000)), (3, b"x" + bytes(SMALL - 1)), (4, bytes(SMALL))):
        path = tmp_path / f"q.{number:06d}.new"
        path.write_bytes(strange)
        held = os.open(path, os.O_RDONLY)  # so that no other file gets its number
        with locked(log):
            log.seal()
        put(log, number)
        found = segment(tmp_path, number).stat()
        assert found.st_size == SMALL
        assert (found.st_ino == os.fstat(held).st_ino) == (number == 4)
        os.close(held)
    log.close()
    assert [key for key, _ in content(tmp_path)] == [2, 3, 4]
    assert_clean(tmp_path)


def test_something_foreign_where_a_rotation_needs_its_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    segment(tmp_path, 2).mkdir()
    with locked(log), pytest.raises(StorageError, match="move it away") as caught:
        log.seal()
    assert caught.value.outcome == "not written"
    segment(tmp_path, 2).rmdir()
    (tmp_path / "q.000002.new").mkdir()
    with locked(log), pytest.raises(StorageError, match="nothing was written"):
        log.seal()
    (tmp_path / "q.000002.new").rmdir()
    put(log, 2)
    with locked(log):
        log.seal()
    log.close()
    assert content(tmp_path) == [(1, "v1"), (2, "v2")]
    assert_clean(tmp_path)


def test_no_half_made_segment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, unlink = fmt.Names(tmp_path, "q"), files.unlink
    monkeypatch.setattr(files, "preallocate", refuse)
    with pytest.raises(OSError, match="too many open files"):
        rotation.prepare(names, 2, SMALL)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(files, "unlink", lambda path: refuse() if os.path.exists(path) else unlink(path))
    with pytest.raises(OSError, match="too many open files"):
        rotation.prepare(names, 2, SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["q.000002.new"], "the next opening removes it"


def test_temporary_files_of_the_living_stay(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    writer = log.begin_snapshot()
    (tmp_path / "q.snap.1-1.tmp").write_bytes(b"left behind")
    (tmp_path / "q.snap.2-2.tmp").mkdir()
    (tmp_path / "q.000001.idx.3-3.tmp").write_bytes(b"left behind")
    open_log(tmp_path).close()
    left = sorted(path.name for path in tmp_path.glob("*.tmp"))
    assert len(left) == 2
    assert "q.snap.2-2.tmp" in left
    assert writer.commit()
    log.close()
    (tmp_path / "q.snap.2-2.tmp").rmdir()
    assert_clean(tmp_path)


# -- snapshots --------------------------------------------------------------------------------------


def snap(lsn: int, checksum: int, lineage: int, number: int = 0) -> Snapshot:
    return Snapshot(lsn, checksum, lineage, 1, number, Table(), b"", 0)


def test_where_a_snapshot_fits(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(11):
        put(log, key, text="x" * 20_000)
    log._release_files()
    log = open_log(tmp_path)
    records = list(log.records())
    segments = list(log._chain.segments.values())
    assert len(segments) == 4
    lineage, nothing = segments[0].header.lineage, (-1, 0)

    def fits(lsn: int, checksum: int, owner: int = lineage, known: tuple[int, int] = nothing) -> int | None:
        found = opening.snapshot_fits(segments, snap(lsn, checksum, owner), known)
        return None if found is None else found.number

    for at, record in enumerate(records):
        following = records[at + 1].segment if at + 1 < len(records) else record.segment
        assert fits(record.end, record.checksum) == following
        assert fits(record.end, record.checksum + 1) is None
        assert fits(record.end, record.checksum, lineage + 1) is None
        assert fits(record.end + 8, record.checksum) is None
    assert fits(0, segments[0].header.previous_checksum) == 1
    assert fits(0, segments[0].header.previous_checksum, lineage + 1) is None
    last = records[-1]
    assert fits(last.end + 8, 77, known=(last.end + 8, 77)) == 4, "what was verified before is believed"
    assert fits(segments[-1].base + SMALL, last.checksum) is None
    assert opening.snapshot_fits(segments[2:], snap(8, 1, lineage), nothing) is None
    gone = [one for one in segments if one.number != 3]
    border = next(record for record in records if record.end == segments[2].base)
    assert opening.snapshot_fits(gone, snap(border.end, border.checksum, lineage), nothing) is None
    log.close()


def test_a_snapshot_of_what_the_log_has_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    before = segment(tmp_path).read_bytes()
    put(log, 2)
    writer = log.begin_snapshot()
    writer.write("with key 2")
    assert writer.commit()
    log._release_files()
    overwrite(segment(tmp_path), 0, before)
    log = open_log(tmp_path, boot_id="boot-2", load=False)
    assert "the snapshot does not fit the log" in log.recovery.notes
    assert log.load_snapshot() is None
    assert follow(log) == [(1, "v1")]
    log.close()
    assert_clean(tmp_path, boot_id="boot-2")


@pytest.mark.parametrize("lie", ["checksum", "lsn", "lineage"])
def test_a_snapshot_that_is_wrong_about_the_end(tmp_path: Path, lie: str) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    put(log, 2)
    writer = log.begin_snapshot()
    wrong = getattr(writer._point, lie) + (-80 if lie == "lsn" else 1)
    writer._point = writer._point._replace(**{lie: wrong})
    assert writer.commit()
    log._release_files()
    for options in ({}, {"read_only": True}):
        log = open_log(tmp_path, load=False, **options)
        assert log.load_snapshot() is None
        assert "the snapshot does not fit the log" in log.recovery.notes
        assert follow(log) == [(1, "v1"), (2, "v2")]
        log.close()
    (tmp_path / "q.snap").unlink()
    assert_clean(tmp_path)


def test_a_page_that_knows_a_later_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.control.words[ctl.SNAPSHOT] = 10**9
    open_log(tmp_path).close()
    assert log.control.words[ctl.SNAPSHOT] == 0
    log.close()
    assert_clean(tmp_path)


@pytest.mark.parametrize("body", [b"\xc1", b"\x05", b"\x80", b"\x81\xa1i\x05"])
def test_a_close_record_that_is_not_of_this_file(tmp_path: Path, body: bytes) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    with locked(log):
        log.append([(fmt.CLOSE, fmt.SKIPPABLE, body, b"", [])])
    log._release_files()
    work = copy_of(tmp_path, tmp_path / "work")
    log = open_log(work, boot_id="boot-2")
    assert log.unproven
    assert follow(log) == [(1, "v1")]
    log.close()
    assert os.listdir(work)
