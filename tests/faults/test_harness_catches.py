"""A harness that finds nothing may be blind: for each a fault is planted in the product, and must be seen.

The plants that also processes of their own need are in plants.py; the product knows of none.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import nobroker
import nobroker_mmap
from nobroker import NobrokerError
from nobroker.state.ready import ReadyIndex
from nobroker.stores import whole as whole_jobs
from nobroker.stores.moving import Mover
from nobroker_mmap import locking, offsets, opening, record, snapshot
from nobroker_mmap.control import ControlPage
from nobroker_mmap.handle import Handle
from nobroker_mmap.log import Log
from nobroker_mmap.segment import Segment
from tests.faults import test_bit_flips as bit_flips
from tests.faults import test_caches as caches
from tests.faults import test_histories as histories
from tests.faults import test_kill_storm as kill_storm
from tests.faults import test_leaks as leaks
from tests.faults import test_retirement as retirement
from tests.faults import test_stopped_holder as stopped
from tests.faults import test_truncation as truncation
from tests.faults.kill_child import Children
from tests.faults.plants import PLANTED_IN, PLANTS, planted_program
from tests.faults.test_failing_disk import FAULTS, fail_everywhere
from tests.faults.test_full_disk import fill
from tests.faults.test_kill_points import Killer, kill_everywhere
from tests.faults.test_power_cut import cut_power
from tests.faults.test_power_loss import lose_power
from tests.faults.trial import Options, Trial

HERE = Path(__file__).parent
PRODUCT = [str(Path(package.__file__).parent) for package in (nobroker, nobroker_mmap)]
posix_only = pytest.mark.skipif(os.name == "nt", reason="the models are of a POSIX system")


class Short(Trial):
    """Not more rounds than it should take to see the fault."""

    def rounds(self, ordinary: int, *, least: int = 0) -> Iterator[tuple[int, Random]]:
        for number, rng in super().rounds(ordinary, least=least):
            if number >= 400:
                return
            yield number, rng


@contextmanager
def seen(match: str | None = None) -> Iterator[None]:
    """A harness sees a fault by an assertion that fails, by a typed error, or by any that the product comes
    to; not by one of its own, nor one of the plant.
    """
    with pytest.raises(Exception, match=match) as caught:
        yield
    if not isinstance(caught.value, (AssertionError, NobrokerError)):
        places = [str(entry.path) for entry in caught.traceback]
        ours = [place for place in places if place.startswith((*PRODUCT, str(HERE)))]
        assert not ours[-1].startswith(str(HERE)), caught.getrepr(style="short")


@pytest.fixture
def short() -> Trial:
    return Short("planted", "planted", Options())


@pytest.fixture
def whole() -> Trial:
    """As many rounds as an ordinary run has."""
    return Trial("planted", "planted", Options())


@pytest.fixture
def plant() -> Iterator[Callable[[str], None]]:
    """Plants a fault for the time of one test."""
    before = [(where, name, where.__dict__[name]) for where, name in PLANTED_IN]
    yield lambda name: PLANTS[name]()
    for where, name, value in before:
        setattr(where, name, value)


# -- power, disks, kills


@posix_only
@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("no_data_sync", "verbs"),
        ("no_directory_sync", "verbs"),
        ("adopted_without_sync", "deaths"),
        ("reservation_not_synced", "unsynced"),
        ("clean_end_believed", "openings"),
        ("page_of_another_boot_believed", "openings"),
        ("group_without_end", "verbs"),
        ("group_that_ends_early", "verbs"),
        ("leftovers_stay", "deaths"),
    ],
)
def test_power_loss_is_seen(
    name: str, work: str, plant: Callable[[str], None], whole: Trial, quick_directory: Path
) -> None:
    plant(name)
    with seen():
        lose_power(work, whole, quick_directory, 4_000)


@posix_only
@pytest.mark.parametrize(
    ("name", "call"), [("failed_sync_forgotten", "sync-EIO-once"), ("failed_write_left", "write-EIO-once")]
)
def test_a_failing_disk_is_seen(
    name: str, call: str, plant: Callable[[str], None], whole: Trial, quick_directory: Path
) -> None:
    fault = next(fault for fault in FAULTS if str(fault) == call)
    plant(name)
    with seen():
        fail_everywhere(fault, whole, quick_directory)


@posix_only
def test_an_early_return_is_seen(whole: Trial, quick_directory: Path) -> None:
    killer = Killer("returned_early")
    try:
        with pytest.raises(AssertionError, match="lost"):
            kill_everywhere("append", whole, killer, quick_directory)
    finally:
        killer.close()


@posix_only
def test_a_real_power_cut_without_sync_is_seen(whole: Trial, tmp_path: Path) -> None:
    children = Children("no_data_sync")
    try:
        with seen(r"lost|back|damaged|again"):
            cut_power(whole, children, tmp_path, 40)
    finally:
        children.close()


@posix_only
def test_space_that_was_not_reserved_is_seen(tmp_path: Path) -> None:
    done = fill(tmp_path / "disk", 5, "1/0", "nothing_reserved")
    assert done.returncode == 1
    assert "Error" in done.stderr


# -- what is on the disk, and who works with it


def test_an_index_that_is_believed_without_its_checksum(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believed(path: str, segment: Segment) -> Any:
        try:
            raw = Path(path).read_bytes()
        except FileNotFoundError:
            return None
        counts = offsets.fmt.SIDECAR_HEADER.unpack_from(raw)[4:6] if len(raw) >= 64 else (0, 0)
        return offsets.table_of_bytes(raw[64:], *counts)

    monkeypatch.setattr(offsets, "read_sidecar", believed)
    with seen():
        bit_flips.test_a_cache(short, tmp_path, ".idx")


def test_a_control_page_whose_fields_are_believed(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControlPage, "least", lambda self, field: self.words[field])
    with seen():
        bit_flips.test_a_cache(short, tmp_path, ".lock")


def test_records_whose_checksum_is_not_compared(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Any64(int):
        def __ne__(self, other: object) -> bool:
            return False

    real = record.xxh3_64_intdigest
    monkeypatch.setattr(record, "xxh3_64_intdigest", lambda data: Any64(real(data)))
    with seen():
        bit_flips.test_each_bit_of_each_record(short, tmp_path)
    with seen():
        bit_flips.test_a_reader_of_the_log(short, tmp_path, False)


def test_a_snapshot_of_another_log(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = snapshot.load

    def load(path: str, log_id: int) -> Any:
        found = real(path, log_id)
        raw = Path(path).read_bytes() if found[0] is None and Path(path).exists() else b""
        return real(path, int.from_bytes(raw[16:24], "little")) if raw else found

    monkeypatch.setattr(snapshot, "load", load)
    monkeypatch.setattr(opening, "snapshot_fits", lambda segments, snap, known: segments[-1])
    with seen():
        caches.test_all_pairs(short, tmp_path)


def test_a_tail_that_is_always_taken_for_torn(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening.recovery, "find_damage", lambda *words: None)
    with seen():
        bit_flips.test_a_reader_of_the_log(short, tmp_path, False)


def test_a_short_segment_that_is_filled_up(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = opening.recovery.open_segment

    def filled_up(path: str) -> Segment:
        if 128 <= Path(path).stat().st_size < 65536:
            os.truncate(path, 65536)
        return real(path)

    monkeypatch.setattr(opening.recovery, "open_segment", filled_up)
    with seen():
        truncation.test_a_segment(short, tmp_path, 1)


PLANTED = {
    "moved jobs lose their state": (whole_jobs, "_override", lambda session, seq, avail, wall: {}),
    "jobs are dropped with their segment": (Mover, "_may_go", lambda self, seq, code, now: True),
    "jobs are not moved": (Mover, "_sort_out", lambda self, work, bundle, first, stop, now: None),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_retirement(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    with seen():
        retirement.test_orders(short, tmp_path, monkeypatch)


def test_a_segment_from_the_middle(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The acks in it go, and what they ended comes back, or the log has a hole."""
    real = Log.retire

    def retire(self: Log, first_counting: int, head: dict[str, Any]) -> int:
        middle = self.names.segment(first_counting)
        end = real(self, first_counting, head)
        if first_counting < self.active_number:
            Path(middle).unlink()
        return end

    monkeypatch.setattr(Log, "retire", retire)
    with seen():
        retirement.test_orders(short, tmp_path, monkeypatch)


def add_own_twice(self: ReadyIndex, seq: int, later: bool) -> None:
    entry = self._entries[seq]
    if later:
        (self.later_wall if entry.wall else self.later).add((entry.avail, seq, None))
    else:
        self._lane(entry.lane, self.lanes).add((-entry.priority, entry.avail, seq, None))


def test_a_job_that_is_leased_twice_at_once(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadyIndex, "add_own", add_own_twice)
    with seen():
        retirement.test_orders(short, tmp_path, monkeypatch)


def test_a_descriptor_that_stays_open(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Handle._release_files

    def forgetful(self: Handle) -> None:
        self._open_fd = None
        real(self)

    monkeypatch.setattr(Handle, "_release_files", forgetful)
    with pytest.raises(AssertionError, match="descriptors leak"):
        leaks.test_openings_faults_and_rotations(short, tmp_path, monkeypatch)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_token_that_is_not_compared(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped, "HOLDER", planted_program(tmp_path, "token_not_compared", stopped.HOLDER))
    with seen("NotLeasedError"):
        stopped.test_who_holds_a_lease(short, tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("plant_name", ["lock_not_taken", "lock_released_early"])
def test_a_lock_that_does_not_lock(tmp_path: Path, plant_name: str) -> None:
    planted = planted_program(tmp_path, plant_name, histories.HISTORIAN)
    with seen():
        assert histories.run(tmp_path, 4.0, 0.5, planted).judge() == []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("plant_name", "words"),
    [
        ("one_too_many", "key [123]: .* leased at once"),
        ("slot_given_back_early", "key [123]: .* leased at once"),
        ("rate_forgotten", "rate: more than"),
        ("lane_without_end", "narrow: .* leased at once"),
    ],
)
def test_a_limit_that_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant_name: str, words: str
) -> None:
    """How soon it is passed is chance: not each run comes by it."""
    planted = planted_program(tmp_path, plant_name, histories.HISTORIAN)
    monkeypatch.setattr(histories, "PROCESSES", 2)
    wrong: list[str] = []
    for number in range(20):
        directory = tmp_path / str(number)
        directory.mkdir()
        wrong += histories.run(directory, 1.0, number, planted).judge()
        if wrong:
            break
    assert wrong
    assert all(re.search(words, one) for one in wrong)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_job_that_is_not_alone(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_storm, "STORM", planted_program(tmp_path, "not_alone", kill_storm.STORM))
    with seen("was to be alone"):
        kill_storm.test_limits(short, tmp_path)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_compactor_that_drops_jobs(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = planted_program(tmp_path, "jobs_dropped", "nobroker")
    monkeypatch.setattr(kill_storm, "COMPACTOR", [str(planted)])
    monkeypatch.setattr(kill_storm, "KILLS_BESIDE_A_COMPACTOR", 3)
    with seen("lost"):
        kill_storm.test_beside_a_compactor(short, tmp_path)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(locking, "fcntl"), reason="truncates mapped files")
def test_a_map_that_is_read_without_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a read in the part that is cut off: not each round has one."""
    planted = planted_program(tmp_path, "sizes_not_looked_at", truncation.WORKERS)
    monkeypatch.setattr(truncation, "WORKERS", planted)
    with seen():
        for seed in range(6):
            trial = Short("planted", "planted", Options(seed=seed))
            truncation.test_under_processes_at_work(trial, tmp_path, ".seg")
