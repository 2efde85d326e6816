"""Rates: how many leases of a key there are in some time."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from nobroker import Job, Limit, Queue, Rate
from nobroker.clock import ManualClock
from nobroker_tools.dump import dump_jobs
from nobroker_tools.importer import IMPORTERS

from .conftest import Opener
from .words import take

RATE = Rate("api", 3, 60)


def payloads(jobs: list[Job]) -> list[object]:
    return [job.payload for job in jobs]


def test_so_many_leases_in_any_duration(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(range(9), rates=RATE)
    queue.enqueue("free")
    queue.ack_many(queue.lease(1))
    clock.advance(20)
    queue.ack_many(queue.lease(1))
    jobs = queue.lease(9)
    assert payloads(jobs) == [2, "free"]
    queue.ack_many(jobs)
    for seconds, expected in ((39.5, []), (0.5, [3]), (19.5, []), (0.5, [4, 5])):
        clock.advance(seconds)
        jobs = queue.lease(9)
        assert payloads(jobs) == expected, "the window rolls"
        queue.ack_many(jobs)


def test_whatever_became_of_the_lease(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(range(4), rates=RATE, lane="x")
    queue.release(take(queue))
    queue.nack(take(queue), delay=0)
    clock.advance(1)
    assert len(queue.lease(9)) == 1
    queue.purge()
    queue.enqueue("more", rates=RATE)
    assert queue.lease(9) == [], "what was leased was leased"
    clock.advance(60)
    assert payloads(queue.lease(9)) == ["more"]


def test_a_restart_forgets_nothing(open_queue: Opener, queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(range(4), rates=RATE)
    queue.ack_many(queue.lease(9))
    clock.advance(30)
    queue = open_queue.reopen(queue)
    assert queue.lease() == open_queue().lease() == []
    queue.compact()
    assert queue.lease() == open_queue.scanned("default", open_queue.dir.parent / "copy").lease() == []
    queue = open_queue.reopen(queue)
    assert queue.lease() == []
    clock.advance(30)
    assert payloads(queue.lease(9)) == [3]


def test_a_key_that_nobody_brings_is_remembered(open_queue: Opener, queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(range(3), rates=RATE)
    queue.ack_many(queue.lease(9))
    queue.compact()
    queue = open_queue.reopen(queue)
    for number in range(200):  # other keys come and go
        queue.enqueue(number, rates=Rate(f"other {number}", 1, 1))
    queue.ack_many(queue.lease(300))
    clock.advance(59)
    queue.enqueue("more", rates=RATE)
    assert queue.lease(9) == []
    clock.advance(1)
    assert payloads(queue.lease(9)) == ["more"]


def test_many_keys_that_come_and_go(open_queue: Opener, queue: Queue, clock: ManualClock) -> None:
    for number in range(150):
        rates = [Rate(f"a {number}", 1, 60), Rate(f"b {number}", 2, 60)]
        queue.enqueue_many([number] * 3, rates=rates, fair_key=f"tenant {number}")
    for _ in range(3):
        jobs = queue.lease(999)
        assert sorted(payloads(jobs)) == list(range(150)), "each once a minute"
        queue.ack_many(jobs)
        assert queue.lease(999) == []
        queue.compact()
        queue = open_queue.reopen(queue)
        assert queue.lease(999) == []
        clock.advance(60)
    queue.enqueue("last", rates=Rate("other", 1, 1))
    queue.ack(take(queue))
    state = queue._store._session.state  # type: ignore[attr-defined]
    assert len(state.ready.rates) < 300, "what says nothing any more is let go of"


def test_a_look_uses_up_and_writes_nothing(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(range(5), rates=RATE)
    queue.lease(9, visibility_timeout=600)
    before = queue.stats().bytes
    for _ in range(20):
        clock.advance(2)
        assert queue.lease(9) == queue.lease(1, wait=0.001) == []
    assert queue.stats().bytes == before
    clock.advance(20)
    assert payloads(queue.lease(9)) == [3, 4]


def test_who_waits_wakes_when_there_is_room(tmp_path: Any) -> None:
    with Queue(tmp_path / "jobs", fsync=False) as queue:
        queue.enqueue_many("ab", rates=Rate("k", 1, 0.3))
        take(queue)
        assert payloads(queue.lease(1, wait=20)) == ["b"]
        assert queue.check() == []


def test_the_newest_word_counts(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(range(9), rates=RATE)
    queue.lease(9)
    queue.enqueue(9, rates=Rate("api", 5, 60))
    assert payloads(queue.lease(9)) == [3, 4]
    clock.advance(10)
    queue.enqueue(10, rates=Rate("api", 1, 10))
    assert payloads(queue.lease(9)) == [5]
    queue.enqueue(11, rates=Rate("api", 4, 10))
    assert payloads(queue.lease(9)) == [6, 7, 8]
    clock.advance(9)
    assert queue.lease(9) == []
    queue.enqueue(12, rates=Rate("api", 4, 5))
    assert payloads(queue.lease(9)) == [9, 10, 11, 12]


def test_with_other_keys(queue: Queue, clock: ManualClock) -> None:
    both: dict[str, Any] = {"rates": [Rate("fast", 9, 60), Rate("slow", 2, 60)], "limits": Limit("api", 1)}
    queue.enqueue_many(range(4), **both)
    for expected in ([0], [1], []):
        jobs = queue.lease(9)
        assert payloads(jobs) == expected
        queue.ack_many(jobs)
    clock.advance(60)
    assert payloads(queue.lease(9)) == [2]


def test_discarded_while_there_is_no_room(queue: Queue, clock: ManualClock) -> None:
    once = Rate("k", 2, 60, "discard")
    jobs = queue.enqueue_many(range(3), rates=once)
    assert [job.created for job in jobs] == [True, True, False]
    queue.ack(take(queue))
    assert not queue.enqueue("x", rates=once).created
    queue.ack(take(queue))
    assert not queue.enqueue("x", rates=once).created
    clock.advance(60)
    assert queue.enqueue("y", rates=once).created


def test_kept_by_a_dump_and_an_import(open_queue: Opener, queue: Queue) -> None:
    queue.enqueue_many(range(4), rates=[RATE, Rate("k", 1, 0.5, "discard")])
    lines = io.StringIO()
    dump_jobs(open_queue.dir, "default", lines)
    copy = open_queue("copy")
    IMPORTERS["jsonl"](io.BytesIO(lines.getvalue().encode()), copy, id_field=None)
    assert [job.limits for job in copy.list_jobs()] == [job.limits for job in queue.list_jobs()]
    assert payloads(copy.lease(9)) == [0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rate("k", 0, 1),
        lambda: Rate("k", 2_000_000, 1),
        lambda: Rate("k", 1, 0),
        lambda: Rate("k", 1, float("nan")),
        lambda: Rate("k", 1, 1, "wait"),
    ],
)
def test_what_is_no_rate(make: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


def test_what_no_job_takes(queue: Queue) -> None:
    for rates in ("k", Limit("k", 1), [RATE, RATE]):
        with pytest.raises((TypeError, ValueError)):
            queue.enqueue(1, rates=rates)  # type: ignore[arg-type]
    assert len(queue) == 0
