"""The commands about whole queues: stats, list, queues, drop, purge, pause, resume, dlq, compact, backup."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from nobroker import Queue

from .conftest import CommandLine, next_json


def test_stats_has_its_counts_at_top_level(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1", "--count", "3")
    nobroker("lease")
    found = nobroker.json("stats")
    assert {name: found[name] for name in ("ready", "delayed", "leased", "done", "dead", "total")} == {
        "ready": 2, "delayed": 0, "leased": 1, "done": 0, "dead": 0, "total": 3,
    }  # fmt: skip
    assert found["paused"] is False
    assert found["bytes"] > 0
    assert found["oldest_ready_age"] >= 0
    text = nobroker("stats").out
    assert "ready             2\n" in text
    assert "total             3\n" in text


def test_stats_of_a_lane(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1", "--lane", "a")
    nobroker("enqueue", "2", "--lane", "b")
    assert nobroker.json("stats", "--lane", "a")["ready"] == 1


@pytest.mark.processes
def test_stats_watch_until_interrupted(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1")
    with nobroker.start("--json", "stats", "--watch", "0.05") as watching:
        lines = [next_json(watching) for _ in range(2)]
        nobroker("enqueue", "2")
        while lines[-1]["ready"] < 2:
            lines.append(next_json(watching))
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0
        assert watching.stderr.read() == ""


def test_list_states_and_limit(nobroker: CommandLine) -> None:
    for name in "abc":
        nobroker("enqueue", "1", "--id", name, "--priority", str("abc".index(name)))
    nobroker("lease")
    assert [job["id"] for job in nobroker.json("list")] == ["a", "b", "c"]
    assert [job["id"] for job in nobroker.json("list", "--state", "ready")] == ["b", "a"]
    assert [job["id"] for job in nobroker.json("list", "--state", "LEASED")] == ["c"]
    assert [job["id"] for job in nobroker.json("list", "--limit", "2")] == ["a", "b"]
    heading, *rows = nobroker("list").out.splitlines()
    assert heading.split("\t")[:2] == ["ID", "STATE"]
    assert [row.split("\t")[0] for row in rows] == ["a", "b", "c"]
    assert nobroker("list", "--state", "odd").code == 2
    assert nobroker("list", "--limit", "0").code == 2


def test_list_of_nothing(nobroker: CommandLine) -> None:
    nobroker.queue().close()
    assert nobroker.json("list") == []
    assert nobroker("list").code == 0


def test_options_may_stand_before_or_after_the_command(nobroker: CommandLine) -> None:
    assert nobroker("-q", "mails", "enqueue", "1").code == 0
    assert nobroker("enqueue", "2", "-q", "mails", "--json").json[0]["payload"] == 2
    assert nobroker("--json", "stats", "--queue", "mails").json["ready"] == 2
    assert nobroker("stats", "--json", "--dir", str(nobroker.dir / "nowhere")).code == 1


def test_the_directory_comes_from_the_environment(
    nobroker: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nobroker.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOBROKER_DIR", str(nobroker.dir))
    assert main(["enqueue", "1"]) == 0
    monkeypatch.delenv("NOBROKER_DIR")
    assert nobroker.json("stats")["ready"] == 1
    assert main(["enqueue", "1"]) == 0
    assert (tmp_path / "jobs").is_dir()


def test_queues_and_drop(nobroker: CommandLine) -> None:
    nobroker("-q", "a", "enqueue", "1")
    nobroker("-q", "b", "enqueue", "1", "--count", "2")
    assert nobroker.json("queues") == ["a", "b"]
    assert nobroker("queues").out == "a\nb\n"
    assert [(row["queue"], row["ready"]) for row in nobroker.json("queues", "--long")] == [("a", 1), ("b", 2)]
    assert nobroker("queues", "-l").out.splitlines()[2].split("\t")[:2] == ["b", "2"]
    refused = nobroker("drop", "a", stdin=b"n\n")
    assert refused.code == 1
    assert "nothing was changed" in refused.err
    assert nobroker("drop", "a").code == 1  # nobody there to confirm
    assert nobroker.json("queues") == ["a", "b"]
    assert nobroker("drop", "a", stdin=b"y\n").code == 0
    assert nobroker.json("drop", "b", "--yes") == {"dropped": "b"}
    assert nobroker.json("queues") == []


def test_purge_asks_first(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1", "--count", "3")
    assert nobroker("purge", stdin=b"n\n").code == 1
    assert nobroker("purge").code == 1
    assert nobroker.json("stats")["total"] == 3
    assert nobroker.json("purge", "--yes") == {"purged": 3}
    nobroker("enqueue", "1")
    assert nobroker("purge", stdin=b"yes\n").out == "purged 1 job\n"
    assert nobroker.json("stats")["total"] == 0


def test_purge_of_a_lane(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1", "--lane", "a")
    nobroker("enqueue", "2", "--lane", "b")
    assert nobroker.json("purge", "--yes", "--lane", "a") == {"purged": 1}
    assert [job["payload"] for job in nobroker.json("list")] == [2]


def test_pause_and_resume(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1")
    assert nobroker("pause").out == "paused default\n"
    assert nobroker("lease").code == 3
    assert nobroker.json("stats")["paused"] is True
    assert nobroker("resume").out == "resumed default\n"
    assert nobroker("lease").code == 0
    nobroker("enqueue", "2", "--lane", "a")
    assert nobroker.json("pause", "--lane", "a") == {"queue": "default", "lane": "a", "paused": True}
    assert nobroker("lease").code == 3
    assert nobroker.json("resume", "--lane", "a")["paused"] is False
    assert nobroker("lease").code == 0


def test_the_dead_letter_queue(nobroker: CommandLine) -> None:
    for name in ("a", "b", "c"):
        nobroker("enqueue", "1", "--id", name)
        nobroker("lease")
        nobroker("nack", name, "--dead", "--error", f"Traceback:\nValueError: no {name}")
    assert [job["id"] for job in nobroker.json("dlq")] == ["a", "b", "c"]
    assert [job["id"] for job in nobroker.json("dlq", "--limit", "1")] == ["a"]
    assert "ValueError: no b" in nobroker("dlq").out
    assert nobroker.json("dlq", "--requeue", "b") == {"requeued": 1}
    assert nobroker.json("show", "b")["attempts"] == 0
    assert nobroker.json("dlq", "--drop", "c") == {"dropped": 1}
    assert nobroker("show", "c").code == 1
    assert nobroker("dlq", "--drop", "--older-than", "3600").out == "dropped 0 jobs\n"
    assert nobroker("dlq", "--requeue").out == "requeued 1 job\n"
    assert nobroker.json("dlq") == []
    empty = nobroker("dlq")
    assert (empty.code, empty.out) == (0, "")
    assert "empty" in empty.err


@pytest.mark.parametrize("option", ["--requeue", "--drop"])
def test_dlq_of_an_id_that_is_not_dead(nobroker: CommandLine, option: str) -> None:
    nobroker("enqueue", "1")
    ran = nobroker("dlq", option, "no-such-job")
    assert ran.code == 1
    assert "no-such-job" in ran.said_in_one_line()


@pytest.mark.parametrize(
    "words", [["--requeue", "--drop"], ["--older-than", "1"], ["--requeue", "--limit", "1"]], ids=" ".join
)
def test_dlq_options_that_exclude_each_other(nobroker: CommandLine, words: list[str]) -> None:
    nobroker("enqueue", "1")
    assert nobroker("dlq", *words).code == 2


def _some_finished(nobroker: CommandLine, name: str) -> None:
    with nobroker.queue(name) as queue:
        queue.enqueue_many(range(100))
        queue.ack_many(queue.lease(90))


def test_compact(nobroker: CommandLine) -> None:
    _some_finished(nobroker, "default")
    found = nobroker.json("compact")
    assert (found["jobs_kept"], found["jobs_dropped"]) == (10, 90)
    assert found["bytes_reclaimed"] == found["bytes_before"] - found["bytes_after"] > 0
    assert nobroker.json("stats")["ready"] == 10
    ran = nobroker("compact")
    assert ran.code == 0
    assert ran.out.startswith("default: ")


def test_compact_several(nobroker: CommandLine) -> None:
    for name in ("a", "b", "c"):
        _some_finished(nobroker, name)
    assert [row["queue"] for row in nobroker.json("compact", "a", "b")] == ["a", "b"]
    assert [row["jobs_dropped"] for row in nobroker.json("compact", "--all")] == [0, 0, 90]
    assert nobroker("compact", "a", "no-such-queue").code == 1
    assert nobroker("compact", "a", "--all").code == 2
    assert nobroker("-q", "a", "compact", "a").code == 2


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_compact_watch_beside_others_until_a_signal(nobroker: CommandLine, number: signal.Signals) -> None:
    with nobroker.start("--json", "compact", "--all", "--watch", "0.1") as watching:
        for name in ("a", "b"):
            _some_finished(nobroker, name)
        dropped = dict.fromkeys("ab", 0)
        while min(dropped.values()) < 90:
            row = next_json(watching)
            dropped[row["queue"]] += row["jobs_dropped"]
        watching.send_signal(number)
        watching.stdout.read()
        assert watching.wait(10) == 0
    assert dropped == {"a": 90, "b": 90}


@pytest.mark.processes
def test_compact_watch_survives_a_held_lock(nobroker: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from nobroker import LockTimeoutError

    _some_finished(nobroker, "default")
    compact, calls = Queue.compact, []

    def busy_at_first(self: Queue) -> object:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise LockTimeoutError("held by process 1")
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return compact(self)

    monkeypatch.setattr(Queue, "compact", busy_at_first)
    ran = nobroker("compact", "--watch", "0.05")
    assert ran.code == 0
    assert ran.err == "default: held by process 1; will try again\n"
    assert len(ran.out.splitlines()) == 2
    assert len(calls) == 3


def test_backup(nobroker: CommandLine, tmp_path: Path) -> None:
    nobroker("enqueue", "1", "--id", "a")
    target = tmp_path / "copy"
    ran = nobroker("backup", str(target))
    assert ran.code == 0
    assert ran.out.strip()
    with Queue(target, read_only=True) as copy:
        assert copy.get("a").payload == 1
    again = nobroker("backup", str(target))
    assert again.code == 1
    again.said_in_one_line()


def test_bench(nobroker: CommandLine) -> None:
    rows = nobroker.json("bench", "--jobs", "20", "--no-fsync")
    assert [row["name"] for row in rows] == [
        "enqueue", "enqueue_many", "lease_one + ack", "lease(1000) + ack_many",
    ]  # fmt: skip
    assert all(row["ops_per_sec"] > 0 for row in rows)
    assert rows[1]["jobs"] == rows[3]["jobs"] == 20
    assert not nobroker.dir.exists()
    assert list(nobroker.dir.parent.iterdir()) == []
    assert nobroker("bench", "-n", "20").out.startswith("CALL\t")
