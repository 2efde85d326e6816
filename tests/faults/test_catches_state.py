"""A harness that finds nothing may be blind: for each a fault is planted in the product, and must be seen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nobroker.state.ready import ReadyIndex
from nobroker.stores import whole
from nobroker.stores.moving import Mover
from nobroker_mmap import locking, offsets, opening, record, snapshot
from nobroker_mmap.control import ControlPage
from nobroker_mmap.handle import Handle
from nobroker_mmap.log import Log
from nobroker_mmap.segment import Segment
from tests.faults import test_bit_flips as bit_flips
from tests.faults import test_caches as caches
from tests.faults import test_histories as histories
from tests.faults import test_leaks as leaks
from tests.faults import test_retirement as retirement
from tests.faults import test_stopped_holder as stopped
from tests.faults import test_truncation as truncation
from tests.faults.trial import Options, Trial

SEEN = (AssertionError, Exception)
"""An untyped error of the product is as good a sign as a failed assertion."""


class Short(Trial):
    """Not more rounds than it should take to see the fault."""

    def rounds(self, ordinary: int) -> Iterator[tuple[int, Random]]:
        for number, rng in super().rounds(ordinary):
            if number >= 400:
                return
            yield number, rng


@pytest.fixture
def short() -> Trial:
    return Short("planted", "planted", Options())


def test_an_index_that_is_believed_without_its_checksum(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believed(path: str, segment: Segment) -> Any:
        try:
            raw = Path(path).read_bytes()
        except FileNotFoundError:
            return None
        counts = offsets.fmt.SIDECAR_HEADER.unpack_from(raw)[4:6] if len(raw) >= 64 else (0, 0)
        return offsets.unpack_rows(raw[64:], *counts)

    monkeypatch.setattr(offsets, "read_sidecar", believed)
    with pytest.raises(SEEN):
        bit_flips.test_a_cache(short, tmp_path, ".idx")


def test_a_control_page_whose_fields_are_believed(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControlPage, "least", lambda self, field: self.words[field])
    with pytest.raises(AssertionError):
        bit_flips.test_a_cache(short, tmp_path, ".lock")


def test_records_whose_checksum_is_not_compared(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Any64(int):
        def __ne__(self, other: object) -> bool:
            return False

    real = record.xxh3_64_intdigest
    monkeypatch.setattr(record, "xxh3_64_intdigest", lambda data: Any64(real(data)))
    with pytest.raises(AssertionError):
        bit_flips.test_each_bit_of_each_record(short, tmp_path)
    with pytest.raises(AssertionError):
        bit_flips.test_a_reader_of_the_log(short, tmp_path, False)


def test_a_snapshot_of_another_log(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = snapshot.load

    def load(path: str, log_id: int) -> Any:
        found = real(path, log_id)
        raw = Path(path).read_bytes() if found[0] is None and Path(path).exists() else b""
        return real(path, int.from_bytes(raw[16:24], "little")) if raw else found

    monkeypatch.setattr(snapshot, "load", load)
    monkeypatch.setattr(opening, "snapshot_fits", lambda segments, snap, known: segments[-1])
    with pytest.raises(SEEN):
        caches.test_all_pairs(short, tmp_path)


def test_a_tail_that_is_always_taken_for_torn(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening.recovery, "find_damage", lambda *words: None)
    with pytest.raises(AssertionError):
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
    with pytest.raises(SEEN):
        truncation.test_a_segment(short, tmp_path, 1)


PLANTED = {
    "moved jobs lose their state": (whole, "_override", lambda session, seq, avail, wall: {}),
    "jobs are dropped with their segment": (Mover, "_may_go", lambda self, seq, code, now: True),
    "jobs are not moved": (Mover, "_sort_out", lambda self, work, bundle, first, stop, now: None),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_retirement(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    with pytest.raises(SEEN):
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
    with pytest.raises(SEEN):
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
    with pytest.raises(SEEN):
        retirement.test_orders(short, tmp_path, monkeypatch)


def test_a_descriptor_that_stays_open(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Handle._release_files

    def forgetful(self: Handle) -> None:
        self._open_fd = None
        real(self)

    monkeypatch.setattr(Handle, "_release_files", forgetful)
    with pytest.raises(AssertionError, match="descriptors leak"):
        leaks.test_openings_faults_and_rotations(short, tmp_path, monkeypatch)


NO_LOCK = """
import runpy, sys
from nobroker_mmap import locking
real = locking.try_lock
locking.try_lock = lambda fd, flags=locking.EXCLUSIVE | locking.NON_BLOCKING: real(fd, flags) or True
sys.argv[0] = {program!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""

NO_LOOK_AT_SIZES = """
import runpy, sys
from nobroker_mmap.segment import Segment
Segment.read = lambda self, offset, length: self.map()[offset : offset + length]
sys.argv[0] = {program!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


NO_TOKEN = """
import runpy, sys
from nobroker.stores.lookup import Lookup
real = Lookup.resolve
Lookup.resolve = lambda self, job: (real(self, job)[0], None)
sys.argv[0] = {program!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_token_that_is_not_compared(short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(NO_TOKEN.format(program=str(stopped.HOLDER)))
    monkeypatch.setattr(stopped, "HOLDER", planted)
    with pytest.raises(AssertionError):
        stopped.test_who_holds_a_lease(short, tmp_path)


@pytest.mark.processes
def test_a_lock_that_does_not_lock(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(NO_LOCK.format(program=str(histories.HISTORIAN)))
    with pytest.raises(AssertionError):
        assert histories.run(tmp_path, 4.0, 0.5, planted).judge() == []


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(locking, "fcntl"), reason="truncates mapped files")
def test_a_map_that_is_read_without_a_look(
    short: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(NO_LOOK_AT_SIZES.format(program=str(truncation.WORKERS)))
    monkeypatch.setattr(truncation, "WORKERS", planted)
    with pytest.raises(AssertionError):
        truncation.test_under_processes_at_work(short, tmp_path, ".seg")
