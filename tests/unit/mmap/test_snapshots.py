"""Snapshots as files: what is believed, and what a failure to write one costs."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from xxhash import xxh3_64

from nobroker_mmap import files, snapshot
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import QueueClosedError, StorageError
from nobroker_mmap.snapshot import SnapshotWriter
from tests.unit.mmap.harness import assert_clean, content, follow, open_log, put

ROW = (5).to_bytes(8, "little") + ((128 << 32) | 1).to_bytes(8, "little")
FIRST = {"kind": "nobroker", "floor": 1, "segment": 2, "e": 1, "m": 0, "rows": ROW}


def written(path: Path, body: bytes, *, log_id: int = 9, version: int = fmt.SNAPSHOT_VERSION) -> str:
    """A file whose own checksum fits, whatever is in it."""
    fields = (fmt.SNAPSHOT_MAGIC, version, log_id, 3, 1000, 77, len(body))
    path.write_bytes(snapshot._seal(fields, xxh3_64(body)) + body)
    return str(path)


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    body = (
        msgpack.packb(FIRST) + msgpack.packb([1, 2]) + msgpack.packb("\ud800", unicode_errors="surrogatepass")
    )
    found, why = snapshot.load(written(tmp_path / "snap", body), 9)
    assert why is None
    assert found is not None
    assert (found.lsn, found.checksum, found.lineage, found.floor, found.segment) == (1000, 77, 3, 1, 2)
    assert found.table.row_of(5) == (128, 0)
    assert list(found.objects()) == [[1, 2], "\ud800"]
    assert list(found.objects()) == [[1, 2], "\ud800"], "as often as wanted"


@pytest.mark.parametrize(
    "body, why",
    [
        (b"", "does not begin"),
        (b"\xc1", "does not begin"),
        (msgpack.packb(5), "does not begin"),
        (msgpack.packb({}), "does not begin"),
        (msgpack.packb({**FIRST, "floor": "one"}), "does not begin"),
        (msgpack.packb({**FIRST, "segment": None}), "does not begin"),
        (msgpack.packb({**FIRST, "e": 2}), "rows in the snapshot"),
        (msgpack.packb({**FIRST, "m": 1}), "rows in the snapshot"),
    ],
)
def test_a_checksum_alone_is_not_enough(tmp_path: Path, body: bytes, why: str) -> None:
    found, said = snapshot.load(written(tmp_path / "snap", body), 9)
    assert found is None
    assert said is not None
    assert why in said


def test_other_reasons(tmp_path: Path) -> None:
    path, body = tmp_path / "snap", msgpack.packb(FIRST)
    assert snapshot.load(str(path), 9) == (None, None)
    assert snapshot.load(written(path, body, log_id=8), 9)[1] == "the snapshot is of another log"
    assert snapshot.load(written(path, body, version=9), 9)[1] == "the snapshot is of another kind or version"
    path.write_bytes(path.read_bytes()[:63])
    assert snapshot.load(str(path), 9)[1] == "the snapshot is too short"
    written(path, body)
    path.write_bytes(path.read_bytes() + b"\0")
    assert snapshot.load(str(path), 9)[1] == "the snapshot does not verify"
    path.unlink()
    path.mkdir()
    assert "cannot be read" in str(snapshot.load(str(path), 9)[1])


def test_a_large_one_is_written_in_slices(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    writer = log.begin_snapshot()
    assert writer.lsn == log.position
    objects = [["x" * 100_000, number] for number in range(9)]
    for item in objects:
        writer.write(item)
    (temporary,) = tmp_path.glob("*.tmp")
    assert temporary.stat().st_size > 500_000, "not all at the end"
    assert writer.commit()
    log.close()
    log = open_log(tmp_path, load=False)
    assert list(log.load_snapshot() or ()) == objects
    log.close()
    assert_clean(tmp_path)


def test_it_ends_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    writer = log.begin_snapshot()
    assert writer.commit()
    with pytest.raises(ValueError, match="finished"):
        writer.commit()
    with pytest.raises(ValueError, match="finished"):
        writer.write("x" * 2**20)
    writer.abort()
    aborted = log.begin_snapshot()
    aborted.abort()
    aborted.abort()
    assert list(tmp_path.glob("*.tmp")) == []
    assert (tmp_path / "q.snap").exists()
    log.close()
    assert_clean(tmp_path)


def test_what_became_useless_meanwhile_is_not_put_in_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    older, lost = log.begin_snapshot(), log.begin_snapshot()
    put(log, 2)
    newer = log.begin_snapshot()
    newer.write("newer")
    assert newer.commit()
    assert not older.commit(), "a newer one is there"
    log.control.words[11] = 0
    for path in tmp_path.glob("q.snap.*.tmp"):
        path.unlink()
    assert not lost.commit(), "taken for a leftover, and removed"
    closed, closing = log.begin_snapshot(), log.begin_snapshot()
    closing._settle = lambda end: log.close()
    assert not closing.commit(), "closed at the last moment"
    with pytest.raises(QueueClosedError):
        closed.commit()
    assert list(tmp_path.glob("*.tmp")) == []
    log = open_log(tmp_path, load=False)
    assert list(log.load_snapshot() or ()) == ["newer"]
    assert follow(log) == []
    log.close()
    assert_clean(tmp_path)


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


def begin(patch: pytest.MonkeyPatch) -> None:
    create = files.create

    def refuse(path: str) -> int:
        if path.endswith(".tmp"):
            no_space()
        return create(path)

    patch.setattr(files, "create", refuse)


def end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "publish", no_space)


@pytest.mark.parametrize("when", [begin, end])
def test_a_close_without_its_snapshot_is_a_clean_close(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    when: Callable[[pytest.MonkeyPatch], None],
) -> None:
    log = open_log(tmp_path)
    put(log, 1)

    def fill(writer: Any) -> None:
        assert isinstance(writer, SnapshotWriter)
        writer.write("state")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "nobroker_mmap"):
        when(patch)
        log.close(fill)
    assert "snapshot was not written" in caplog.text
    assert not (tmp_path / "q.snap").exists()
    assert list(tmp_path.glob("q.snap*")) == []
    log = open_log(tmp_path, boot_id="boot-2")
    assert not log.unproven
    log.close()
    assert content(tmp_path) == [(1, "v1")]
    assert_clean(tmp_path)


def test_one_that_cannot_be_begun_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    with monkeypatch.context() as patch:
        begin(patch)
        with pytest.raises(StorageError, match="no space") as caught:
            log.begin_snapshot()
    assert caught.value.path == str(tmp_path / "q.snap")
    log.close()
    assert_clean(tmp_path)


def test_when_one_is_due(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_size=16 * fmt.MIB)
    reader = open_log(tmp_path, read_only=True)
    text = "x" * (fmt.MIN_SNAPSHOT_GROWTH // 4)
    for key in range(3):
        put(log, key, text=text)
        assert not log.snapshot_due()
    put(log, 3, text=text)
    assert log.snapshot_due()
    assert log.snapshot_due()
    assert not reader.snapshot_due()
    writer = log.begin_snapshot()
    writer.write("x" * 2 * fmt.MIN_SNAPSHOT_GROWTH)
    assert writer.commit()
    for key in range(4, 12):
        assert not log.snapshot_due(), "not before the log grew by the size of the last one"
        put(log, key, text=text)
    put(log, 12, text=text)
    assert log.snapshot_due()
    os.unlink(tmp_path / "q.snap")
    other = open_log(tmp_path, segment_size=16 * fmt.MIB)
    assert other.snapshot_due(), "the last one is not there any more"
    for handle in (log, other, reader):
        handle.close()
    assert not log.snapshot_due()
    assert_clean(tmp_path)
