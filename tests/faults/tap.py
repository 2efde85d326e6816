"""Stands between `nobroker_mmap/files.py` and the system, so that a test can note, fail or skip its calls.

Nothing in the product knows of it: while `installed`, the module's own `os` is one that asks a `Calls`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nobroker_mmap import files


class Calls:
    """The calls that change something on the disk, as the system does them. Override what is of interest."""

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        return os.open(path, flags, mode)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        os.posix_fallocate(fd, offset, length)

    def ftruncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def inode(self, fd: int) -> int:
        """What the product takes for the number of an open file."""
        return os.fstat(fd).st_ino


TAPPED = ("open", "posix_fallocate", "ftruncate", "fsync", "replace", "rename", "link", "unlink")


class _System:
    """`os`, but for the calls that are tapped."""

    def __init__(self, calls: Calls) -> None:
        for name in TAPPED:
            setattr(self, name, getattr(calls, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@contextmanager
def installed(calls: Calls) -> Iterator[None]:
    """Have `calls` asked by this process until the end of the block."""
    names = ("os", "_pwrite", "_sync_data", "inode_of")
    before = {name: getattr(files, name) for name in names}
    stand_ins = (_System(calls), calls.pwrite, calls.fdatasync, calls.inode)
    for name, stand_in in zip(names, stand_ins, strict=True):
        setattr(files, name, stand_in)
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(files, name, original)
