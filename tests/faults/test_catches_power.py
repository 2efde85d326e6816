"""The harness for power cuts, failing disks and kills sees the faults that are planted here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import NobrokerError
from nobroker.stores.session import Session
from nobroker_mmap import files
from nobroker_mmap.control import ControlPage
from nobroker_mmap.reading import Reading
from tests.faults.kill_child import Children
from tests.faults.plants import PLANTS
from tests.faults.test_failing_disk import FAULTS, fail_everywhere
from tests.faults.test_full_disk import fill
from tests.faults.test_kill_points import Killer, kill_everywhere
from tests.faults.test_power_cut import cut_power
from tests.faults.test_power_loss import lose_power
from tests.faults.trial import Options, Trial

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the models are of a POSIX system")
SEEN = (AssertionError, NobrokerError)
PLANTED_IN: tuple[tuple[Any, str], ...] = (
    (files, "sync_data"),
    (files, "sync_directory"),
    (files, "zero_range"),
    (files, "preallocate"),
    (Session, "_reserve"),
    (Reading, "ends_closed"),
    (ControlPage, "valid"),
)


@pytest.fixture
def plant() -> Iterator[Callable[[str], None]]:
    """Plants a fault for the time of one test."""
    before = [(where, name, where.__dict__[name]) for where, name in PLANTED_IN]
    yield lambda name: PLANTS[name]()
    for where, name, value in before:
        setattr(where, name, value)


def planted_trial() -> Trial:
    return Trial("planted", "", Options())


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("no_data_sync", "verbs"),
        ("no_directory_sync", "verbs"),
        ("adopted_without_sync", "deaths"),
        ("reservation_not_synced", "unsynced"),
        ("clean_end_believed", "openings"),
        ("page_of_another_boot_believed", "openings"),
    ],
)
def test_power_loss_is_seen(
    name: str, work: str, plant: Callable[[str], None], quick_directory: Path
) -> None:
    plant(name)
    with pytest.raises(SEEN):
        lose_power(work, planted_trial(), quick_directory, 4_000)


@pytest.mark.parametrize(
    ("name", "call"), [("failed_sync_forgotten", "sync-EIO-once"), ("failed_write_left", "write-EIO-once")]
)
def test_a_failing_disk_is_seen(
    name: str, call: str, plant: Callable[[str], None], quick_directory: Path
) -> None:
    fault = next(fault for fault in FAULTS if str(fault) == call)
    plant(name)
    with pytest.raises(SEEN):
        fail_everywhere(fault, planted_trial(), quick_directory)


def test_an_early_return_is_seen(quick_directory: Path) -> None:
    killer = Killer("returned_early")
    try:
        with pytest.raises(AssertionError, match="lost"):
            kill_everywhere("append", planted_trial(), killer, quick_directory)
    finally:
        killer.close()


def test_a_real_power_cut_without_sync_is_seen(tmp_path: Path) -> None:
    children = Children("no_data_sync")
    try:
        with pytest.raises(SEEN, match=r"lost|back|damaged"):
            cut_power(planted_trial(), children, tmp_path, 40)
    finally:
        children.close()


def test_space_that_was_not_reserved_is_seen(tmp_path: Path) -> None:
    done = fill(tmp_path / "disk", 5, "1/0", "nothing_reserved")
    assert done.returncode == 1
    assert "Error" in done.stderr
