"""What a salvage takes for lost, where several things are wrong at once, and whose files it leaves alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import files, survey
from nobroker_mmap.errors import CorruptLogError, StorageError
from nobroker_mmap.losses import SalvageReport
from nobroker_mmap.salvage import salvage
from tests.unit.mmap.harness import (
    MOVE,
    SMALL,
    assert_clean,
    content,
    expected,
    flip,
    locked,
    many_segments,
    open_log,
    overwrite,
    part,
    put,
    segment,
    small_log,
)
from tests.unit.mmap.test_handles import descriptors, refuse
from tests.unit.mmap.test_moments import long


def saved(directory: Path, boot_id: str = "boot-1") -> SalvageReport:
    before = descriptors()
    report = salvage(directory, "q", boot_id=boot_id)
    assert descriptors() == before
    assert report.notes[-1].startswith("the log goes on in a new lineage")
    assert_clean(directory, boot_id=boot_id)
    return report


def keys(directory: Path) -> list[int]:
    return [key for key, _ in content(directory)]


def lost(report: SalvageReport) -> list[tuple[str, int, str]]:
    return [(os.path.basename(loss.path), loss.offset, loss.reason) for loss in report.losses]


def test_nothing_to_begin_from(tmp_path: Path) -> None:
    many_segments(tmp_path, 2)
    for number in (1, 2):
        segment(tmp_path, number).write_bytes(b"garbage" * 10_000)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.seg")}
    with pytest.raises(CorruptLogError, match="put a copy back") as caught:
        salvage(tmp_path, "q", boot_id="boot-1")
    assert caught.value.path == str(segment(tmp_path, 1))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.seg")} == before


def test_a_disk_that_does_not_allow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = small_log(tmp_path, close=True)
    flip(segment(tmp_path), ends[2] + 70)
    before = segment(tmp_path).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files, "preallocate", refuse)
        with pytest.raises(StorageError, match="the salvage failed"):
            salvage(tmp_path, "q", boot_id="boot-1")
    assert segment(tmp_path).read_bytes() == before
    assert len(saved(tmp_path).losses) == 1


def test_what_was_there_is_kept_each_time(tmp_path: Path) -> None:
    ends = small_log(tmp_path, close=True)
    for number, suffix in ((4, ""), (2, "2"), (1, "3")):
        flip(segment(tmp_path), ends[number] + 70)
        before = segment(tmp_path).read_bytes()
        (kept,) = saved(tmp_path).kept_files
        assert kept == str(segment(tmp_path)) + ".salvaged" + suffix
        assert Path(kept).read_bytes() == before


def test_a_page_that_cannot_be_true_either(tmp_path: Path) -> None:
    ends = small_log(tmp_path)
    log = open_log(tmp_path)
    log.control.say(ctl.APPENDED, 10**9)
    log._release_files()
    flip(segment(tmp_path), ends[2] + 70)
    report = saved(tmp_path)
    assert [loss[:2] for loss in lost(report)] == [("q.000001.seg", ends[2])]
    assert report.bytes_lost < 200


def test_what_the_page_knows_of_the_end(tmp_path: Path) -> None:
    ends = small_log(tmp_path)
    flip(segment(tmp_path), ends[-1] - 10)
    report = saved(tmp_path)
    ((name, offset, reason),) = lost(report)
    assert (name, reason) == ("q.000001.seg", "no record verifies here")
    assert offset + report.bytes_lost == ends[-1]
    assert keys(tmp_path) == list(range(11))


def test_a_newest_segment_that_is_missing(tmp_path: Path) -> None:
    log = long(tmp_path, 2)
    with locked(log):
        log.seal()
    log._release_files()
    empty = segment(tmp_path, 3).read_bytes()
    segment(tmp_path, 3).unlink()
    assert lost(saved(tmp_path)) == [], "there was nothing in it"
    assert keys(tmp_path) == [1, 2]
    assert len(empty) == SMALL


def test_a_newest_segment_that_is_missing_with_what_was_in_it(tmp_path: Path) -> None:
    log = long(tmp_path, 3)
    end, base = log.position, log.segments()[2].base
    log._release_files()
    segment(tmp_path, 3).unlink()
    report = saved(tmp_path)
    assert lost(report) == [("q.000003.seg", 0, "the file is missing")]
    assert (report.losses[0].first_lsn, report.losses[0].end_lsn) == (base, end)
    assert keys(tmp_path) == [1, 2]


def test_a_newest_segment_of_which_a_snapshot_has_the_rows(tmp_path: Path) -> None:
    log = long(tmp_path, 3)
    writer = log.begin_snapshot()
    assert writer.commit()
    put(log, 9)
    log._release_files()
    segment(tmp_path, 3).unlink()
    (loss,) = salvage(tmp_path, "q", boot_id="boot-1").losses
    assert (loss.keys, loss.keys_known) == (((3, 3),), False), "key 9 came after the snapshot"


def test_damage_in_the_newest_segment_of_which_a_snapshot_has_the_rows(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(5):
        put(log, key)
    victim = log.find(3, 3)[0]
    log.close(lambda writer: writer.write("state"))
    flip(segment(tmp_path), victim.offset + 70)
    (loss,) = saved(tmp_path).losses
    assert (loss.offset, loss.keys, loss.keys_known) == (victim.offset, ((3, 3),), True)


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_files_that_are_no_segments(tmp_path: Path, boot_id: str) -> None:
    many_segments(tmp_path, 3)
    segment(tmp_path, 4).mkdir()
    segment(tmp_path, 5).write_bytes(b"garbage" * 100)
    segment(tmp_path, 2).unlink()
    segment(tmp_path, 2).symlink_to("nowhere")
    report = saved(tmp_path, boot_id)
    assert content(tmp_path, boot_id=boot_id) == [(key, "x" * 50_000 + str(key)) for key in (0, 2)]
    reasons = {os.path.basename(loss.path): loss.reason for loss in report.losses}
    assert reasons == {
        "q.000002.seg": "not a regular file",
        "q.000005.seg": "neither its header nor any record verifies",
    }
    kept = {os.path.basename(path) for path in report.kept_files}
    assert kept == {f"q.00000{number}.seg.salvaged" for number in (2, 4, 5)}
    assert (tmp_path / "q.000004.seg.salvaged").is_dir()


def other(directory: Path, count: int = 3) -> Path:
    many_segments(directory / "other", count)
    return directory / "other"


def test_a_segment_of_another_log_among_ours(tmp_path: Path) -> None:
    many_segments(tmp_path / "ours", 3)
    shutil.copy(segment(other(tmp_path), 2), segment(tmp_path / "ours", 2))
    report = saved(tmp_path / "ours")
    assert lost(report) == [("q.000002.seg", 128, "a segment of another queue")]
    assert keys(tmp_path / "ours") == [0, 2]


@pytest.mark.parametrize("witness", ["snapshot", "page", "newest"])
def test_one_segment_of_each_of_two_logs(tmp_path: Path, witness: str) -> None:
    ours = tmp_path / "ours"
    log = long(ours, 2)
    log.close((lambda writer: writer.write("state")) if witness == "snapshot" else None)
    number, foreign = (1, 2) if witness != "newest" else (2, 1)
    shutil.copy(segment(other(tmp_path), foreign), segment(ours, foreign))
    if witness != "page":
        os.unlink(ours / "q.lock")
    report = saved(ours)
    assert "a segment of another queue" in " ".join(report.notes)
    assert keys(ours) == [number]


def test_a_segment_under_the_number_of_another(tmp_path: Path) -> None:
    many_segments(tmp_path, 4)
    shutil.copy(segment(tmp_path, 3), segment(tmp_path, 2))
    report = saved(tmp_path)
    assert [loss[0] for loss in lost(report)] == ["q.000002.seg"]
    assert keys(tmp_path) == [0, 2, 3]


def test_a_retirement_in_a_damaged_segment_counts(tmp_path: Path) -> None:
    log = long(tmp_path, 3)
    with locked(log):
        log.append([part(2, "kept", kind=MOVE)])
    kept = {number: segment(tmp_path, number).read_bytes() for number in (1, 2)}
    with locked(log):
        log.retire(3, {})
    log._release_files()
    for number, raw in kept.items():
        segment(tmp_path, number).write_bytes(raw)
    flip(segment(tmp_path, 3), 128 + 70)
    report = saved(tmp_path)
    assert [loss[:2] for loss in lost(report)] == [("q.000003.seg", 128)]
    assert keys(tmp_path) == [2]
    assert not segment(tmp_path, 1).exists()


@pytest.mark.parametrize("durable", [0, 1, 2])
def test_a_lost_header_where_another_lineage_begins(tmp_path: Path, durable: int) -> None:
    log = open_log(tmp_path)
    for key in (1, 2):
        put(log, key, durable=key <= durable)
    log.control.words[ctl.POISON] = ctl.YES
    log._release_files()
    log = open_log(tmp_path)
    put(log, 3)
    with locked(log):
        log.seal()
    put(log, 4)
    log._release_files()
    overwrite(segment(tmp_path, 2), 0, bytes(128))
    report = saved(tmp_path)
    assert lost(report) == []
    assert keys(tmp_path) == [1, 2, 3, 4], "each once, though some are in both segments"


def test_a_lost_header_and_first_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(12):
        put(log, key, text="x" * 10_000)
    with locked(log):
        log.seal()
    place = log.find(6, 6)[0]
    assert (place.segment.number, place.offset) == (2, 128)
    log._release_files()
    overwrite(segment(tmp_path, 2), 0, bytes(300))
    report = saved(tmp_path)
    assert [loss[:2] for loss in lost(report)] == [("q.000002.seg", 128)]
    assert keys(tmp_path) == [key for key in range(12) if key != 6]


def test_all_headers_lost(tmp_path: Path) -> None:
    many_segments(tmp_path, 3)
    for number in (1, 2, 3):
        overwrite(segment(tmp_path, number), 0, bytes(128))
    assert lost(saved(tmp_path)) == []
    assert keys(tmp_path) == [0, 1, 2]


def test_a_row_of_segments_of_which_nothing_is_left(tmp_path: Path) -> None:
    many_segments(tmp_path, 6)
    for number in (2, 3, 4):
        segment(tmp_path, number).unlink()
    report = saved(tmp_path)
    assert {loss[0] for loss in lost(report)} <= {f"q.00000{number}.seg" for number in (2, 3, 4)}
    assert report.bytes_lost > 100_000
    assert keys(tmp_path) == [0, 4, 5]


@pytest.mark.parametrize(
    "ranges, end, kept",
    [
        ([(128, 200), (200, 272)], 272, [(128, 200), (200, 272)]),
        ([(128, 200), (272, 344)], 344, [(128, 200), (272, 344)]),
        ([(128, 200), (264, 336)], 400, [(128, 200)]),
        ([(200, 272)], 272, [(200, 272)]),
        ([(192, 272)], 344, []),
        ([(128, 200), (200, 272)], 264, []),
        ([(128, 200), (200, 272)], 272 + 64, [(128, 200)]),
        ([(128, 200), (200, 272)], 272 + 72, [(128, 200), (200, 272)]),
        ([(128, 200), (200, 272)], 200 + 8, []),
        ([], 128, []),
    ],
)
def test_every_hole_has_room_for_a_record(
    ranges: list[tuple[int, int]], end: int, kept: list[tuple[int, int]]
) -> None:
    assert survey._framable(ranges, end) == kept


def test_a_repair_that_ended_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = small_log(tmp_path, close=True)
    flip(segment(tmp_path), ends[2] + 70)
    with monkeypatch.context() as patch:
        patch.setattr(files, "publish", refuse)
        with pytest.raises(StorageError, match="the salvage failed"):
            salvage(tmp_path, "q", boot_id="boot-1")
    report = saved(tmp_path)
    assert len(report.losses) == 1
    assert keys(tmp_path) == [key for key, _ in expected(6) if key != 4]
