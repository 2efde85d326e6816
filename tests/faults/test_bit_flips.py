"""One bit of one file is wrong. A wrong payload is never given; what was promised is told with file and
offset, and a salvage costs that one record; a cache with a wrong bit changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nobroker import CorruptLogError
from nobroker_mmap import format as fmt
from nobroker_mmap import opening
from nobroker_mmap.control import ControlPage, boot_hash
from nobroker_mmap.errors import damaged
from nobroker_mmap.record import Scan, parse
from nobroker_mmap.recovery import file_reader
from nobroker_mmap.salvage import salvage
from nobroker_mmap.segment import open_segment
from tests.faults.stores import SMALL, Place, fill, flipped, leave, outcome, records, scratch, spans
from tests.faults.trial import Trial

BLOCK = 512
CONTROL_FIELDS = [*range(136), *range(256, 392)]
"""The part of the control page that has a meaning."""


def one_segment(directory: Path, *, closed: bool) -> Place:
    """A log that fills its only segment of 64 KiB; unclosed ones without any cache."""
    place = Place(directory)
    queue = place.queue(fsync=True)
    fill(queue)
    if closed:
        queue.close()
    else:
        leave(queue)
        for path in place.files():
            if path.suffix != ".seg":
                path.unlink()
    place.keep()
    assert [path.name for path in place.files() if path.suffix == ".seg"] == ["default.000001.seg"]
    return place


def test_each_bit_of_each_record(trial: Trial, tmp_path: Path) -> None:
    """All eight bits of every byte: what comes out of a record's place is that record or none."""
    with scratch(tmp_path) as directory:
        place = one_segment(directory, closed=True)
        segment = open_segment(str(directory / "default.000001.seg"))
        data = bytearray(place.kept["default.000001.seg"])
        places = spans(directory / "default.000001.seg")
        for _, number, _ in trial.points(len(places)):
            first, end = places[number]
            whole = parse(bytes(data[first:end]), 0, segment.place, first)
            assert whole is not None
            for offset in range(first, end):
                for bit in range(8):
                    data[offset] ^= 1 << bit
                    found = parse(bytes(data[first:end]), 0, segment.place, first)
                    data[offset] ^= 1 << bit
                    assert found is None or found == whole, (offset, bit)
                    assert found is None or offset >= first + fmt.RECORD_HEADER_SIZE + len(whole.body)
            trial.count("flips", 8 * (end - first))


@pytest.mark.parametrize("closed", [True, False])
def test_a_reader_of_the_log(trial: Trial, tmp_path: Path, closed: bool) -> None:
    """A bit of a byte (each eighth in an ordinary run), as an opening for reading meets
    it: once with caches behind a clean end, once with neither.
    """
    with scratch(tmp_path) as directory:
        place = one_segment(directory, closed=closed)
        path = directory / "default.000001.seg"
        whole, damage = records_by_opening(place)
        assert damage is None
        places = spans(path)
        for number, rng in trial.rounds(SMALL // BLOCK):
            begin = number * BLOCK % SMALL
            step = 1 if trial.long else 8
            for offset in range(begin + rng.randrange(step), begin + BLOCK, step):
                with flipped(path, offset, rng.randrange(8)):
                    seen = outcome(lambda: records_by_opening(place))
                judge(seen, whole, places, offset, forgiven=() if closed else places[-1:])
                trial.count("flips")


def records_by_opening(place: Place) -> tuple[list[tuple[int, int, bytes]], Any]:
    """What an opening for reading believes of the log: each record up to where it sees the end or damage."""
    names = fmt.Names(place.directory, "default")
    page = ControlPage(names.lock, read_only=True) if "default.lock" in place.kept else None
    opened = opening.open_read_only(names, page, boot_hash(place.clock.boot_id()))
    segment = opened.segments[-1]
    fd = os.open(segment.path, os.O_RDONLY)
    try:
        scan = Scan(
            file_reader(fd),
            segment.place,
            fmt.SEGMENT_HEADER_SIZE,
            opened.tail.end,
            segment.header.previous_checksum,
        )
        found = [(record.lsn, record.type, record.body) for record in scan]
        stopped = (
            scan.offset < opened.tail.end
        )  # where one follows a snapshot, what is before it is met later
        return found, damaged(segment.path, scan.offset, "met in reading") if stopped else opened.damage
    finally:
        os.close(fd)


def judge(seen: Any, whole: Any, places: Any, offset: int, forgiven: Any) -> None:
    """Nothing wrong, nothing missing without a word, and the word says where."""
    damage = seen if isinstance(seen, CorruptLogError) else seen[1]
    found = [] if isinstance(seen, CorruptLogError) else seen[0]
    assert found == whole[: len(found)], f"a wrong record at offset {offset}"
    if damage is not None:
        assert Path(damage.path).name == "default.000001.seg"
        hit = [span for span in places if span[0] <= offset < span[1]]
        first, end = hit[0] if hit else (0, fmt.SEGMENT_HEADER_SIZE)
        assert first <= damage.offset < end, (offset, damage)
        assert f"offset {damage.offset}" in str(damage)
    elif len(found) < len(whole):
        assert [span for span in forgiven if span[0] <= offset < span[1]], f"lost in silence: {offset}"
        assert len(found) == len(whole) - 1


def test_a_queue_and_a_salvage(trial: Trial, tmp_path: Path) -> None:
    """Whole queues: an opening for writing changes nothing that is damaged; a salvage loses one record."""
    with scratch(tmp_path) as directory:
        place = one_segment(directory, closed=True)
        path = directory / "default.000001.seg"
        before = place.answers(read_only=True)
        payloads = {job["seq"]: job["payload"] for job in before[0]}
        token = max(job["lease_token"] or 0 for job in before[0])
        whole, _ = records(directory, place.clock)
        end = spans(path)[-1][1]
        for number, rng in trial.rounds(250):
            offset = rng.randrange(end) if number % 8 else rng.randrange(fmt.SEGMENT_HEADER_SIZE)
            with flipped(path, offset, rng.randrange(8)):
                damaged_bytes = path.read_bytes()
                seen = outcome(place.answers)
                if isinstance(seen, CorruptLogError):
                    assert path.read_bytes() == damaged_bytes, "an opening changed what is damaged"
                    one_record_at_most(place, whole, payloads, token)
                    trial.count("salvages")
                else:
                    assert seen == before, f"offset {offset}: other answers without a word"
                trial.count("openings")
            place.restore()


def one_record_at_most(place: Place, whole: Any, payloads: dict[int, Any], token: int) -> None:
    """A salvage loses that one record, and gives out no number again."""
    report = salvage(place.directory, "default", boot_id=place.clock.boot_id())
    after, damage = records(place.directory, place.clock)
    assert damage is None
    missing = [record for record in whole if record not in after]
    assert len(missing) <= 1, report
    assert [record for record in after if record not in whole] == []
    with place.queue() as queue:
        for job in queue.list_jobs():
            assert job.payload == payloads[job.seq]
        assert queue.enqueue("goes on", priority=1000).seq > max(payloads)
        assert (queue.lease(1)[0].lease_token or 0) > token
        assert [found for found in queue.check() if found.severity == "damage"] == []


@pytest.mark.parametrize("kind", [".lock", ".snap", ".idx", ".manifest"])
def test_a_cache(trial: Trial, tmp_path: Path, kind: str) -> None:
    """Two bits of each byte of each cache that may have a meaning, while the boot runs."""
    with scratch(tmp_path) as directory:
        place = Place(directory)
        with place.queue() as queue:
            fill(queue, 12, 8000)
        place.keep()
        before, after = place.answers(read_only=True), place.answers()
        assert before == after
        place.restore()
        paths = [path for path in place.files() if path.suffix == kind]
        spots = [(path, offset) for path in paths for offset in spots_of(path)]
        assert spots
        for number, rng in trial.rounds(len(spots)):
            path, offset = spots[number % len(spots)]
            for bit in rng.sample(range(8), 8 if trial.long else 2):
                with flipped(path, offset, bit):
                    assert outcome(lambda: place.answers(read_only=True)) == before, (path, offset, bit)
                    assert outcome(place.answers) == before, (path, offset, bit)
                    place.directory.joinpath("default.wake").unlink(missing_ok=True)
                    trial.count("openings", 2)
                place.restore()


def spots_of(path: Path) -> list[int]:
    data = path.read_bytes()
    if path.suffix == ".lock":
        return CONTROL_FIELDS
    if path.suffix == ".snap":
        return [*range(128), *(at for at in range(128, len(data)) if data[at] and at % 2 == 0)]
    return list(range(len(data)))
