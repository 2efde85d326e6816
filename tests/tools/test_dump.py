"""The log as JSON Lines: complete, strict, past any damage, and back again as an equal queue."""

import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from nobroker import BackoffPolicy, Job, JobState, Queue, StorageError
from nobroker_tools import dump
from nobroker_tools.importer import import_jsonl
from nobroker_tools.jsonvalue import from_jsonable
from nobroker_tools.v0 import read_v0

NOT_CARRIED = ("seq", "lease_deadline", "lease_token", "cancel_requested", "created")


def dumped(
    kind: str, directory: Path, name: str = "default", said: list[str] | None = None
) -> list[dict[str, Any]]:
    """The lines of a dump; what it said goes into `said`, or must be nothing."""
    out = io.StringIO()
    heard: list[str] = []
    skipped = dump.KINDS[kind](directory, name, out, heard.append)
    assert skipped == len(heard)
    if said is None:
        assert heard == []
    else:
        said += heard
    text = out.getvalue()
    assert text.isascii()

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is not strict JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def everything(directory: Path) -> Queue:
    """A queue with a job of every kind."""
    queue = Queue(directory, fsync=False, backoff=BackoffPolicy(base=1000, jitter=0))
    queue.enqueue_many([{"n": n} for n in range(5)])
    queue.enqueue_many(["later", "much later"], delays=[5000.25, 9000.5], lane="slow")
    queue.enqueue(
        {"raw": b"\0\xff", 1: float("nan"), "at": datetime(2024, 5, 1, tzinfo=UTC), "d": Decimal("1.50"),
         "s": "\ud83d", "$x": {"$bytes": 1}},
        job_id="ö/1", metadata={"trace": (1, 2)}, priority=-3, max_attempts=9, expires_in=10**6,
    )  # fmt: skip
    for job_id, priority in (("done", 90), ("retry", 89), ("dead", 88), ("released", 87), ("held", 86)):
        queue.enqueue(job_id, job_id=job_id, priority=priority)
    held = {job.payload: job for job in queue.lease(5)}
    queue.ack(held["done"], result=[1, {"x": b"y"}])
    queue.nack(held["retry"], error="no \x1b[31mluck\nat all")
    queue.nack(held["dead"], error="fatal", dead=True, state={"tried": b"1"})
    queue.extend(held["released"], 60, progress=0.5, state={"step": 3})
    queue.release(held["released"], state={"step": 4})
    queue.extend(held["held"], 3600)
    queue.enqueue("gone", job_id="gone")
    queue.cancel("gone")
    queue.reschedule(queue.enqueue("soon", job_id="soon", delay=100).id, delay=9000.25)
    return queue


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Queue]:
    with everything(tmp_path / "full") as queue:
        yield queue


def carried(job: Job) -> dict[str, Any]:
    fields = job.to_dict()
    for name in NOT_CARRIED:
        del fields[name]
    if fields["state"] == "leased":
        fields["state"] = "ready"
    return json.loads(json.dumps(fields, default=repr))


def copied(source: Queue, target: Path) -> Queue:
    out = io.StringIO()
    assert dump.dump_jobs(source.dir, source.name, out) == 0
    queue = Queue(target, fsync=False)
    lines = out.getvalue().encode()
    result = import_jsonl(io.BytesIO(lines), queue)
    assert result.jobs
    assert result.added == result.read == len(source)
    again = import_jsonl(io.BytesIO(lines), queue)
    assert again.added == 0
    return queue


def test_a_dump_of_jobs_gives_an_equal_queue(full: Queue, tmp_path: Path) -> None:
    with copied(full, tmp_path / "copy") as copy:
        assert [carried(job) for job in copy.list_jobs()] == [carried(job) for job in full.list_jobs()]
        first, second = full.list_jobs("ready"), copy.list_jobs("ready")
        assert [job.id for job in second if job.id != "held"] == [job.id for job in first]
        assert copy.get("done").result == [1, {"x": b"y"}]
        assert copy.get("ö/1").metadata == {"trace": [1, 2]}
        assert copy.get("held").state is JobState.READY
        assert [job.id for job in copy.dlq()] == ["dead"]
    with Queue(tmp_path / "copy") as copy:
        assert [carried(job) for job in copy.list_jobs()] == [carried(job) for job in full.list_jobs()]
        with copied(copy, tmp_path / "third") as third:
            assert [carried(job) for job in third.list_jobs()] == [carried(job) for job in copy.list_jobs()]
        assert [job.id for job in copy.lease(2)] == ["released", "held"]


def test_many_random_jobs_come_back_in_the_same_order(tmp_path: Path) -> None:
    chance = random.Random(4)
    with Queue(tmp_path / "a", fsync=False, backoff=BackoffPolicy(base=0, jitter=0)) as queue:
        for _ in range(40):
            count = chance.randrange(1, 90)
            queue.enqueue_many(
                range(count),
                priority=chance.randrange(3),
                lane=chance.choice(["", "x"]),
                delays=[chance.choice([0, 0, 50]) for _ in range(count)] if chance.random() < 0.3 else None,
                job_ids=[f"own-{chance.random()}" for _ in range(count)] if chance.random() < 0.3 else None,
            )
            jobs = queue.lease(chance.randrange(1, 60))
            for job in jobs:
                getattr(queue, chance.choice(["ack", "nack", "release"]))(job)
        queue.compact()
        with copied(queue, tmp_path / "b") as copy:
            for state in JobState:
                assert [carried(job) for job in copy.list_jobs(state)] == [
                    carried(job) for job in queue.list_jobs(state)
                ]


def test_the_dump_of_jobs_names_itself(full: Queue) -> None:
    lines = dumped("jobs", full.dir)
    assert lines[0] == {"nobroker": "jobs", "version": 1, "queue": "default"}
    assert [line["seq"] for line in lines[1:]] == sorted(job.seq for job in full.list_jobs())
    assert lines[1].keys() == full.list_jobs()[0].to_dict().keys()


def test_events_are_one_line_per_job(full: Queue) -> None:
    lines = dumped("events", full.dir)
    by_event: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_event.setdefault(line["event"], []).append(line)
    assert [line["payload"] for line in by_event["enqueue"][:5]] == [{"n": n} for n in range(5)]
    assert len(by_event["enqueue"]) == len(full)
    own = next(line for line in by_event["enqueue"] if line["id"] == "ö/1")
    job = full.get("ö/1")
    assert repr(from_jsonable(own["payload"])) == repr(job.payload)
    assert (own["lane"], own["priority"], own["max_attempts"]) == ("", -3, 9)
    assert (own["expires_at"], own["metadata"], own["enqueued_at"]) == (
        job.expires_at,
        {"trace": [1, 2]},
        job.enqueued_at,
    )
    assert [line["available_at"] for line in by_event["enqueue"] if line["lane"] == "slow"] == [
        job.available_at for job in full.list_jobs() if job.lane == "slow"
    ]
    assert [line["id"] for line in by_event["lease"]] == ["done", "retry", "dead", "released", "held"]
    assert [line["token"] for line in by_event["lease"]] == [1, 2, 3, 4, 5]
    ack = by_event["ack"][0]
    assert (ack["id"], from_jsonable(ack["result"])) == ("done", [1, {"x": b"y"}])
    assert [(line["id"], line["state"], line["error"]) for line in by_event["nack"]] == [
        ("retry", "ready", "no \x1b[31mluck\nat all"),
        ("dead", "dead", "fatal"),
    ]
    assert by_event["nack"][0]["available_at"] == full.get("retry").available_at
    assert [(line["id"], line.get("progress"), line.get("job_state")) for line in by_event["extend"]] == [
        ("released", 0.5, {"step": 3}),
        ("held", None, None),
    ]
    assert [from_jsonable(line.get("job_state")) for line in by_event["nack"]] == [None, {"tried": b"1"}]
    assert (by_event["release"][0]["id"], by_event["release"][0]["job_state"]) == ("released", {"step": 4})
    assert (by_event["cancel"][0]["id"], by_event["cancel"][0]["state"]) == ("gone", "done")
    (moved,) = by_event["reschedule"]
    assert (moved["id"], moved["available_at"], moved["wall_clock"]) == (
        "soon",
        full.get("soon").available_at,
        False,
    )


def test_events_know_own_ids_after_a_compaction(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False, segment_size=65536) as queue:
        queue.enqueue_many(range(5), job_ids=[f"kept-{n}" for n in range(5)])
        for n in range(200):
            queue.enqueue_many(["x" * 500] * 10)
            queue.ack_many([job for job in queue.lease(15) if isinstance(job.payload, str)] if n else [])
        queue.compact()
        names = {job.seq: job.id for job in queue.list_jobs()}
        lines = dumped("events", tmp_path)
        assert min(line["segment"] for line in dumped("records", tmp_path)) > 1
        spoken = [line for line in lines if line.get("seq") in names]
        assert spoken
        assert all(line["id"] == names[line["seq"]] for line in spoken)


def test_records_are_shown_with_place_and_checksum(full: Queue) -> None:
    lines = dumped("records", full.dir)
    previous = lines[0]["previous"]
    at = lines[0]["lsn"]
    for line in lines:
        assert line["previous"] == previous
        assert line["lsn"] == at
        previous, at = line["checksum"], line["end"]
        assert line["offset"] % 8 == 0
        assert isinstance(line["head"], dict)
    assert {"anchor", "reserve", "enqueue", "lease", "ack", "nack", "extend", "release", "cancel"} <= {
        line["type"] for line in lines
    }


# -- damage -------------------------------------------------------------------------------------------------


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.seg"))


def small(directory: Path) -> list[dict[str, Any]]:
    """Twelve jobs in twelve records; what a sound dump has."""
    with Queue(directory, fsync=False) as queue:
        for n in range(12):
            queue.enqueue({"n": n, "text": "x" * 40}, job_id=f"own-{n}")
    return dumped("events", directory)


def test_a_damaged_record_takes_no_other_with_it(tmp_path: Path) -> None:
    sound = small(tmp_path)
    (segment,) = segments(tmp_path)
    records = dumped("records", tmp_path)
    raw = segment.read_bytes()
    for victim in records[1:-1:3]:
        for shift in (0, 4, 9, 33, 57, 64 + victim["size"] - 1):
            broken = bytearray(raw)
            broken[victim["offset"] + shift] ^= 0xFF
            segment.write_bytes(broken)
            said: list[str] = []
            found = dumped("events", tmp_path, said=said)
            assert len(said) == 1
            assert f"at offset {victim['offset']}" in said[0]
            assert len(found) == len(sound) - 1
            assert next(line for line in sound if line not in found)["event"] == victim["type"]
    segment.write_bytes(raw)
    assert dumped("events", tmp_path) == sound


def test_a_log_cut_short_at_any_byte_is_dumped_up_to_there(tmp_path: Path) -> None:
    sound = small(tmp_path)
    (segment,) = segments(tmp_path)
    raw = segment.read_bytes()
    last = dumped("records", tmp_path)[-1]
    for size in [0, 100, 127, 128, 200, *range(last["offset"] - 40, last["offset"] + 80, 13)]:
        segment.write_bytes(raw[:size])
        said: list[str] = []
        found = dumped("events", tmp_path, said=said)
        assert said
        assert found == sound[: len(found)]
    # A writer that was killed in the middle: the file is whole, the last record is not.
    segment.write_bytes(raw[: last["offset"] + 70] + bytes(len(raw) - last["offset"] - 70))
    said = []
    assert dumped("events", tmp_path, said=said) == sound[:-1]
    assert "torn tail" in said[0]


def test_a_missing_or_foreign_segment_is_told(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False, segment_size=65536) as queue:
        for _ in range(12):
            queue.enqueue_many([os.urandom(2000) for _ in range(20)])
    paths = segments(tmp_path)
    assert len(paths) >= 4
    total = len(dumped("events", tmp_path))
    raw = paths[1].read_bytes()
    paths[1].write_bytes(b"something else" + bytes(1000))
    said: list[str] = []
    assert 0 < len(dumped("events", tmp_path, said=said)) < total
    assert any(paths[1].name in text and "left out whole" in text for text in said)
    paths[1].unlink()
    said = []
    assert 0 < len(dumped("events", tmp_path, said=said)) < total
    assert any("missing" in text for text in said)
    paths[1].write_bytes(raw)
    assert len(dumped("events", tmp_path)) == total


def test_looking_changes_nothing(full: Queue) -> None:
    def state() -> dict[str, tuple[bytes, int]]:
        return {
            path.name: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in full.dir.iterdir()
            if path.is_file() and path.suffix != ".lock"
        }

    before = state()
    for kind in dump.KINDS:
        dumped(kind, full.dir)
    assert state() == before


def test_no_queue_is_an_error_and_creates_none(tmp_path: Path) -> None:
    for kind in dump.KINDS:
        with pytest.raises(StorageError):
            dumped(kind, tmp_path / "none")
    assert not (tmp_path / "none").exists()


# -- the command --------------------------------------------------------------------------------------------


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "nobroker_tools.dump", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_dumps_to_stdout_and_to_a_file(full: Queue, tmp_path: Path) -> None:
    done = command(str(full.dir), "--jobs")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(full) + 1
    target = tmp_path / "out.jsonl"
    written = command(str(full.dir), "-q", "default", "--jobs", "-o", str(target))
    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
    assert target.read_text(encoding="ascii") == done.stdout
    assert "event" in command("--help").stdout


def test_the_command_tells_what_it_skipped(tmp_path: Path) -> None:
    small(tmp_path)
    (segment,) = segments(tmp_path)
    raw = bytearray(segment.read_bytes())
    raw[dumped("records", tmp_path)[4]["offset"] + 70] ^= 1
    segment.write_bytes(raw)
    done = command(str(tmp_path))
    assert done.returncode == 1
    assert "do not verify" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert command(str(tmp_path / "none")).returncode == 1
    assert command(str(tmp_path), "-q", "../x").returncode == 1
    assert command().returncode == 2


def test_the_command_ends_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False) as queue:
        queue.enqueue_many(["x" * 100] * 20000)
    with subprocess.Popen(
        [sys.executable, "-m", "nobroker_tools.dump", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


# -- from the old package -----------------------------------------------------------------------------------


def test_jobs_of_the_old_package_come_in_with_their_states(tmp_path: Path) -> None:
    source = Path(__file__).parent / "data" / "v0" / "plain"
    old = list(read_v0(source, "emails"))
    with Queue(tmp_path, "emails", fsync=False) as queue:
        assert queue._import_jobs(old) == len(old)
        found = queue.list_jobs()
        for job in old:
            # A microsecond is what a queue keeps of a moment.
            job.available_at = round(job.available_at * 1e6) / 1e6
            job.enqueued_at = round(job.enqueued_at * 1e6) / 1e6
        assert [carried(job) for job in found] == [carried(job) for job in old]
        assert queue._import_jobs(old) == 0
