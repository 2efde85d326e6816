"""What kind of file system a directory is on, from a made-up list of mounts."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from nobroker import Queue
from nobroker_mmap import mounts

REST = "rw,relatime shared:1"


def _table(path: Path, *entries: tuple[str, str]) -> str:
    lines = [
        f"{number} 1 8:{number} / {point} {REST} - {kind} source rw"
        for number, (point, kind) in enumerate(entries)
    ]
    path.write_text("\n".join([*lines, "a line that says nothing", ""]))
    return str(path)


@pytest.fixture
def table(tmp_path: Path) -> str:
    return _table(
        tmp_path / "mounts",
        ("/", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/local\\040disk", "xfs"),
        ("/srvs", "cifs"),
        ("/layer", "ext4"),
        ("/layer", "overlay"),
        ("/ram", "tmpfs"),
    )


@pytest.mark.parametrize(
    "directory, kind",
    [
        ("/", "ext4"),
        ("/var/jobs", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/jobs/deep", "nfs4"),
        ("/srv/local disk/jobs", "xfs"),
        ("/srvs/x", "cifs"),
        ("/srvx", "ext4"),
        ("/layer/jobs", "overlay"),
        ("/ram/x", "tmpfs"),
    ],
)
def test_the_deepest_and_latest_mount_counts(table: str, directory: str, kind: str) -> None:
    assert mounts.file_system_of(directory, table) == kind
    doubt = mounts.doubt_about(directory, table)
    assert (doubt is not None) == (kind in ("nfs4", "cifs", "overlay"))
    if doubt is not None:
        assert doubt.file_system == kind
        assert doubt.kind == ("layered" if kind == "overlay" else "network")


def test_links_are_followed(table: str, tmp_path: Path) -> None:
    (tmp_path / "jobs").symlink_to("/srv/jobs")
    assert mounts.file_system_of(str(tmp_path / "jobs"), table) == "nfs4"


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\n - \n1 2 3 4\n"])
def test_where_nothing_can_be_known(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "mounts"
    if content is not None:
        path.write_bytes(content)
    assert mounts.doubt_about("/srv", str(path)) is None


@pytest.mark.skipif(not os.path.exists(mounts.TABLE), reason="no list of mounts here")
def test_the_systems_own_list(tmp_path: Path) -> None:
    assert mounts.file_system_of("/proc/self", mounts.TABLE) == "proc"
    assert mounts.file_system_of(str(tmp_path), mounts.TABLE)


@pytest.mark.parametrize("kind, words", [("nfs4", "use a local disk"), ("overlay", "use a volume")])
def test_one_warning_per_process_and_directory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    words: str,
) -> None:
    monkeypatch.setattr(mounts, "TABLE", _table(tmp_path / "mounts", ("/", "ext4"), (str(tmp_path), kind)))
    with caplog.at_level(logging.INFO, "nobroker.queue"):
        for name in ("a", "b", "a"):
            with Queue(tmp_path / "jobs", name) as queue:
                queue.enqueue(1)
                assert queue.check() == []
    [record] = caplog.records
    assert (record.name, record.levelname) == ("nobroker.queue", "WARNING")
    assert kind in record.getMessage()
    assert words in record.getMessage()
    caplog.clear()
    with Queue(tmp_path / "other"):
        assert len(caplog.records) == 1


def test_no_warning_on_a_local_disk_or_for_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("ext4", "xfs", "btrfs", "tmpfs", "zfs"):
        monkeypatch.setattr(mounts, "TABLE", _table(tmp_path / "mounts", ("/", kind)))
        Queue(tmp_path / kind).close()
    monkeypatch.setattr(mounts, "TABLE", _table(tmp_path / "mounts", ("/", "nfs")))
    Queue(tmp_path / "ext4", read_only=True).close()
    assert caplog.records == []
