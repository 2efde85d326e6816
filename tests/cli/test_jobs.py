"""The commands about single jobs: enqueue, lease, ack, nack, show, cancel."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import CommandLine


def test_enqueue_prints_the_id(nobroker: CommandLine) -> None:
    ran = nobroker("enqueue", '{"a": [1, null]}')
    assert (ran.code, ran.err) == (0, "")
    job_id = ran.out.strip()
    with nobroker.queue() as queue:
        assert queue.get(job_id).payload == {"a": [1, None]}


def test_enqueue_takes_every_option(nobroker: CommandLine) -> None:
    words = ["--priority", "7", "--delay", "60", "--max-attempts", "2", "--id", "mine", "--lane", "slow"]
    [job] = nobroker.json("enqueue", "x", *words, "--metadata", '{"by": "me"}', "--expires-in", "600")
    assert (job["id"], job["priority"], job["max_attempts"], job["lane"]) == ("mine", 7, 2, "slow")
    assert job["metadata"] == {"by": "me"}
    assert job["available_at"] == pytest.approx(job["enqueued_at"] + 60, abs=1)
    assert job["expires_at"] == pytest.approx(job["enqueued_at"] + 600, abs=1)
    assert nobroker.json("stats")["delayed"] == 1


def test_enqueue_at_a_time(nobroker: CommandLine) -> None:
    [job] = nobroker.json("enqueue", "x", "--run-at", "4000000000")
    assert job["available_at"] == 4_000_000_000


@pytest.mark.parametrize(
    "text, payload", [("NaN", "NaN"), ("[NaN]", "[NaN]"), ("hello", "hello"), ("7", 7), ('"7"', "7")]
)
def test_a_payload_that_is_not_json_is_text(nobroker: CommandLine, text: str, payload: Any) -> None:
    assert nobroker.json("enqueue", text)[0]["payload"] == payload


def test_enqueue_from_standard_input(nobroker: CommandLine) -> None:
    assert nobroker.json("enqueue", "-", stdin=b'{"n": 1}\n')[0]["payload"] == {"n": 1}
    assert (
        nobroker.json("enqueue", "-", stdin="zwei Zeilen\nGrüße\n".encode())[0]["payload"]
        == "zwei Zeilen\nGrüße"
    )
    assert nobroker("enqueue", "-", stdin=b"not utf-8: \xff").code == 0
    with nobroker.queue() as queue:
        assert queue.list_jobs()[-1].payload == "not utf-8: \udcff"


def test_enqueue_the_same_id_again_adds_nothing(nobroker: CommandLine) -> None:
    assert nobroker.json("enqueue", "1", "--id", "k")[0]["created"] is True
    again = nobroker("enqueue", "2", "--id", "k")
    assert (again.code, again.out) == (0, "k\n")
    assert "nothing was added" in again.err
    assert nobroker.json("enqueue", "2", "--id", "k")[0]["created"] is False
    assert [job["payload"] for job in nobroker.json("list")] == [1]


def test_enqueue_copies_in_batches(nobroker: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nobroker.cli.enqueue.BATCH", 10)
    ran = nobroker("enqueue", "x", "--count", "25", "--priority", "2", "--delay", "30")
    assert ran.code == 0
    ids = ran.out.split()
    assert len(set(ids)) == 25
    found = nobroker.json("list")
    assert [job["id"] for job in found] == ids
    assert {(job["payload"], job["priority"]) for job in found} == {("x", 2)}
    assert nobroker.json("stats")["delayed"] == 25


def test_count_with_id_is_wrong_usage(nobroker: CommandLine) -> None:
    ran = nobroker("enqueue", "x", "--count", "2", "--id", "k")
    assert ran.code == 2
    assert not nobroker.dir.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--delay", "nan"],
        ["--delay", "inf"],
        ["--delay", "-1"],
        ["--priority", "99999999999"],
        ["--max-attempts", "0"],
        ["--expires-in", "nan"],
        ["--id", ""],
        ["--id", "x" * 300],
        ["--id", "a\nb"],
    ],
    ids=" ".join,
)
def test_options_outside_their_range_write_nothing(nobroker: CommandLine, words: list[str]) -> None:
    nobroker("enqueue", "first")
    ran = nobroker("enqueue", "x", *words)
    assert ran.code == 1
    ran.said_in_one_line()
    assert nobroker.json("stats")["total"] == 1


def test_lease_ack_and_show(nobroker: CommandLine) -> None:
    nobroker("enqueue", "work", "--id", "a")
    leased = nobroker("lease")
    assert leased.code == 0
    assert "a\t" in leased.out
    shown = nobroker.json("show", "a")
    assert (shown["state"], shown["attempts"]) == ("leased", 1)
    assert nobroker.json("ack", "a", "--result", '{"pages": 3}') == {"acked": "a"}
    shown = nobroker.json("show", "a")
    assert (shown["state"], shown["result"]) == ("done", {"pages": 3})
    assert "pages" in nobroker("show", "a").out
    assert nobroker("ack", "a").code in (0, 1)


def test_lease_several_and_in_order(nobroker: CommandLine) -> None:
    for payload, priority in (("low", "0"), ("high", "5"), ("middle", "1")):
        nobroker("enqueue", payload, "--priority", priority)
    assert [job["payload"] for job in nobroker.json("lease", "--count", "2")] == ["high", "middle"]
    assert [job["payload"] for job in nobroker.json("lease", "-n", "5")] == ["low"]


def test_lease_for_so_long_from_a_lane(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1", "--lane", "a")
    nobroker("enqueue", "2", "--lane", "b")
    [job] = nobroker.json("lease", "-n", "9", "--lane", "b", "--visibility-timeout", "900")
    assert job["payload"] == 2
    with nobroker.queue() as queue:
        assert queue.get(job["id"]).lease_deadline > job["enqueued_at"] + 800


def test_lease_of_an_empty_queue_is_3(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1")
    nobroker("lease")
    ran = nobroker("lease", "--wait", "0.05")
    assert (ran.code, ran.out, ran.err) == (3, "", "nothing to lease\n")
    assert nobroker.json("lease", code=3) == []


def test_a_token_that_is_no_longer_current_is_refused(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1", "--id", "a")
    token = nobroker.json("lease")[0]["lease_token"]
    for verb in ("ack", "nack"):
        ran = nobroker(verb, "a", "--token", str(token + 1))
        assert ran.code == 1
        ran.said_in_one_line()
    assert nobroker.json("show", "a")["state"] == "leased"
    assert nobroker("ack", "a", "--token", str(token)).code == 0


def test_nack_retries_or_kills(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1", "--id", "a", "--max-attempts", "2")
    nobroker("lease")
    job = nobroker.json("nack", "a", "--error", "no paper", "--delay", "0")
    assert (job["state"], job["last_error"]) == ("ready", "no paper")
    nobroker("lease")
    ran = nobroker("nack", "a", "--error", "no ink")
    assert (ran.code, ran.out) == (0, "nacked a: dead, attempt 2 of 2\n")
    nobroker("enqueue", "2", "--id", "b")
    nobroker("lease")
    assert nobroker.json("nack", "b", "--dead")["state"] == "dead"
    nobroker("enqueue", "3", "--id", "c", "--max-attempts", "1")
    nobroker("lease")
    assert nobroker.json("nack", "c", "--retry")["state"] == "ready"


@pytest.mark.parametrize("verb", ["ack", "nack", "show", "cancel"])
def test_an_unknown_id_is_1(nobroker: CommandLine, verb: str) -> None:
    nobroker("enqueue", "1")
    ran = nobroker(verb, "no-such-job")
    assert ran.code == 1
    assert "no-such-job" in ran.said_in_one_line()


def test_cancel(nobroker: CommandLine) -> None:
    for name in ("waits", "works"):
        nobroker("enqueue", "1", "--id", name, "--priority", "1" if name == "works" else "0")
    nobroker("lease")
    assert nobroker("cancel", "waits").out == "cancelled waits\n"
    assert nobroker.json("show", "waits")["last_error"] == "cancelled"
    assert "told to stop" in nobroker("cancel", "works").out
    assert nobroker.json("show", "works")["cancel_requested"] is True
    nobroker("ack", "works")
    assert "done already" in nobroker("cancel", "works").out


def test_values_that_json_lacks_are_tagged(nobroker: CommandLine) -> None:
    with nobroker.queue() as queue:
        queue.enqueue({"bytes": b"\x00\xff", "nan": float("nan"), "lone": "\udcff"}, job_id="odd")
    payload = nobroker.json("show", "odd")["payload"]
    assert payload["bytes"] == {"$bytes": "AP8="}
    assert payload["nan"] == {"$float": "nan"}
    assert nobroker("list").code == nobroker("show", "odd").code == 0


def test_deep_payloads_are_shown(nobroker: CommandLine) -> None:
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    with nobroker.queue() as queue:
        queue.enqueue(deep, job_id="deep")
    assert nobroker.json("show", "deep")["payload"] == deep
    assert nobroker("show", "deep").code == nobroker("list").code == 0
