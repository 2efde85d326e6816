"""A directory beside the files of a log: made, looked for, removed, and no link followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nobroker_mmap import directories


def test_made_and_removed_with_its_files(tmp_path: Path) -> None:
    path = tmp_path / "made"
    assert not directories.exists(str(path))
    directories.make(str(path))
    directories.make(str(path))
    assert directories.exists(str(path))
    (path / "file").write_text("x")
    assert directories.remove(str(path))
    assert directories.remove(str(path))
    assert not path.exists()


def test_what_is_no_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "made"
    (path / "below").mkdir(parents=True)
    (path / "file").write_text("x")
    assert not directories.remove(str(path))
    assert [entry.name for entry in path.iterdir()] == ["below"]


def test_something_else_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    assert not directories.exists(str(path))
    with pytest.raises(OSError, match="not a directory, and left as it is"):
        directories.make(str(path))
    with pytest.raises(NotADirectoryError):
        directories.remove(str(path))
    assert path.read_text() == "x"


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_link_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "real")
    assert not directories.exists(str(path))
    with pytest.raises(OSError, match="move it away"):
        directories.make(str(path))
