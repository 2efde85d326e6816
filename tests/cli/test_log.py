"""The commands about the log itself: inspect, dump, check, recover; sound, torn and damaged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import BackoffPolicy, Worker

from .conftest import CommandLine, next_json, tree

LOOKING = [
    ["stats"],
    ["list"],
    ["list", "--state", "ready"],
    ["show", "a"],
    ["dlq"],
    ["queues"],
    ["queues", "--long"],
    ["inspect"],
    ["dump"],
    ["dump", "--jobs"],
    ["dump", "--records"],
    ["check"],
    ["recover"],
]


@pytest.fixture
def used(nobroker: CommandLine) -> CommandLine:
    """A queue in which something of everything happened."""
    with nobroker.queue(backoff=BackoffPolicy(base=0.0, jitter=0.0)) as queue:
        queue.enqueue({"n": 1}, job_id="a")
        queue.enqueue_many(range(4))
        first, second, third = queue.lease(3)
        queue.ack(first, result="fine")
        queue.nack(second, error="no ink", dead=True)
        queue.nack(third, error="no paper")
    return nobroker


def test_inspect_shows_every_record(used: CommandLine) -> None:
    records = used.json("inspect")
    kinds = [record["type"] for record in records]
    assert [kind for kind in kinds if kind in ("enqueue", "lease", "ack", "nack")] == [
        "enqueue", "enqueue", "lease", "ack", "nack", "nack",
    ]  # fmt: skip
    offsets = [record["offset"] for record in records]
    assert offsets == sorted(offsets)
    assert offsets[0] == 128
    lines = used("inspect").out.splitlines()
    assert len(lines) == len(records)
    assert lines[0].startswith("000001:128 ")
    assert '["no ink"]' in "\n".join(lines)
    assert used.json("inspect", "--limit", "2") == records[:2]
    assert used("inspect", "--limit", "2", "--follow").code == 2


@pytest.mark.processes
def test_inspect_follow_shows_records_as_they_are_written(used: CommandLine) -> None:
    already = len(used.json("inspect"))
    with used.start("--json", "inspect", "--follow") as following:
        seen = [next_json(following) for _ in range(already)]
        used("enqueue", "later", "--id", "later")
        while seen[-1]["tail"] != ["later"]:
            seen.append(next_json(following))
        following.send_signal(signal.SIGINT)
        following.stdout.read()
        assert following.wait(10) == 0
        assert following.stderr.read() == ""
    places = [(record["segment"], record["offset"]) for record in seen]
    assert places == sorted(set(places))


def test_dump_is_the_log_as_json_lines(used: CommandLine, tmp_path: Path) -> None:
    ran = used("dump")
    assert ran.code == 0
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [event["event"] for event in events].count("enqueue") == 5
    assert used.json("dump") == events
    jobs = [json.loads(line) for line in used("dump", "--jobs").out.splitlines()][1:]
    assert [job["id"] for job in jobs] == [job["id"] for job in used.json("list")]
    assert used("dump", "--records").out.count("\n") == len(used.json("inspect"))
    assert used("dump", "-o", str(tmp_path / "log.jsonl")).out == ""
    assert (tmp_path / "log.jsonl").read_text() == ran.out


def test_dump_to_where_nothing_can_be_written(used: CommandLine, tmp_path: Path) -> None:
    ran = used("dump", "-o", str(tmp_path / "no" / "such" / "place"))
    assert ran.code == 1
    ran.said_in_one_line()


def test_check_and_recover_of_a_sound_log(used: CommandLine) -> None:
    assert used("check").out == "default: nothing wrong\n"
    assert used.json("check") == []
    report = used.json("recover")
    assert (report["damage"], report["repaired"], report["bytes_discarded"]) == ("none", False, 0)
    assert (report["ready"], report["done"], report["dead"], report["total"]) == (3, 1, 1, 5)
    assert "damage           none\n" in used("recover").out
    salvaged = used.json("recover", "--salvage")
    assert (salvaged["losses"], salvaged["total"]) == ([], 5)


# -- looking changes nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_looking_changes_no_byte(used: CommandLine, words: list[str]) -> None:
    before = tree(used.dir)
    assert used(*words).code == 0
    assert tree(used.dir) == before


def _tear(directory: Path) -> None:
    """Put junk behind the last record, as a killed writer leaves it."""
    path = directory / "default.000001.seg"
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    end += -end % 8 + 16
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"NBr1jnk")


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_looking_at_a_torn_log_changes_no_byte(used: CommandLine, words: list[str]) -> None:
    _tear(used.dir)
    before = tree(used.dir)
    ran = used(*words)
    assert ran.code in (0, 1)
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") <= 1
    if words[0] in ("stats", "list", "show", "dlq", "queues"):
        assert ran.code == 0
    assert tree(used.dir) == before
    # The next writer cuts it: then there is nothing wrong any more.
    assert used("enqueue", "x").code == 0
    assert used("check").code == 0


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users and rights")
@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_looking_works_on_a_read_only_directory(used: CommandLine, words: list[str]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    before = tree(used.dir)
    with _read_only(used.dir):
        ran = used(*words)
        refused = used("enqueue", "x")
    assert ran.code == 0
    assert refused.code == 1
    refused.said_in_one_line()
    assert tree(used.dir) == before


@contextlib.contextmanager
def _read_only(directory: Path) -> Iterator[None]:
    for path in directory.iterdir():
        path.chmod(0o444)
    directory.chmod(0o555)
    try:
        yield
    finally:
        directory.chmod(stat.S_IRWXU)
        for path in directory.iterdir():
            path.chmod(0o644)


@pytest.mark.processes
@pytest.mark.skipif(os.name != "posix", reason="SIGSTOP")
def test_looking_works_while_a_stopped_process_holds_the_lock(used: CommandLine) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (used.dir / "default.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for words in LOOKING:
            assert used(*words).code == 0, words


# -- damage ---------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(nobroker: CommandLine) -> tuple[CommandLine, int]:
    """Three segments, and one flipped bit in the middle of a record of the first."""
    with nobroker.queue(segment_size=65536) as queue:
        for number in range(30):
            queue.enqueue({"n": number, "filling": os.urandom(3000).hex()}, job_id=f"job-{number}")
    path = nobroker.dir / "default.000001.seg"
    data = bytearray(path.read_bytes())
    place = data.index(b"job-3") + 200
    data[place] ^= 1
    path.write_bytes(data)
    for cache in ("default.snap", "default.000001.idx"):
        (nobroker.dir / cache).unlink(missing_ok=True)
    return nobroker, place


def test_damage_is_said_and_nothing_is_removed(damaged: tuple[CommandLine, int]) -> None:
    nobroker, _ = damaged
    before = tree(nobroker.dir)
    for words in (["check"], ["recover"], ["inspect"], ["dump"]):
        ran = nobroker(*words)
        assert ran.code == 1, (words, ran)
        assert ran.err.count("\n") == 1
    for words in (["stats"], ["list"], ["dlq"]):
        ran = nobroker(*words)
        assert ran.code == 0
        assert "before the damage" in ran.err
    ran = nobroker("enqueue", "x")
    assert ran.code == 1
    assert "default.000001.seg" in ran.said_in_one_line()
    assert "recover --salvage" in ran.err
    assert all(
        tree(nobroker.dir)[name][0] == data for name, (data, _) in before.items() if name.endswith(".seg")
    )
    nobroker("recover", "--salvage")


def test_inspect_goes_on_behind_the_damage(damaged: tuple[CommandLine, int]) -> None:
    nobroker, _ = damaged
    ran = nobroker("--json", "inspect")
    assert ran.code == 1
    found = [record["tail"][0]["n"] for record in ran.json if record["type"] == "enqueue"]
    assert found == [number for number in range(30) if number != 3]
    nobroker("recover", "--salvage")


def test_salvage_says_what_was_lost_and_keeps_the_rest(damaged: tuple[CommandLine, int]) -> None:
    nobroker, place = damaged
    before = (nobroker.dir / "default.000001.seg").read_bytes()
    report = nobroker.json("recover", "--salvage")
    [loss] = report["losses"]
    assert loss["path"].endswith("default.000001.seg")
    assert loss["offset"] <= place < loss["offset"] + loss["length"]
    assert report["bytes_lost"] == loss["length"]
    [kept] = report["kept_files"]
    assert Path(kept).read_bytes() == before
    assert report["total"] == 29
    assert [job["payload"]["n"] for job in nobroker.json("list")] == [n for n in range(30) if n != 3]
    assert nobroker("enqueue", "x").code == 0
    assert nobroker("compact").code == 0
    assert nobroker.json("stats")["ready"] == 30


def test_one_damaged_queue_hides_no_other(damaged: tuple[CommandLine, int]) -> None:
    nobroker, _ = damaged
    nobroker("-q", "other", "enqueue", "1")
    assert nobroker.json("queues") == ["default", "other"]
    rows = nobroker.json("queues", "--long")
    assert rows[1]["ready"] == 1
    assert nobroker("queues", "--long").code == 0
    nobroker("recover", "--salvage")


def test_a_file_that_is_no_log_is_left_alone(nobroker: CommandLine) -> None:
    nobroker.dir.mkdir()
    (nobroker.dir / "default.000001.seg").write_bytes(b"someone else's file\n" * 100)
    before = tree(nobroker.dir)
    for words in (
        ["enqueue", "1"],
        ["stats"],
        ["recover"],
        ["recover", "--salvage"],
        ["compact"],
        ["inspect"],
    ):
        ran = nobroker(*words)
        assert "Traceback" not in ran.err
        assert ran.code == 1, (words, ran)
    assert tree(nobroker.dir)["default.000001.seg"] == before["default.000001.seg"]
    (nobroker.dir / "default.000001.seg").unlink()


# -- text that cannot be stored as it is ----------------------------------------------------------------


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error", [ValueError("bad \udcff \x00"), _Unspeakable()], ids=["surrogate", "unspeakable"]
)
def test_dlq_shows_errors_that_are_hard_to_say(nobroker: CommandLine, error: Exception) -> None:
    calls = []

    def handler(job: object) -> None:
        calls.append(job)
        raise error

    with nobroker.queue(max_attempts=2, backoff=BackoffPolicy(base=0.0, jitter=0.0)) as queue:
        queue.enqueue(1)
        Worker(queue, handler, idle_timeout=0.3, handle_signals=False).run()
    assert len(calls) == 2
    [dead] = nobroker.json("dlq")
    assert dead["last_error"]
    ran = nobroker("dlq")
    assert ran.code == 0
    assert "\x00" not in ran.out
    ran.out.encode("utf-8")


def test_arguments_that_are_not_utf_8(nobroker: CommandLine) -> None:
    done = subprocess.run(
        [part.encode() for part in nobroker.words("enqueue")] + [b"f\xff"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ran = nobroker.process("list", text=False)
    assert ran.code == 0
    assert b"udcff" in ran.out
