"""Small file systems of one's own, where that is allowed."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(options: list[str], directory: Path) -> None:
    """Mount, or skip the test and say why."""
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    done = subprocess.run(["mount", *options, str(directory)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")


def unmount(directory: Path) -> None:
    """Unmount; whoever used it may take a moment to end."""
    for _ in range(100):
        done = subprocess.run(["umount", str(directory)], capture_output=True, text=True)
        if not done.returncode:
            return
        time.sleep(0.05)
    raise AssertionError(done.stderr)


def unmount_at_last(directory: Path) -> None:
    """Unmount, also when an error that is on its way still holds files in it: then they go with it."""
    subprocess.run(["umount", "-l", str(directory)], check=True, capture_output=True)


@contextmanager
def small_tmpfs(directory: Path, size: int) -> Iterator[None]:
    """A file system in memory of so many bytes."""
    mount(["-t", "tmpfs", "-o", f"size={size}", "tmpfs"], directory)
    try:
        yield
    finally:
        unmount_at_last(directory)


def ext4_image(path: Path, mebibytes: int) -> None:
    """A file with an empty ext4 in it, or a skip."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    with path.open("wb") as file:
        file.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], check=True, capture_output=True)
