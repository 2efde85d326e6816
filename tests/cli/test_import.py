"""`nobroker import`: files of every format, dumps of jobs, and queues of nobroker 0.1."""

from __future__ import annotations

import json
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pytest

from .conftest import CommandLine

ROWS = [{"order": number, "mail": f"p{number}@example.org"} for number in range(5)]


def _jsonl(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize(
    "name, data",
    [
        ("rows.jsonl", _jsonl(ROWS)),
        ("rows.ndjson", _jsonl(ROWS)),
        ("rows.txt", _jsonl(ROWS)),
        ("rows.json", json.dumps(ROWS, indent=1).encode()),
        ("rows.msgpack", b"".join(map(msgpack.packb, ROWS))),
    ],
)
def test_the_format_follows_from_the_name(
    nobroker: CommandLine, tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    found = nobroker.json("import", str(tmp_path / name))
    assert (found["read"], found["added"], found["known"]) == (5, 5, 0)
    assert [job["payload"] for job in nobroker.json("list")] == ROWS


def test_csv_and_options(nobroker: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("order,mail\n1,a\n2,b\n")
    words = ["--priority", "3", "--max-attempts", "2", "--lane", "slow", "--delay", "60"]
    ran = nobroker("import", str(tmp_path / "rows.csv"), *words)
    assert ran.code == 0
    assert ran.out.startswith("2 records read; 2 jobs added (")
    jobs = nobroker.json("list")
    assert [job["payload"] for job in jobs] == [{"order": "1", "mail": "a"}, {"order": "2", "mail": "b"}]
    assert {(job["priority"], job["max_attempts"], job["lane"]) for job in jobs} == {(3, 2, "slow")}
    assert nobroker.json("stats")["delayed"] == 2


def test_with_an_id_field_the_same_file_adds_nothing_twice(nobroker: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(_jsonl(ROWS))
    words = ["import", str(path), "--id-field", "order", "--batch", "2"]
    assert nobroker.json(*words)["added"] == 5
    again = nobroker.json(*words)
    assert (again["read"], again["added"], again["known"]) == (5, 0, 5)
    path.write_bytes(_jsonl([*ROWS, {"order": 99}]))
    assert nobroker.json(*words)["added"] == 1
    assert [job["id"] for job in nobroker.json("list")] == ["0", "1", "2", "3", "4", "99"]


def test_from_standard_input(nobroker: CommandLine) -> None:
    assert nobroker.json("import", "-", stdin=_jsonl(ROWS))["added"] == 5
    assert nobroker.json("import", "-", "--format", "json", stdin=b"[1, 2]")["added"] == 2
    assert nobroker.json("import", "-", stdin=b"")["read"] == 0


def test_a_bad_line_is_named_and_its_batch_not_stored(nobroker: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(_jsonl(ROWS[:3]) + b"{not json\n")
    ran = nobroker("import", str(path), "--batch", "2")
    assert ran.code == 1
    line = ran.said_in_one_line()
    assert "rows.jsonl, line 4" in line
    assert nobroker.json("stats")["total"] == 2


def test_wrong_usage_and_missing_files(nobroker: CommandLine, tmp_path: Path) -> None:
    assert nobroker("import").code == 2
    assert nobroker("import", "x", "--from-v0", "y").code == 2
    assert nobroker("import", "x", "--format", "xml").code == 2
    for words in (["import", str(tmp_path / "no-such-file")], ["import", str(tmp_path)]):
        ran = nobroker(*words)
        assert ran.code == 1
        ran.said_in_one_line()
    for words in (["--from-v0", str(tmp_path / "no")], ["--from-v0", str(tmp_path)]):
        ran = nobroker("import", *words)
        assert ran.code == 1
        ran.said_in_one_line()
    assert not nobroker.dir.exists()


def test_a_dump_of_jobs_gives_an_equal_queue(nobroker: CommandLine, tmp_path: Path) -> None:
    with nobroker.queue() as queue:
        queue.enqueue({"b": b"\xff", "n": float("inf")}, job_id="a", priority=3, metadata=[1])
        queue.enqueue_many(range(5), delay=60)
        queue.enqueue("x", job_id="dead", priority=9)
        [job] = queue.lease()
        queue.nack(job, error="no", dead=True)
        [job] = queue.lease()
        queue.ack(job, result={"ok": True})
    dump = tmp_path / "jobs.jsonl"
    assert nobroker("dump", "--jobs", "-o", str(dump)).code == 0
    found = nobroker.json("-q", "copy", "import", str(dump))
    assert (found["jobs"], found["added"]) == (True, 7)
    fields = [name for name in nobroker.json("list")[0] if name not in ("lease_token", "created")]

    def shown(name: str) -> list[list[Any]]:
        return [
            [job[field] for field in fields if field != "seq"] for job in nobroker.json("-q", name, "list")
        ]

    assert shown("copy") == shown("default")
    assert nobroker.json("-q", "copy", "import", str(dump))["added"] == 0


def _old_log(path: Path, *records: tuple[int, dict[str, Any]]) -> None:
    """Write a log in the format of nobroker 0.1."""
    data = struct.pack("<8sHIH", b"NOBROKER", 1, 0, 0)
    for kind, body in records:
        raw = json.dumps(body).encode()
        data += struct.pack("<IBI", len(raw), kind, zlib.crc32(raw, zlib.crc32(bytes([kind])))) + raw
    path.write_bytes(data)


def test_queues_of_the_old_package(nobroker: CommandLine, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    job = {"payload": 1, "priority": 2, "state": "ready", "attempts": 0, "max_attempts": 3,
           "available_at": 1.0, "enqueued_at": 1.0}  # fmt: skip
    jobs = [(1, {**job, "id": name, "seq": seq}) for seq, name in enumerate(("a", "b", "c"))]
    _old_log(old / "mails.000000.log", *jobs, (3, {"id": "a"}), (6, {"id": "b", "error": "no"}))
    _old_log(old / "other.000000.log", jobs[0])
    assert nobroker.json("import", "--from-v0", str(old)) == [
        {"queue": "mails", "read": 3, "added": 3},
        {"queue": "other", "read": 1, "added": 1},
    ]
    states = {job["id"]: (job["state"], job["priority"]) for job in nobroker.json("-q", "mails", "list")}
    assert states == {"a": ("done", 2), "b": ("dead", 2), "c": ("ready", 2)}
    ran = nobroker("-q", "other", "import", "--from-v0", str(old))
    assert (ran.code, ran.out) == (0, "other: 1 job read, 0 added\n")
    assert nobroker("-q", "none", "import", "--from-v0", str(old)).code == 1


def test_a_job_that_an_old_worker_has_waits_for_the_end_of_its_lease(
    nobroker: CommandLine, tmp_path: Path
) -> None:
    insert = {"payload": 1, "state": "ready", "max_attempts": 3, "available_at": 1.0, "enqueued_at": 1.0}
    soon = time.time() + 3600
    _old_log(
        tmp_path / "mails.000000.log",
        *((1, {**insert, "id": name, "seq": seq}) for seq, name in enumerate(("held", "over"))),
        (2, {"id": "held", "attempts": 2, "deadline": soon, "token": "x"}),
        (2, {"id": "over", "attempts": 1, "deadline": 5.0, "token": "y"}),
    )
    assert nobroker("import", "--from-v0", str(tmp_path)).code == 0
    with nobroker.queue("mails") as queue:
        assert [(job.id, job.attempts, job.available_at) for job in queue.lease(10)] == [("over", 2, 5.0)]
        held = queue.get("held")
        assert (held.state, held.attempts) == ("ready", 2)
        assert held.available_at == pytest.approx(soon, abs=1e-5)
        assert queue.check() == []
