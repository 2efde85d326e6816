"""Faults that are planted in the product, to show that the harness sees them. Each is a promise not kept."""

from __future__ import annotations

import sys
from typing import Any

from nobroker.stores.session import Session
from nobroker_mmap import appending, files
from nobroker_mmap.control import ControlPage
from nobroker_mmap.reading import Reading


def no_data_sync() -> None:
    """What was appended is not synced."""
    files.sync_data = lambda fd: None


def no_directory_sync() -> None:
    """Names are not synced."""
    files.sync_directory = lambda path: None


def adopted_without_sync() -> None:
    """Whoever goes on in a segment that another one made does not sync its name."""
    synced = files.sync_directory

    def sync_directory(path: str) -> None:
        if sys._getframe(1).f_code.co_name not in ("_settle", "open_writable"):
            synced(path)

    files.sync_directory = sync_directory


def reservation_not_synced() -> None:
    """Numbers are given out before their reservation is durable."""
    reserve = Session._reserve

    def unsynced(self: Any, *args: Any) -> None:
        log = self.log
        log.sync_now = lambda: None
        try:
            reserve(self, *args)
        finally:
            del log.sync_now

    Session._reserve = unsynced  # type: ignore[method-assign]


def clean_end_believed() -> None:
    """Nothing durable follows a CLOSE record before numbers are given out."""
    Reading.ends_closed = property(lambda self: False)  # type: ignore[assignment, method-assign]


def page_of_another_boot_believed() -> None:
    """What the control page says is taken to be true after a boot."""
    ControlPage.valid = lambda self, boot: self.sound()  # type: ignore[method-assign]


def failed_sync_forgotten() -> None:
    """A sync that failed is tried again, and then all is well."""
    sync = files.sync_data

    def again(fd: int) -> None:
        try:
            sync(fd)
        except OSError:
            sync(fd)

    files.sync_data = again


def failed_write_left() -> None:
    """What a failed write left is not overwritten."""
    appending.files.zero_range = lambda fd, start, stop: None


def nothing_reserved() -> None:
    """Segments are as large as they should be, but have no space of their own."""
    files.preallocate = files.resize


PLANTS = {
    plant.__name__: plant
    for plant in (
        no_data_sync,
        no_directory_sync,
        adopted_without_sync,
        reservation_not_synced,
        clean_end_believed,
        page_of_another_boot_believed,
        failed_sync_forgotten,
        failed_write_left,
        nothing_reserved,
    )
}
