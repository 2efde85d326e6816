"""Faults that are planted in the product, to show that the harness sees them. Each is a promise not kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from nobroker.state import outcomes
from nobroker.state.gates import Gate, Rate
from nobroker.state.taking import Taking
from nobroker.stores.lookup import Lookup
from nobroker.stores.moving import Mover
from nobroker.stores.session import Session
from nobroker_mmap import appending, files, locking
from nobroker_mmap.appending import Appending
from nobroker_mmap.control import ControlPage
from nobroker_mmap.reading import Reading
from nobroker_mmap.segment import Segment


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


def group_without_end() -> None:
    """The last record of a group does not say that it is the last."""
    appending._LAST = 0  # type: ignore[misc]


def group_that_ends_early() -> None:
    """Each record of a group says that it is the last, so a part of a group counts."""
    encode = appending.encode
    appending.encode = lambda kind, flags, *more: encode(kind, flags | 1, *more)


def leftovers_stay() -> None:
    """Neither zeros behind a group, nor in the place of what was cut. One of them is enough for the next
    opening: no leftover passes for a record, since each names its place and the checksum before it.
    """
    appending._TERMINATOR = b""  # type: ignore[misc]
    files.zero_range = lambda *args: None


def lock_not_taken() -> None:
    """Who does not get the lock goes on without it."""
    real = locking.try_lock
    locking.try_lock = lambda fd, flags=locking.EXCLUSIVE | locking.NON_BLOCKING: real(fd, flags) or True


def lock_released_early() -> None:
    """The lock is given back just before the group is written."""
    put = Appending._put

    def after_release(self: Any, *group: Any) -> None:
        locking.unlock(self._lock_fd)
        put(self, *group)

    Appending._put = after_release  # type: ignore[method-assign]


def sizes_not_looked_at() -> None:
    """Mapped files are read without a look whether they are still as long as they were."""
    Segment.read = lambda self, offset, length: self.map()[offset : offset + length]  # type: ignore[method-assign]


def token_not_compared() -> None:
    """Whoever held a job once may end its lease."""
    resolve = Lookup.resolve
    Lookup.resolve = lambda self, job: (resolve(self, job)[0], None)  # type: ignore[method-assign]


def jobs_dropped() -> None:
    """Compaction lets jobs go that are still needed."""
    Mover._may_go = lambda self, seq, code, now: True  # type: ignore[method-assign]


def one_too_many() -> None:
    """A key lets one more through than it may."""
    Gate.room = lambda self: self.limit + 1 - len(self.held) - self.taking  # type: ignore[method-assign]


def rate_forgotten() -> None:
    """Leases count in a rate for half of its time."""
    forget = Rate.forget

    def too_soon(self: Rate) -> None:
        whole, self.duration = self.duration, self.duration // 2
        forget(self)
        self.duration = whole

    Rate.forget = too_soon  # type: ignore[method-assign]


def lane_without_end() -> None:
    """A lane with a limit is never full."""
    Taking._lane_rooms = lambda self: {}  # type: ignore[method-assign]


def not_alone() -> None:
    """A job that is to run alone does not wait for the others."""
    Taking._may_run_alone = lambda self, group, lanes: True  # type: ignore[method-assign]


def slot_given_back_early() -> None:
    """Whoever renews a lease gives the slot back."""
    renew = outcomes._renew

    def renewed(state: Any, lease: Any, first: int, last: int, deadline: int) -> None:
        renew(state, lease, first, last, deadline)
        for gate in state.ready.gates.values():
            gate.held -= set(range(first, last + 1))
            state.ready._freed(gate)

    outcomes._renew = renewed


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
        group_without_end,
        group_that_ends_early,
        leftovers_stay,
        lock_not_taken,
        lock_released_early,
        sizes_not_looked_at,
        token_not_compared,
        jobs_dropped,
        one_too_many,
        rate_forgotten,
        lane_without_end,
        not_alone,
        slot_given_back_early,
    )
}

PLANTED_IN: tuple[tuple[Any, str], ...] = (
    (files, "sync_data"),
    (files, "sync_directory"),
    (files, "zero_range"),
    (files, "preallocate"),
    (appending, "_LAST"),
    (appending, "encode"),
    (appending, "_TERMINATOR"),
    (Session, "_reserve"),
    (Reading, "ends_closed"),
    (ControlPage, "valid"),
    (Mover, "_may_go"),
)
"""What has to be put back where a plant is used in the process of the test."""

_PROGRAM = """
import runpy, sys
from tests.faults.plants import PLANTS
PLANTS[{plant!r}]()
sys.argv[0] = {program!r}
runpy.{run}({program!r}, run_name="__main__", {more})
"""


def planted_program(where: Path, plant: str, program: Path | str) -> Path:
    """A program, or a module by its name, with a fault planted before it begins."""
    module = isinstance(program, str)
    run, more = ("run_module", "alter_sys=True") if module else ("run_path", "")
    made = where / f"{plant}.py"
    made.write_text(_PROGRAM.format(plant=plant, program=str(program), run=run, more=more))
    return made
