"""Directories that nobroker 0.1.2 itself wrote are read with every state kept;

damage is told, never fatal for the rest.
"""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from nobroker import CorruptLogError, Job, Queue, StorageError
from nobroker.clock import ManualClock
from nobroker.job import JobState
from nobroker_tools.v0 import list_v0, read_v0, without_leases

DATA = Path(__file__).parent / "data" / "v0"
FIELDS = (
    "id", "payload", "priority", "state", "attempts", "max_attempts", "available_at", "enqueued_at",
    "lease_deadline", "last_error", "seq",
)  # fmt: skip


def fields(directory: Path, name: str = "emails", report: Any = None) -> list[dict[str, Any]]:
    return [{field: job.to_dict()[field] for field in FIELDS} for job in read_v0(directory, name, report)]


def expected(directory: Path) -> list[dict[str, Any]]:
    found = json.loads((directory / "expected.json").read_text(encoding="utf-8"))
    return [{field: job[field] for field in FIELDS} for job in found]


@pytest.mark.parametrize("kind", ["plain", "compacted"])
def test_every_state_is_read_as_the_old_package_had_it(kind: str) -> None:
    said: list[str] = []
    found = fields(DATA / kind, report=said.append)
    assert found == expected(DATA / kind)
    assert said == []
    states = {job["state"] for job in found}
    assert states == ({"ready", "leased", "dead", "done"} if kind == "plain" else {"ready", "leased", "dead"})


def test_names_are_listed_and_a_purge_is_heeded() -> None:
    assert list_v0(DATA / "two") == ["a.b", "default"]
    assert [job.payload for job in read_v0(DATA / "two")] == ["after purge"]
    assert [job.payload for job in read_v0(DATA / "two", "a.b")] == ["a.b"]


def test_a_torn_tail_loses_only_the_records_it_cuts(tmp_path: Path) -> None:
    shutil.copytree(DATA / "plain", tmp_path / "q")
    log = tmp_path / "q" / "emails.000000.log"
    whole = log.read_bytes()
    ends = {16}
    at = 16
    while at < len(whole):
        at += 9 + struct.unpack_from("<I", whole, at)[0]
        ends.add(at)
    previous: list[dict[str, Any]] = []
    near = {end + step for end in ends for step in (-1, 0, 1, 9, 10)}
    for size in sorted(size for size in near if 16 <= size <= len(whole)):
        log.write_bytes(whole[:size])
        said: list[str] = []
        found = fields(tmp_path / "q", report=said.append)
        assert bool(said) == (size not in ends)
        if size not in ends:
            assert found == previous
        previous = found
    assert previous == expected(DATA / "plain")


def test_a_bad_record_in_the_middle_takes_no_other_with_it(tmp_path: Path) -> None:
    shutil.copytree(DATA / "plain", tmp_path / "q")
    log = tmp_path / "q" / "emails.000000.log"
    raw = bytearray(log.read_bytes())
    raw[raw.index(b"urgent")] ^= 1
    log.write_bytes(raw)
    said: list[str] = []
    found = fields(tmp_path / "q", report=said.append)
    assert found == [job for job in expected(DATA / "plain") if job["id"] != "urgent"]
    assert len(said) == 1
    assert "do not verify" in said[0]


def test_without_a_listener_damage_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(DATA / "two", tmp_path / "q")
    with (tmp_path / "q" / "default.000000.log").open("ab") as stream:
        stream.write(b"torn")
    assert [job.state for job in read_v0(tmp_path / "q")] == [JobState.READY]
    assert "4 bytes" in caplog.text


def test_what_is_no_such_queue_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"queues found: a\.b, default"):
        list(read_v0(DATA / "two", "other"))
    with pytest.raises(StorageError):
        list_v0(tmp_path / "nowhere")
    with pytest.raises(StorageError):
        list(read_v0(tmp_path / "nowhere"))
    (tmp_path / "x.000000.log").write_bytes(b"NOBROKER\x09\x00" + bytes(6))
    with pytest.raises(CorruptLogError, match="version 9"):
        list(read_v0(tmp_path, "x"))
    (tmp_path / "y.000000.log").write_bytes(b"syslog line\n more")
    with pytest.raises(CorruptLogError):
        list(read_v0(tmp_path, "y"))
    (tmp_path / "y.000000.log").write_bytes(b"NOB")
    with pytest.raises(CorruptLogError):
        list(read_v0(tmp_path, "y"))
    (tmp_path / "x.current").write_text("seven\n", encoding="ascii")
    with pytest.raises(CorruptLogError):
        list(read_v0(tmp_path, "x"))
    assert list_v0(tmp_path) == ["x"]


class TestRestored:
    """What was read, in a queue of this package."""

    @staticmethod
    def restored(tmp_path: Path, jobs: list[Job], clock: ManualClock) -> Queue:
        queue = Queue(tmp_path / "new", clock=clock, visibility_timeout=5)
        assert queue._import_jobs(without_leases(jobs)) == len(jobs)
        return queue

    @pytest.mark.parametrize("kind", ["plain", "compacted"])
    def test_a_leased_job_runs_when_its_old_lease_ends(self, tmp_path: Path, kind: str) -> None:
        old = list(read_v0(DATA / kind, "emails"))
        held = [job for job in old if job.state is JobState.LEASED]
        deadlines = {job.id: job.lease_deadline or 0.0 for job in held}
        assert all(deadlines.values())
        clock = ManualClock(min(deadlines.values()) - 3)
        queue = self.restored(tmp_path, old, clock)
        for job in held:
            found = queue.get(job.id)
            assert (found.state, found.attempts) == (JobState.READY, 1)
            assert found.available_at == pytest.approx(deadlines[job.id], abs=1e-6)
        while leased := queue.lease(100):
            assert not {job.id for job in leased} & set(deadlines)
            queue.ack_many(leased)
        clock.advance(max(deadlines.values()) - clock.wall_us() / 1e6 + 1e-3)
        again = {job.id: job.attempts for job in queue.lease(100)}
        assert {job.id: job.attempts + 1 for job in held}.items() <= again.items()
        assert queue.check() == []
        queue.close()

    def test_of_one_whose_lease_has_ended_nothing_is_waited_for(self, tmp_path: Path) -> None:
        clock = ManualClock(1000.0)
        jobs = [
            Job("over", 1, state=JobState.LEASED, attempts=2, available_at=10.0, lease_deadline=999.0),
            Job("held", 2, state=JobState.LEASED, attempts=1, available_at=20.0, lease_deadline=1030.0),
            Job("last", 3, state=JobState.LEASED, attempts=5, max_attempts=5, lease_deadline=998.0),
        ]
        queue = self.restored(tmp_path, jobs, clock)
        assert [(job.id, job.attempts) for job in queue.lease(10)] == [("last", 6), ("over", 3)]
        assert queue.stats().delayed == 1
        queue.close()
        queue = Queue(tmp_path / "new", clock=clock)
        clock.advance(29.9)
        assert "held" not in {job.id for job in queue.lease(10)}
        clock.advance(0.2)
        assert ("held", 2) in {(job.id, job.attempts) for job in queue.lease(10)}
        assert queue.check() == []
        queue.close()
