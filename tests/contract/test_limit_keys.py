"""Limits: how many jobs of a key, or of a lane, are leased at once; jobs that run alone."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nobroker import Job, JobState, Limit, NewJob, Queue, Worker
from nobroker.clock import ManualClock
from nobroker_tools.dump import dump_jobs
from nobroker_tools.importer import IMPORTERS

from .conftest import Opener
from .words import counts, take

ONE = Limit("k", 1)


def payloads(jobs: list[Job]) -> list[object]:
    return [job.payload for job in jobs]


class TestKeys:
    def test_at_most_so_many_are_leased_whatever_their_lanes(self, queue: Queue) -> None:
        for number, lane in enumerate(["", "a", "b", "a"]):
            queue.enqueue(number, lane=lane, limits=Limit("k", 2))
        queue.enqueue("free")
        held = queue.lease(9)
        assert payloads(held) == [0, 1, "free"]
        assert queue.lease(9) == queue.lease(9, lanes=["b"]) == []
        queue.ack(held[0])
        assert payloads(queue.lease(9, lanes=["b"])) == [2]
        queue.ack(held[1])
        assert payloads(queue.lease(9)) == [3]

    def test_blocked_jobs_count_as_ready_and_are_listed_in_order(self, queue: Queue) -> None:
        queue.enqueue_many("abc", limits=ONE)
        queue.enqueue("d", priority=1)
        take(queue), take(queue)
        assert counts(queue) == (2, 0, 2, 0, 0)
        assert payloads(queue.list_jobs("ready")) == ["b", "c"]
        assert queue.stats().oldest_ready_age == 0.0

    @pytest.mark.parametrize("end", ["ack", "nack", "release", "dead", "expiry", "purge"])
    def test_the_slot_ends_with_the_lease(self, queue: Queue, clock: ManualClock, end: str) -> None:
        queue.enqueue("a", limits=ONE, lane="x")
        queue.enqueue("b", limits=ONE)
        job = take(queue)
        assert queue.lease() == []
        ends: dict[str, Callable[[], Any]] = {
            "ack": lambda: queue.ack(job),
            "nack": lambda: queue.nack(job, delay=60),
            "release": lambda: queue.release(job, delay=60),
            "dead": lambda: queue.nack(job, dead=True),
            "expiry": lambda: clock.advance(31),
            "purge": lambda: queue.purge(lane="x"),
        }
        ends[end]()
        assert payloads(queue.lease(9, lanes=[""])) == ["b"]
        assert queue.lease(9) == []

    def test_the_slot_is_renewed_with_the_lease(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many("ab", limits=ONE)
        job = take(queue)
        for _ in range(5):
            clock.advance(25)
            queue.extend(job, 30)
            assert queue.lease() == []
        clock.advance(31)
        assert payloads(queue.lease()) == ["b"], "its turn was before that of the one that comes back"

    def test_a_job_of_several_keys_needs_room_at_each(self, queue: Queue) -> None:
        tenant, one, other = Limit("tenant", 2), Limit("object 1", 1), Limit("object 2", 1)
        for payload, limits in {"a": [tenant, one], "b": [tenant, one], "c": [other, tenant]}.items():
            queue.enqueue(payload, limits=limits)
        queue.enqueue("d", limits=[tenant])
        held = queue.lease(9)
        assert payloads(held) == ["a", "c"]
        queue.ack(held[1])
        assert payloads(queue.lease(9)) == ["d"], "the next one that has room at both"
        queue.ack(held[0])
        assert payloads(queue.lease(9)) == ["b"]

    def test_a_slot_is_passed_on_where_the_next_one_went_away(self, queue: Queue) -> None:
        queue.enqueue("a", limits=ONE)
        ids = [queue.enqueue(number, limits=[ONE, Limit(f"own {number}", 1)]).id for number in range(5)]
        job = take(queue)
        for job_id in ids[:3]:
            queue.cancel(job_id)
        queue.ack(job)
        assert payloads(queue.lease(9)) == [3]

    def test_the_next_one_is_first_in_the_order_of_delivery(self, queue: Queue) -> None:
        queue.enqueue("a", limits=ONE)
        job = take(queue)
        for priority in (0, 3, 1):
            queue.enqueue(priority, priority=priority, limits=[ONE, Limit(f"p{priority}", 1)])
        queue.enqueue("later", priority=9, limits=ONE, delay=5)
        queue.ack(job)
        for expected in (3, 1, 0):
            job = take(queue)
            assert job.payload == expected
            assert queue.lease() == []
            queue.ack(job)

    def test_the_newest_word_counts(self, open_queue: Opener, queue: Queue) -> None:
        queue.enqueue_many(range(6), limits=ONE)
        queue.lease(9)
        queue.enqueue(6, limits=Limit("k", 3))
        assert payloads(queue.lease(9)) == [1, 2]
        queue.enqueue(7, limits=Limit("k", 2))
        queue = open_queue.reopen(queue)
        queue.ack_many(queue.list_jobs("leased")[:1])
        assert queue.lease(9) == [], "two are held"
        queue.ack_many(queue.list_jobs("leased")[:1])
        assert payloads(queue.lease(9)) == [3]

    def test_a_word_lasts_as_long_as_its_jobs(self, open_queue: Opener, queue: Queue) -> None:
        queue.enqueue_many(range(4), limits=ONE)
        queue.enqueue("last word", limits=Limit("k", 2), priority=1)
        queue.ack(take(queue))
        open_queue.clock.advance(4000)
        queue.compact()
        queue = open_queue.reopen(queue)
        assert payloads(queue.lease(9)) == [0, 1], "what was said by a job that is forgotten counts on"
        queue.ack_many(queue.list_jobs("leased"))
        queue.ack_many(queue.lease(9))
        queue.enqueue_many("ab", limits=ONE)
        assert payloads(queue.lease(9)) == ["a"]

    def test_a_dead_job_brings_its_keys_again(self, open_queue: Opener, queue: Queue) -> None:
        queue.enqueue_many("ab", limits=ONE)
        queue.nack(take(queue), dead=True)
        queue.nack(take(queue), dead=True)
        queue.compact()
        queue = open_queue.reopen(queue)
        assert queue.requeue_dead() == 2
        assert len(queue.lease(9)) == 1

    def test_other_handles_see_the_same(self, open_queue: Opener, queue: Queue) -> None:
        other = open_queue()
        queue.enqueue_many(range(3), limits=ONE)
        job = take(other)
        assert queue.lease() == []
        other.ack(job)
        assert payloads(queue.lease(9)) == [1]
        assert other.lease() == []

    def test_kept_by_a_dump_and_an_import(self, open_queue: Opener, queue: Queue) -> None:
        queue.enqueue_many("ab", limits=[Limit("k", 1), Limit("l", 7, "discard")], exclusive="app")
        queue.enqueue("c", limits=ONE)
        lines = io.StringIO()
        dump_jobs(open_queue.dir, "default", lines)
        copy = open_queue("copy")
        IMPORTERS["jsonl"](io.BytesIO(lines.getvalue().encode()), copy, id_field=None)
        assert [job.limits for job in copy.list_jobs()] == [job.limits for job in queue.list_jobs()]
        assert payloads(copy.lease(9)) == ["a"]

    def test_a_look_writes_nothing(self, queue: Queue) -> None:
        queue.enqueue_many("ab", limits=ONE)
        take(queue)
        before = queue.stats().bytes
        for _ in range(5):
            assert queue.lease(3) == queue.lease(1, wait=0.001) == []
        assert queue.stats().bytes == before

    def test_who_waits_is_woken_by_a_free_slot(self, queue: Queue) -> None:
        queue.enqueue_many("ab", limits=ONE)
        job = take(queue)
        found: list[Job] = []
        thread = threading.Thread(target=lambda: found.extend(queue.lease(1, wait=30)))
        thread.start()
        while not queue._store._session.log.has_waiters():  # type: ignore[attr-defined]
            pass
        queue.ack(job)
        thread.join(20)
        assert payloads(found) == ["b"]

    def test_a_worker_goes_on_with_the_slot_it_freed(self, queue: Queue) -> None:
        queue.enqueue_many(range(20), limits=ONE)
        done: list[int] = []
        Worker(
            queue, lambda job: done.append(job.payload), concurrency=3, idle_timeout=0.2, handle_signals=False
        ).run()
        assert done == list(range(20))

    def test_jobs_of_one_call_with_limits_of_their_own(self, queue: Queue) -> None:
        queue.enqueue_all([NewJob(n, limits=Limit(f"k{n % 2}", 1)) for n in range(5)])
        assert payloads(queue.lease(9)) == [0, 1]


class TestDiscard:
    def test_not_taken_in_while_the_key_is_full(self, queue: Queue) -> None:
        once = Limit("k", 1, "discard")
        first = queue.enqueue("a", limits=once, job_id="a")
        refused = queue.enqueue("b", limits=once, job_id="b")
        assert (first.created, refused.created, refused.state) == (True, False, JobState.DONE)
        assert refused.id == "b"
        assert "discarded" in str(refused.last_error)
        assert len(queue) == 1
        queue.nack(take(queue), delay=60)
        assert not queue.enqueue("c", limits=once).created, "it will come back"
        queue.nack(take_later(queue), dead=True)
        assert queue.enqueue("d", limits=once).created

    def test_many_at_once(self, queue: Queue) -> None:
        jobs = queue.enqueue_many(range(5), limits=[Limit("k", 3, "discard"), Limit("l", 2)])
        assert [job.created for job in jobs] == [True] * 3 + [False] * 2
        assert payloads(list(jobs)) == list(range(5))
        assert len({job.id for job in jobs}) == 4
        assert not queue.enqueue_many("xy", limits=Limit("k", 3, "discard"))[0].created
        mixed = queue.enqueue_all(
            [NewJob("a", limits=Limit("n", 1, "discard")), NewJob("b", limits=Limit("n", 1, "discard"))]
        )
        assert [job.created for job in mixed] == [True, False]

    def test_known_ids_are_told_first(self, queue: Queue) -> None:
        once = Limit("k", 1, "discard")
        jobs = queue.enqueue_many("aabc", job_ids=["x", "x", "y", "y"], limits=once)
        assert [(job.id, job.created, job.state.value) for job in jobs] == [
            ("x", True, "ready"),
            ("x", False, "ready"),
            ("y", False, "done"),
            ("y", False, "done"),
        ]
        assert queue.enqueue("b", job_id="x", limits=once).payload == "a"


def take_later(queue: Queue) -> Job:
    clock: Any = queue._store._session.clock  # type: ignore[attr-defined]
    clock.advance(61)
    return take(queue)


class TestLanes:
    def test_a_lane_with_a_limit(self, open_queue: Opener, queue: Queue) -> None:
        queue.enqueue_many(range(5), lane="reports")
        queue.enqueue("other")
        queue.lane_limit("reports", 2)
        assert payloads(queue.lease(9)) == [0, 1, "other"]
        assert queue.lease() == queue.lease(1, lanes=["reports"]) == []
        queue = open_queue.reopen(queue)
        assert queue.lane_limits == {"reports": 2}
        queue.ack_many(queue.list_jobs("leased")[:1])
        assert payloads(queue.lease(9)) == [2]
        queue.purge()
        queue.compact()
        assert open_queue().lane_limits == {"reports": 2}
        queue.lane_limit("reports", None)
        assert queue.lane_limits == {}

    def test_lower_than_what_is_leased(self, queue: Queue) -> None:
        queue.enqueue_many(range(5))
        queue.lease(3)
        queue.lane_limit("", 2)
        queue.ack_many(queue.list_jobs("leased")[:1])
        assert queue.lease() == []
        queue.lane_limit("", 4)
        assert payloads(queue.lease(9)) == [3, 4]


class TestAlone:
    def test_leased_when_nothing_is_and_nothing_while_it_is(self, queue: Queue) -> None:
        queue.enqueue("a")
        first = take(queue)
        queue.enqueue("alone", exclusive="app", lane="x")
        queue.enqueue_many("bc", priority=0)
        queue.enqueue("urgent", priority=1)
        assert payloads(queue.lease(9)) == ["urgent"], "its turn holds up what comes behind it"
        assert queue.lease(9) == queue.lease(9, lanes=[""]) == []
        queue.ack_many(queue.list_jobs("leased"))
        assert queue.lease(9, lanes=[""]) == []
        assert payloads(queue.lease(9)) == ["alone"]
        queue.enqueue("more", priority=5)
        assert queue.lease(9) == []
        queue.ack_many(queue.list_jobs("leased"))
        assert payloads(queue.lease(9)) == ["more", "b", "c"]
        assert first.payload == "a"

    @pytest.mark.parametrize("ends", ["cancel", "pause", "purge"])
    def test_one_that_will_not_run_holds_up_nobody(self, queue: Queue, ends: str) -> None:
        queue.enqueue("a")
        take(queue)
        job = queue.enqueue("alone", exclusive="app", lane="x")
        queue.enqueue("b")
        assert queue.lease() == []
        verbs: dict[str, Callable[[], Any]] = {
            "cancel": lambda: queue.cancel(job.id),
            "pause": lambda: queue.pause(lane="x"),
            "purge": lambda: queue.purge(lane="x"),
        }
        verbs[ends]()
        assert payloads(queue.lease()) == ["b"]

    def test_two_of_them_take_turns(self, open_queue: Opener, queue: Queue) -> None:
        queue.enqueue_many("ab", exclusive="app")
        queue.enqueue("c")
        for expected in (["a"], ["b"], ["c"]):
            assert payloads(queue.lease(9)) == expected
            queue = open_queue.reopen(queue)
            assert queue.lease(9) == []
            queue.ack_many(queue.list_jobs("leased"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limit("", 1),
        lambda: Limit("k", 0),
        lambda: Limit("k", True),
        lambda: Limit("k", 1, "perhaps"),
        lambda: Limit("a\nb", 1),
        lambda: Limit(1, 1),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_limit(make: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


def test_what_no_job_takes(queue: Queue) -> None:
    wrong: list[dict[str, Any]] = [
        {"limits": "k"},
        {"limits": 1},
        {"limits": [("k", 1)]},
        {"limits": [Limit("k", 1), Limit("k", 2)]},
        {"limits": [Limit(str(n), 1) for n in range(17)]},
        {"exclusive": "worker"},
        {"exclusive": True},
    ]
    for options in wrong:
        with pytest.raises((TypeError, ValueError)):
            queue.enqueue(1, **options)
        with pytest.raises((TypeError, ValueError), match=r"jobs\[1\]"):
            queue.enqueue_all([NewJob(0), NewJob(1, **options)])
    for lane, limit in (("a", 0), ("a", True), (1, 1)):
        with pytest.raises((TypeError, ValueError)):
            queue.lane_limit(lane, limit)  # type: ignore[arg-type]
    assert len(queue) == 0
