"""Files that are missing, or that are not what their name says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nobroker_mmap import format as fmt
from nobroker_mmap.catalog import drop_log
from nobroker_mmap.errors import CorruptLogError, StorageError
from tests.unit.mmap.harness import (
    content,
    copy_of,
    expected,
    flip,
    follow,
    many_segments,
    open_log,
    overwrite,
    put,
    segment,
    small_log,
    text_of,
)


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


def checked(directory: Path) -> list[tuple[str, str]]:
    log = open_log(directory)
    found = [(finding.severity, finding.path) for finding in log.check()]
    log.close()
    return found


def test_the_directory_of_processes_goes_with_the_log(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    place = Path(fmt.Names(str(tmp_path), "q").processes)
    place.mkdir()
    (place / "one.json").write_text("{}")
    assert checked(tmp_path) == []
    drop_log(str(tmp_path), "q")
    assert list(tmp_path.iterdir()) == []


def test_something_else_in_the_place_of_that_directory_is_told_and_left(tmp_path: Path) -> None:
    small_log(tmp_path, close=True)
    place = Path(fmt.Names(str(tmp_path), "q").processes)
    place.write_bytes(b"precious")
    assert checked(tmp_path) == [("note", str(place))]
    drop_log(str(tmp_path), "q")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"precious"]
