"""C30: one bad record in old data neither wedges the queue nor takes what comes after it."""

from __future__ import annotations

import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import CorruptLogError, NobrokerError, Queue
from nobroker.clock import ManualClock
from nobroker_mmap import format as fmt

from .words import cli, drain, hashes, no_caches, outcome, segs

JOBS = 30


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Three segments, thirty jobs with known payloads, one call each, closed."""
    directory = tmp_path / "q"
    with Queue(directory, fsync=False, segment_size=65536, clock=ManualClock(1_700_000_000)) as queue:
        for n in range(JOBS):
            queue.enqueue(f"job {n:02} " + "x" * 5000)
    assert len(segs(directory)) >= 3
    return directory


def record_of(directory: Path, number: int) -> tuple[Path, int]:
    """The file and the offset of the record that holds a job."""
    needle = f"job {number:02} ".encode()
    for path in segs(directory):
        data = path.read_bytes()
        at = data.find(needle)
        if at >= 0:
            return path, data.rfind(fmt.RECORD_MAGIC, 0, at)
    raise AssertionError(number)


def flip(place: int) -> Callable[[bytearray, int], None]:
    def damage(data: bytearray, at: int) -> None:
        data[at + place] ^= 0x10

    return damage


def put(place: int, number: int) -> Callable[[bytearray, int], None]:
    def damage(data: bytearray, at: int) -> None:
        struct.pack_into("<I", data, at + place, number)

    return damage


DAMAGES: dict[str, Callable[[bytearray, int], None]] = {
    "payload": flip(fmt.RECORD_HEADER_SIZE + 600),
    "length huge": put(8, 2**32 - 1),
    "length 256 MiB": put(8, 2**28),
    "length zero": put(8, 0),
    "length negative": put(8, 2**31),
    "length a little": flip(8),
    "head length": put(12, 2**32 - 1),
    "checksum": flip(56),
    "type": flip(4),
    "flags": flip(5),
    "lsn": flip(32),
    "magic": flip(0),
}


def damaged(directory: Path, name: str, number: int = 4) -> tuple[Path, int]:
    path, at = record_of(directory, number)
    data = bytearray(path.read_bytes())
    DAMAGES[name](data, at)
    path.write_bytes(data)
    return path, at


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("name", DAMAGES)
def test_nothing_is_lost_in_silence(made: Path, name: str, caches: bool) -> None:
    path, _ = damaged(made, name)
    if not caches:
        no_caches(made)
    before = {file.name: file.read_bytes() for file in segs(made)}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def look() -> list[Any]:
        with Queue(made, fsync=False, clock=ManualClock(1_700_000_000)) as queue:
            return [job.payload for job in queue.list_jobs()]

    found = outcome(look)
    if isinstance(found, NobrokerError):
        assert isinstance(found, CorruptLogError), found
        assert path.name in str(found)
        assert "offset" in str(found)
        for file, data in before.items():
            assert (made / file).read_bytes()[: len(data)] == data, "something was removed"
    else:
        assert len(found) == JOBS, "opened without a word, and without a job"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300 * 1024


@pytest.mark.processes
@pytest.mark.parametrize("name", ["payload", "length huge", "checksum", "magic"])
def test_recover_when_asked_keeps_all_others_and_a_copy(made: Path, name: str) -> None:
    path, _ = damaged(made, name)
    kept = path.read_bytes()
    before = hashes(made)
    for words in (["inspect"], ["check"], ["recover"], ["stats"]):
        ran = cli(made, *words)
        assert "Traceback" not in ran.err
        assert ran.code in (0, 1)
    assert hashes(made) == before
    ran = cli(made, "recover", "--salvage")
    assert ran.code == 0, ran
    assert [copy.read_bytes() for copy in made.glob("*.salvaged*")] == [kept]
    with Queue(made, fsync=False) as queue:
        found = [job.payload[:6] for job in queue.list_jobs()]
        assert found == [f"job {n:02}" for n in range(JOBS) if n != 4]
        queue.compact()
        assert list(queue.check()) == []
    with Queue(made, fsync=False) as queue:
        assert len(drain(queue)) == JOBS - 1


@pytest.mark.parametrize(
    "body", [b"\xc1" * 40, b"\x91" * 40, b"", b"\xdf\xff\xff\xff\xff", b"\x81\xa1q\xc0"], ids=repr
)
@pytest.mark.parametrize("kind", [16, 18, 19, 29])
def test_a_good_checksum_over_what_is_no_record_of_ours(tmp_path: Path, body: bytes, kind: int) -> None:
    """Typed, with file and offset, nothing removed; and a reader does not hang."""
    with Queue(tmp_path, fsync=False) as queue:
        queue.enqueue(1)
        log = queue._store._session.log  # type: ignore[attr-defined]
        log.lock()
        try:
            log.append([(kind, 0, body, b"", [])])
        finally:
            log.unlock()
        log._release_files()
    before = segs(tmp_path)[0].read_bytes()

    def look(read_only: bool) -> Any:
        with Queue(tmp_path, read_only=read_only) as queue:
            return [job.payload for job in queue.list_jobs()], queue.recovery.damage

    error = outcome(lambda: look(False))
    assert isinstance(error, CorruptLogError), error
    assert "offset" in str(error)
    seen = outcome(lambda: look(True))
    if not isinstance(seen, CorruptLogError):
        assert seen[0] == [1]
        assert "offset" in seen[1]
    assert segs(tmp_path)[0].read_bytes() == before
