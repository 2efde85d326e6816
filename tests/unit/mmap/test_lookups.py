"""Looking things up while segments leave, are removed or are damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import msgpack
import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import files
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import CorruptLogError, Restart
from tests.unit.mmap.harness import (
    MOVE,
    PUT,
    assert_clean,
    flip,
    follow,
    keys_of,
    locked,
    open_log,
    part,
    put,
    segment,
    text_of,
)
from tests.unit.mmap.test_handles import refuse
from tests.unit.mmap.test_moments import long


def test_files_that_go_under_a_reader(tmp_path: Path) -> None:
    log = long(tmp_path)
    reader = open_log(tmp_path)
    follow(reader)
    lsn = reader.segments()[0].base
    for path in (segment(tmp_path, 1), tmp_path / "q.000001.idx"):
        path.rename(tmp_path / path.name.replace("q.", "aside."))
    looks = (
        lambda: text_of(reader, 1),
        lambda: reader.read_at(lsn),
        lambda: reader.segments(),
        lambda: reader.keys_of(1),
    )
    for look in looks:
        reader._chain._forget_index()
        reader._chain.maps.clear()
        with pytest.raises(CorruptLogError) as caught:
            look()
        assert caught.value.path == str(segment(tmp_path, 1))
    for name in ("aside.000001.seg", "aside.000001.idx"):
        (tmp_path / name).rename(tmp_path / name.replace("aside.", "q."))
    assert text_of(reader, 1) == "x" * 40_000 + "1"
    reader.close()
    log.close()
    assert_clean(tmp_path)


def test_segments_that_left_mean_restart(tmp_path: Path) -> None:
    log = long(tmp_path)
    reader = open_log(tmp_path)
    follow(reader)
    for path in tmp_path.glob("*.idx"):
        path.unlink()
    with locked(log):
        log.append([part(2, "kept", kind=MOVE)])
        log.retire(4, {})
    reader._chain._forget_index()
    reader._chain.maps.clear()
    piece = (reader._chain.segments[1], 128)
    looks = (
        lambda: reader.find(1, 2),
        lambda: reader.find_one(1),
        lambda: reader.read(piece),
        lambda: reader.segments(),
        lambda: reader.keys_of(1),
        lambda: reader.moved_since(1, 1, 9),
    )
    for look in looks:
        with pytest.raises(Restart):
            look()
    for lsn in (0, log.position + 10**9):
        with pytest.raises(CorruptLogError, match="no segment holds LSN"):
            log.read_at(lsn)
    assert follow(reader) == [(2, "kept2")]
    put(reader, 9)
    with pytest.raises(Restart):
        log.read_at(0)
    reader.close()
    log.close()
    assert_clean(tmp_path)


@pytest.mark.parametrize("sealed", [False, True])
def test_one_key_at_a_time(tmp_path: Path, sealed: bool) -> None:
    log = open_log(tmp_path)
    for key in range(10, 40, 3):
        put(log, key, count=2)
    if sealed:
        with locked(log):
            log.seal()
    newer = 0
    for handle in (log, open_log(tmp_path)):
        follow(handle)
        for moved in (False, True):
            for key in (12, 10, 11, 13, 14, 37, 38, 39, 9, 30, 31, 13):
                piece = handle.find_one(key)
                if key % 3 == 0 or key < 10 or key > 38:
                    assert piece is None
                else:
                    assert piece is not None
                    assert (piece.first, piece.last, piece.index) == (key, key, (key - 1) % 3)
                    assert handle.read(piece).head()["s"] + piece.index == key
                    if sealed:
                        assert handle.moved_since(1, key, key) == (newer > 0 and key in (13, 14))
            if not moved:
                newer += 1
                put(handle, 13, text=f"newer{newer}-", count=2, kind=MOVE)
                assert text_of(handle, 14) == f"newer{newer}-14"
    handle.close()
    log.close()
    assert_clean(tmp_path)


def test_what_is_known_of_segments_ahead(tmp_path: Path) -> None:
    log = long(tmp_path)
    log.close()
    log = open_log(tmp_path)
    seen = [info.number for _ in log.records() for info in log.segments()[-1:]]
    assert seen == [1, 2, 3, 4]
    assert log.front_number == 1
    assert log.path == str(tmp_path / "q")
    assert [(info.number, info.first_key, info.last_key) for info in log.segments()] == [
        (key, key, key) for key in (1, 2, 3, 4)
    ]
    log.close()


def test_leftovers_of_a_retirement_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = long(tmp_path)
    unlink = files.unlink

    def stuck(path: str) -> bool:
        return refuse() if path.endswith("1.seg") else unlink(path)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "nobroker_mmap"), locked(log):
        patch.setattr(files, "unlink", stuck)
        log.retire(3, {})
    assert "q.000001.seg: a leftover that could not be removed" in caplog.text
    assert sorted(path.name[-5] for path in tmp_path.glob("*.seg")) == ["1", "3", "4"]
    caplog.clear()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "nobroker_mmap"), locked(log):
        patch.setattr(files, "entries", refuse)
        log.retire(4, {})
    assert "may come back as leftovers" in caplog.text
    log.close()
    open_log(tmp_path).close()
    assert sorted(path.name[-5] for path in tmp_path.glob("*.seg")) == ["4"]
    assert_clean(tmp_path)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_snapshot_of_what_is_kept_stays(tmp_path: Path, sealed: bool) -> None:
    log = long(tmp_path)
    writer = log.begin_snapshot()
    writer.write("at 4")
    assert writer.commit()
    known = log.control.words[ctl.SNAPSHOT]
    with locked(log):
        if sealed:
            log.seal()
            log.append([part(5)])
            log.seal()
        log.retire(log.active_number, {})
    assert log.control.words[ctl.SNAPSHOT] == (0 if sealed else known)
    log._release_files()
    log = open_log(tmp_path, load=False)
    assert list(log.load_snapshot() or ()) == ([] if sealed else ["at 4"])
    log.close()
    assert_clean(tmp_path)


def test_many_segments_are_looked_at_with_few_tables(tmp_path: Path) -> None:
    count = 20
    log = long(tmp_path, count)
    log.close()
    log = open_log(tmp_path)
    follow(log)
    assert keys_of(log.find(0, 100)) == list(range(1, count + 1))
    assert len(log._chain._tables) <= 16
    assert [text_of(log, key) is not None for key in (1, count // 2, count)] == [True] * 3
    log.close()
    assert_clean(tmp_path)


def test_damage_is_not_taken_for_an_end_of_the_rows(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in range(400):
        put(log, key, text="x" * 200)
    piece = log.find(3, 3)[0]
    number = log.segments()[1].number
    flip(Path(piece.segment.path), piece.offset + 70)
    log.close()
    for path in tmp_path.glob("*.idx"):
        path.unlink()
    reader = open_log(tmp_path, read_only=True)
    reader._chain.reading = reader._chain.newest
    with pytest.raises(CorruptLogError) as caught:
        reader.keys_of(1)
    assert (caught.value.path, caught.value.offset) == (piece.segment.path, piece.offset)
    assert reader.keys_of(number)[0][0] > 3
    assert not (tmp_path / "q.000001.idx").exists()
    reader.close()


def test_rows_that_an_application_does_not_find(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with locked(log):
        log.append([(PUT, 0, b"\x80", b"\x90", [])])
    log.close()
    log = open_log(tmp_path)
    with pytest.raises(CorruptLogError, match="does not fit"):
        follow(log)
    log.close()


@pytest.mark.parametrize("first, count", [(1, 200_000), (-1, 1), (2**64 - 1, "many")])
def test_rows_that_cannot_be(tmp_path: Path, first: int, count: int | str) -> None:
    log = open_log(tmp_path)
    with locked(log):
        log.append([(PUT, 0, msgpack.packb({"s": first, "n": count}), b"\x90", [])])
    log._release_files()
    reader = open_log(tmp_path, read_only=True)
    assert follow(reader) == []
    assert "does not fit" in str(reader.damage)
    reader.close()


def test_a_retirement_that_names_no_segment(tmp_path: Path) -> None:
    for floor in (b"\x00", b"\x05", b"\xa1x"):
        directory = tmp_path / floor.hex()
        log = open_log(directory)
        with locked(log):
            log.append([(fmt.RETIRE, 0, b"\x81\xa1f" + floor, b"", [])])
        log._release_files()
        with pytest.raises(CorruptLogError, match="names no segment"):
            open_log(directory)
