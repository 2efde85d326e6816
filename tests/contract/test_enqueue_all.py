"""`enqueue_all`: jobs of several kinds in one group."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nobroker import (
    Job,
    JobExistsError,
    JobsDiscardedError,
    Limit,
    NewJob,
    NobrokerError,
    Queue,
    QueueClosedError,
    QueueFullError,
    Rate,
    SerializationError,
    StorageError,
)
from nobroker.clock import ManualClock
from nobroker_tools.dump import KINDS

from .conftest import Opener
from .test_lease import Waiter, settle
from .words import counts, drain, take


def enqueues(queue: Queue) -> list[tuple[int, int]]:
    """The ENQUEUE records in the log: `(number of jobs, group)`, groups counted from 0."""
    out = io.StringIO()
    assert KINDS["records"](queue.dir, queue.name, out, print) == 0
    found: list[tuple[int, int]] = []
    group = 0
    for record in map(json.loads, out.getvalue().splitlines()):
        if record["type"] == "enqueue":
            found.append((record["head"]["n"], group))
        group += record["flags"] & 1
    return found


class TestWhatComesOfIt:
    def test_each_is_what_enqueue_would_have_made(self, open_queue: Opener, clock: ManualClock) -> None:
        now = clock.wall_us() / 1e6
        options: list[dict[str, Any]] = [
            {},
            {"priority": 7, "lane": "a"},
            {"delay": 5, "metadata": {"m": (1,)}},
            {"run_at": datetime.fromtimestamp(now + 50, UTC), "max_attempts": 1},
            {"run_at": now + 60},
            {"job_id": "mine", "expires_in": 30.5},
            {"delay": 2.5, "expires_in": 99, "lane": "é", "priority": -(2**31)},
            {},
        ]
        together, alone = open_queue("together"), open_queue("alone")
        made = together.enqueue_all([NewJob({"n": n}, **more) for n, more in enumerate(options)])
        expected = [alone.enqueue({"n": n}, **more) for n, more in enumerate(options)]
        assert type(made) is list
        assert [stripped(job) for job in made] == [stripped(job) for job in expected]
        assert [stripped(job) for job in together.list_jobs()] == [stripped(job) for job in alone.list_jobs()]
        assert [together.get(job.id) for job in made] == made
        clock.advance(29)
        assert drain(together) == drain(alone)

    def test_sequence_numbers_follow_each_other_in_the_order_given(self, queue: Queue) -> None:
        queue.enqueue("before")
        made = queue.enqueue_all(NewJob(n, priority=n % 3, lane="ab"[n % 2]) for n in range(2500))
        assert [job.seq for job in made] == list(range(made[0].seq, made[0].seq + 2500))
        assert [job.payload for job in made] == list(range(2500))
        assert queue.enqueue("after").seq == made[-1].seq + 1

    def test_none(self, queue: Queue) -> None:
        assert queue.enqueue_all([]) == queue.enqueue_all(iter(()), all_new=True) == []
        assert queue.stats().total == 0

    def test_a_payload_is_a_copy(self, queue: Queue) -> None:
        given = NewJob([1, (2,)], metadata=[3])
        (made,) = queue.enqueue_all([given])
        given.payload.append(9)
        assert made.payload == [1, [2]]
        assert queue.get(made.id).payload == [1, [2]]

    def test_jobs_of_different_times_come_in_their_order(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_all([NewJob(n, delay=n % 4, priority=n % 2) for n in range(40)])
        clock.advance(4)
        by_time = lambda parity: sorted((n for n in range(40) if n % 2 == parity), key=lambda n: n % 4)  # noqa: E731
        assert drain(queue) == by_time(1) + by_time(0)

    def test_a_waiter_is_woken(self, queue: Queue) -> None:
        waiter = Waiter(queue)
        settle()
        queue.enqueue_all([NewJob(1, delay=9), NewJob("woken")])
        assert [job.payload for job in waiter.result()] == ["woken"]

    def test_it_outlives_reopening_and_compaction(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue()
        kinds = [{}, {"lane": "a", "priority": 2}, {"delay": 7}, {"metadata": [1]}]
        made = queue.enqueue_all(
            NewJob("x" * 500, job_id=f"own-{n}" if n % 5 == 0 else None, **kinds[n // 50 % 4])
            for n in range(400)
        )
        queue.ack_many(queue.lease(90))
        queue.compact()
        queue = open_queue.reopen(queue)
        left = {job.id: job for job in queue.list_jobs() if job.state == "ready"}
        assert len(left) == 310
        assert all(left[job.id] == job for job in made if job.id in left)
        clock.advance(7)
        assert len(queue.lease(400)) == 310


class TestRecords:
    def test_alike_they_share_one(self, queue: Queue) -> None:
        queue.enqueue_all(NewJob(n, priority=3, lane="a", metadata={"m": 1}) for n in range(1000))
        assert [count for count, _ in enqueues(queue)] == [1000]

    def test_neighbours_share_and_all_are_one_group(self, queue: Queue) -> None:
        queue.enqueue_all([NewJob(n, lane="a" if n < 5 else "b", delay=float(n)) for n in range(12)])
        found = enqueues(queue)
        assert [count for count, _ in found] == [5, 7]
        assert len({group for _, group in found}) == 1

    @pytest.mark.parametrize("metadata", [[1, 1.0], [1, True], [{"a": 0}, {"a": False}], ["1", b"1"]])
    def test_what_is_equal_and_not_the_same_stays_apart(self, queue: Queue, metadata: list[Any]) -> None:
        made = queue.enqueue_all([NewJob(n, metadata=one) for n, one in enumerate(metadata)])
        assert [repr(job.metadata) for job in made] == [repr(one) for one in metadata]
        assert [repr(job.metadata) for job in queue.list_jobs()] == [repr(one) for one in metadata]


class TestIds:
    def test_known_ones_are_returned_and_not_added(self, queue: Queue) -> None:
        queue.enqueue("first", job_id="a")
        queue.ack(take(queue), result="r")
        made = queue.enqueue_all([NewJob(1, job_id="b"), NewJob(2, job_id="a", lane="x"), NewJob(3)])
        assert [(job.payload, job.created) for job in made] == [(1, True), ("first", False), (3, True)]
        assert (made[1].state, made[1].result) == ("done", "r")
        assert made[2].seq == made[0].seq + 1
        assert counts(queue) == (2, 0, 0, 1, 0)

    def test_repeats_are_the_first_of_them(self, queue: Queue) -> None:
        made = queue.enqueue_all(
            [NewJob(1, job_id="a"), NewJob(2), NewJob(3, job_id="a", lane="x"), NewJob(4, job_id="a")]
        )
        assert [(job.id, job.payload, job.created) for job in made] == [
            ("a", 1, True), (made[1].id, 2, True), ("a", 1, False), ("a", 1, False),
        ]  # fmt: skip
        assert made[0].seq == made[2].seq == made[3].seq == made[1].seq - 1
        assert counts(queue)[0] == 2

    def test_only_known_ones(self, queue: Queue) -> None:
        queue.enqueue_many("ab", job_ids=["a", "b"])
        made = queue.enqueue_all([NewJob(0, job_id="b"), NewJob(0, job_id="a")])
        assert [(job.payload, job.created) for job in made] == [("b", False), ("a", False)]
        assert counts(queue)[0] == 2

    def test_some_of_many_with_a_delay_each(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many(range(0, 1500, 3), job_ids=[f"id-{n}" for n in range(0, 1500, 3)])
        made = queue.enqueue_all(NewJob(n, job_id=f"id-{n}", delay=n / 10) for n in range(1500))
        assert [job.created for job in made] == [n % 3 != 0 for n in range(1500)]
        now = clock.wall_us() / 1e6
        assert all(queue.get(job.id) == job for job in made if job.created)
        assert made[1000].available_at == pytest.approx(now + 100)

    @pytest.mark.parametrize("given", [["new", "known"], ["new", "twice", "other", "twice"]])
    def test_all_new_writes_nothing_when_one_is_not(
        self, open_queue: Opener, queue: Queue, given: list[str]
    ) -> None:
        queue.enqueue("first", job_id="known")
        size = queue.stats().bytes
        with pytest.raises(JobExistsError, match="none of the jobs was added") as caught:
            queue.enqueue_all([NewJob("plain"), *(NewJob(1, job_id=one) for one in given)], all_new=True)
        assert caught.value.job_id == given[-1]
        assert isinstance(caught.value, NobrokerError)
        assert (counts(queue)[0], queue.stats().bytes) == (1, size)
        assert [job.id for job in open_queue.reopen(queue).list_jobs()] == ["known"]

    def test_all_new_writes_nothing_when_a_limit_keeps_one_out(self, queue: Queue) -> None:
        once = Limit("k", 2, "discard")
        queue.enqueue("there", limits=once)
        rate = Rate("r", 1, 60, "discard")
        jobs = [NewJob(1, limits=once), NewJob(2), NewJob(3, limits=once, job_id="a"), NewJob(4, rates=rate)]
        with pytest.raises(JobsDiscardedError, match="limits keep 2 of the jobs out") as caught:
            queue.enqueue_all([*jobs, NewJob(5, rates=rate)], all_new=True)
        assert caught.value.jobs == [2, 4]
        assert queue.stats().total == 1
        made = queue.enqueue_all([jobs[0], jobs[1], jobs[3]], all_new=True)
        assert [(job.created, job.seq - made[0].seq) for job in made] == [(True, 0), (True, 1), (True, 2)]
        assert [job.created for job in queue.enqueue_all(jobs)] == [False, True, False, False]

    def test_all_new_when_all_are(self, queue: Queue) -> None:
        queue.enqueue("first", job_id="known")
        made = queue.enqueue_all([NewJob(1, job_id="a"), NewJob(2), NewJob(3, job_id="b")], all_new=True)
        assert all(job.created for job in made)
        assert counts(queue)[0] == 4

    def test_one_that_was_forgotten_is_new(self, queue: Queue) -> None:
        queue.enqueue("first", job_id="a")
        queue.purge()
        assert queue.enqueue_all([NewJob(2, job_id="a")], all_new=True)[0].created

    def test_with_lone_letters_of_every_kind(self, queue: Queue) -> None:
        made = queue.enqueue_all([NewJob(1, job_id="é" * 255), NewJob(2), NewJob(3, job_id="nb-x")])
        assert [queue.get(job.id).payload for job in made] == [1, 2, 3]


class TestRefusals:
    @pytest.mark.parametrize(
        ("wrong", "named"),
        [
            ({"priority": 2**31}, r"jobs\[3\]\.priority"),
            ({"delay": -1}, r"jobs\[3\]\.delay"),
            ({"delay": float("nan")}, r"jobs\[3\]\.delay"),
            ({"run_at": datetime(2030, 1, 1)}, r"jobs\[3\]\.run_at"),
            ({"run_at": 5, "delay": 1}, r"jobs\[3\]\.delay or run_at"),
            ({"max_attempts": 0}, r"jobs\[3\]\.max_attempts"),
            ({"expires_in": 0}, r"jobs\[3\]\.expires_in"),
            ({"job_id": ""}, r"jobs\[3\]\.job_id"),
            ({"job_id": "nb-0123456789abc-7"}, r"jobs\[3\]\.job_id"),
            ({"lane": "a\n"}, r"jobs\[3\]\.lane"),
            ({"metadata": {"a": {1}}}, r"jobs\[3\]\.metadata\['a'\]"),
        ],
    )
    def test_values(self, queue: Queue, wrong: dict[str, Any], named: str) -> None:
        jobs = [NewJob(1), NewJob(2, job_id="fine"), NewJob(3), NewJob(4, **wrong), NewJob(5)]
        with pytest.raises(ValueError, match=named):
            queue.enqueue_all(jobs)
        assert queue.stats().total == 0

    @pytest.mark.parametrize(
        "wrong",
        [{"priority": True}, {"delay": False}, {"run_at": "now"}, {"max_attempts": 1.0}, {"job_id": 5},
         {"expires_in": "1"}, {"lane": None}],
    )  # fmt: skip
    def test_types(self, queue: Queue, wrong: dict[str, Any]) -> None:
        (name,) = wrong
        with pytest.raises(TypeError, match=rf"jobs\[1\]\.{name}"):
            queue.enqueue_all([NewJob(1, priority=1), NewJob(2, **wrong)])
        assert queue.stats().total == 0

    def test_a_payload_names_its_place(self, queue: Queue) -> None:
        jobs = [NewJob(n, lane="a" if n < 1200 else "b") for n in range(3000)]
        jobs[2500].payload = {"tags": [1, {2}]}
        with pytest.raises(SerializationError, match=r"jobs\[2500\]\.payload\['tags'\]\[1\]"):
            queue.enqueue_all(jobs)
        assert queue.stats().total == 0

    @pytest.mark.parametrize("wrong", [{"payload": 1}, "job", None, 5])
    def test_things_that_are_no_new_jobs(self, queue: Queue, wrong: Any) -> None:
        with pytest.raises(TypeError, match=r"jobs\[1\]"):
            queue.enqueue_all([NewJob(1), wrong])
        with pytest.raises(TypeError):
            queue.enqueue_all(5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="all_new"):
            queue.enqueue_all([NewJob(1)], all_new=1)  # type: ignore[arg-type]

    def test_an_iterable_that_breaks_or_asks_the_queue(self, queue: Queue) -> None:
        def walk(fails: bool) -> Iterator[NewJob]:
            yield NewJob(queue.stats().total)
            if fails:
                raise OSError("no more")
            yield NewJob(queue.enqueue("inside").payload)

        with pytest.raises(OSError, match="no more"):
            queue.enqueue_all(walk(True))
        assert [job.payload for job in queue.enqueue_all(walk(False))] == [0, "inside"]

    def test_a_full_queue_takes_none_of_them(self, open_queue: Opener) -> None:
        queue = open_queue(max_bytes=100_000)
        with pytest.raises(QueueFullError):
            queue.enqueue_all([NewJob("x" * 1000, priority=n % 2) for n in range(200)])
        assert queue.stats().total == 0
        queue.enqueue("known", job_id="known")
        assert len(queue.enqueue_all([NewJob("x" * 1000, priority=n % 2) for n in range(10)])) == 10
        with pytest.raises(QueueFullError):
            queue.enqueue_all(NewJob(n, job_id=f"{n}-{'i' * 240}") for n in range(400))
        assert not queue.enqueue_all([NewJob("y" * 10**6, job_id="known")])[0].created

    def test_a_closed_or_a_read_only_queue(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue(1)
        queue.close()
        with pytest.raises(QueueClosedError):
            queue.enqueue_all([NewJob(1)])
        with pytest.raises(StorageError):
            open_queue(read_only=True).enqueue_all([NewJob(1)])


class TestNewJob:
    def test_is_a_plain_value(self) -> None:
        job = NewJob({"a": 1}, lane="x")
        assert job == NewJob({"a": 1}, lane="x")
        assert job != NewJob({"a": 1})
        assert repr(job).startswith("NewJob(payload={'a': 1}, priority=0, delay=0.0,")
        with pytest.raises(AttributeError):
            job.color = "red"  # type: ignore[attr-defined]

    def test_of_a_subclass(self, queue: Queue) -> None:
        class Mail(NewJob):
            __slots__ = ()

        assert [job.payload for job in queue.enqueue_all([NewJob(1), Mail(2), NewJob(3)])] == [1, 2, 3]


def stripped(job: Job) -> dict[str, Any]:
    """Without what names the queue."""
    found = job.to_dict()
    if found["id"].startswith("nb-"):
        found["id"] = found["id"].rpartition("-")[2]
    return found
