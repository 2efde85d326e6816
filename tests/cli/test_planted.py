"""Links and special files under the names of ours: never followed, never written, never waited for."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nobroker import StorageError, list_queues

from .conftest import CommandLine
from .harm import plant

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs links, FIFOs and sockets")

KINDS = ["symlink", "dangling symlink", "directory", "fifo", "socket", "device"]
# Without these nothing can be written; the others are caches, or not needed.
NEEDED = ["default.000001.seg", "default.000002.seg", "default.lock", "default.sync", "default.open"]
OTHERS = [
    "default.000002.new", "default.000007.seg", "default.000001.idx", "default.snap", "default.manifest",
    "default.wake", "default.snap.1-1-1.tmp",
]  # fmt: skip
WRITING = [["enqueue", "x"], ["lease", "--wait", "0.02", "--count", "9"], ["compact"], ["pause"], ["resume"]]
LOOKING = [["check"], ["recover"], ["stats"], ["list"], ["inspect"], ["queues", "--long"]]


def _planted(line: CommandLine, name: str, kind: str, tmp_path: Path) -> tuple[Path, Path]:
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root makes device files")
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious" * 10_000)
    with line.queue(segment_size=65536) as queue:
        for number in range(5):
            queue.enqueue(number, job_id=f"job-{number}")
    path = line.dir / name
    short = Path(os.path.relpath(path))  # names of sockets are short
    try:
        plant(short, kind, outside)
    except PermissionError:
        pytest.skip(f"this place does not allow a {kind}")
    return path, outside


def _clear(line: CommandLine, path: Path) -> None:
    """Take it away, so that the queue can be looked at in the end."""
    for found in [path, *line.dir.glob("*.salvaged*")]:
        if found.is_dir() and not found.is_symlink():
            found.rmdir()
        elif (found.is_symlink() or found.exists()) and not stat.S_ISREG(found.lstat().st_mode):
            found.unlink()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NEEDED)
def test_where_a_file_is_needed(
    nobroker: CommandLine, name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, outside = _planted(nobroker, name, kind, tmp_path)
    before = path.lstat()
    assert nobroker("check").code == 1
    for words in LOOKING:
        assert nobroker(*words).code in (0, 1), words
    for words in [*WRITING, ["drop", "default", "--yes"]] if name.endswith(".lock") else WRITING:
        ran = nobroker(*words)
        assert ran.code == 1, words
        ran.said_in_one_line()
        assert "not a regular file" in ran.err
        assert path.name in ran.err
    assert (path.lstat().st_ino, path.lstat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert nobroker("recover", "--salvage").code in (0, 1)
    assert outside.read_bytes() == b"precious" * 10_000
    assert not (tmp_path / "nowhere").exists()
    _clear(nobroker, path)
    if name != "default.000001.seg":
        assert nobroker("enqueue", "x").code == 0
        assert nobroker.json("stats")["total"] == 6
    else:
        assert list_queues(nobroker.dir) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OTHERS)
def test_where_no_file_is_needed(
    nobroker: CommandLine, name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, outside = _planted(nobroker, name, kind, tmp_path)
    for words in [*LOOKING, *WRITING, *LOOKING]:
        ran = nobroker(*words)
        if name.endswith(".new") and kind == "directory" and words == ["compact"]:
            continue  # it needs the next segment, whose place is taken: see below
        assert ran.code == 0 or (words in (["check"], ["inspect"]) and ran.code == 1), (words, ran)
    with nobroker.queue(segment_size=65536) as queue:  # new segments, and what is derived from them
        if name.endswith(".new") and kind == "directory":
            with pytest.raises(StorageError, match="move it away") as caught:
                queue.enqueue_many(["x" * 30_000] * 8)
            assert caught.value.outcome == "not written"
        else:
            queue.enqueue_many(["x" * 30_000] * 8)
            queue.ack_many(queue.lease(8))
            queue.compact()
        assert queue.enqueue("after that").created
    assert nobroker("recover", "--salvage").code == 0
    assert nobroker.json("stats")["leased"] == 6
    assert nobroker.json("stats")["ready"] == 1
    assert outside.read_bytes() == b"precious" * 10_000
    assert not (tmp_path / "nowhere").exists()
    _clear(nobroker, path)
