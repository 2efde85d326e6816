"""`enqueue` and `enqueue_many`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from nobroker import Job, JobState, Queue, SerializationError
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, drain, take


class TestEnqueue:
    def test_returns_the_job_as_it_stands_in_the_queue(self, queue: Queue) -> None:
        job = queue.enqueue({"n": 1}, metadata={"by": "me"}, lane="mail", priority=3, max_attempts=7)
        assert isinstance(job, Job)
        assert job.payload == {"n": 1}
        assert job.metadata == {"by": "me"}
        assert (job.lane, job.priority, job.max_attempts) == ("mail", 3, 7)
        assert (job.state, job.attempts, job.created) == (JobState.READY, 0, True)
        assert job.lease_token is None
        assert job.lease_deadline is None
        assert queue.get(job.id) == job

    def test_times_are_seconds_since_the_epoch(self, queue: Queue, clock: ManualClock) -> None:
        job = queue.enqueue(1)
        assert job.enqueued_at == job.available_at == clock.wall_us() / 1e6
        assert isinstance(job.enqueued_at, float)

    def test_seq_grows(self, queue: Queue) -> None:
        assert queue.enqueue(1).seq < queue.enqueue(2).seq < queue.enqueue_many([3])[0].seq

    def test_changing_the_job_changes_no_queue(self, queue: Queue) -> None:
        payload = {"n": [1]}
        job = queue.enqueue(payload)
        payload["n"].append(2)
        job.payload = None
        job.priority = 9
        assert take(queue).payload == {"n": [1]}

    def test_delay(self, queue: Queue, clock: ManualClock) -> None:
        job = queue.enqueue(1, delay=5)
        assert job.state == "ready"
        assert job.available_at == job.enqueued_at + 5
        assert counts(queue) == (0, 1, 0, 0, 0)
        clock.advance(4.999)
        assert queue.lease_one() is None
        clock.advance(0.001)
        assert counts(queue) == (1, 0, 0, 0, 0)
        assert take(queue).id == job.id

    def test_run_at_as_a_number_and_as_a_datetime(self, queue: Queue, clock: ManualClock) -> None:
        now = clock.wall_us() / 1e6
        one = queue.enqueue("number", run_at=now + 60)
        two = queue.enqueue("utc", run_at=datetime.fromtimestamp(now + 61, UTC))
        three = queue.enqueue("east", run_at=datetime.fromtimestamp(now + 62, timezone(timedelta(hours=9))))
        assert [job.available_at for job in (one, two, three)] == [now + 60, now + 61, now + 62]
        assert queue.lease(9) == []
        clock.advance(61)
        assert drain(queue) == ["number", "utc"]
        clock.advance(1)
        assert drain(queue) == ["east"]

    def test_run_at_in_the_past_is_due_now(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, run_at=clock.wall_us() / 1e6 - 1000)
        assert counts(queue)[0] == 1
        assert drain(queue) == [1]

    def test_run_at_follows_the_wall_clock_when_it_is_set(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, run_at=clock.wall_us() / 1e6 + 3600)
        queue.enqueue(2, delay=3600)
        clock.step_wall(3600)
        assert drain(queue) == [1]
        clock.advance(3600)
        assert drain(queue) == [2]

    def test_delay_and_run_at_exclude_each_other(self, queue: Queue, clock: ManualClock) -> None:
        with pytest.raises(ValueError, match="delay or run_at"):
            queue.enqueue(1, delay=1, run_at=clock.wall_us() / 1e6)
        assert len(queue) == 0

    def test_max_attempts_of_the_queue_and_of_the_job(self, open_queue: Opener) -> None:
        queue = open_queue(max_attempts=2)
        assert queue.enqueue(1).max_attempts == 2
        assert queue.enqueue(1, max_attempts=9).max_attempts == 9

    @pytest.mark.parametrize(
        "job_id", ["a", "x" * 255, "über/..:*", "nb-", "nb-1", "NB-0000000000000-1", "nb-0000000000000-1x"]
    )
    def test_own_id(self, queue: Queue, job_id: str) -> None:
        job = queue.enqueue(1, job_id=job_id)
        assert job.id == job_id
        assert queue.get(job_id) == job
        assert take(queue).id == job_id

    def test_expires_in(self, queue: Queue, clock: ManualClock) -> None:
        job = queue.enqueue(1, expires_in=10)
        assert job.expires_at == job.enqueued_at + 10
        clock.advance(9)
        assert take(queue).expires_at == job.expires_at

    def test_lane(self, queue: Queue) -> None:
        queue.enqueue(1, lane="a")
        assert queue.lease(5, lanes=["b"]) == []
        assert take(queue).lane == "a"

    def test_metadata_is_kept_over_a_retry(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, metadata={"k": [1, None]})
        queue.nack(take(queue))
        clock.advance(10)
        assert take(queue).metadata == {"k": [1, None]}

    def test_options_are_keywords(self, queue: Queue) -> None:
        with pytest.raises(TypeError):
            queue.enqueue(1, 5)  # type: ignore[misc]


class TestEnqueueMany:
    def test_any_iterable(self, queue: Queue) -> None:
        def walk() -> Iterator[int]:
            yield from range(3)

        assert len(queue.enqueue_many(walk())) == 3
        assert len(queue.enqueue_many({"a": 1, "b": 2})) == 2
        assert len(queue.enqueue_many(())) == 0
        assert drain(queue) == [0, 1, 2, "a", "b"]

    def test_nothing_gives_nothing(self, queue: Queue) -> None:
        assert queue.enqueue_many([]) == []
        assert queue.enqueue_many([], job_ids=[]) == []
        assert len(queue) == 0

    def test_the_result_is_a_sequence(self, queue: Queue) -> None:
        made = queue.enqueue_many(range(2500), priority=4, metadata="m")
        assert len(made) == 2500
        assert [job.payload for job in made] == list(range(2500))
        assert made[0].payload == 0
        assert made[-1].payload == made[2499].payload == 2499
        assert [job.payload for job in made[998:1003]] == [998, 999, 1000, 1001, 1002]
        assert [job.payload for job in made[::-1000]] == [2499, 1499, 499]
        assert made == list(made)
        assert list(made) == made
        assert made[:3] == list(made)[:3]
        assert made != list(made)[1:]
        assert made != "jobs"
        with pytest.raises(IndexError):
            made[2500]
        with pytest.raises(IndexError):
            made[-2501]
        assert made[7].metadata == "m"
        assert made[7].priority == 4
        assert all(made[i].id == queue.get(made[i].id).id for i in (0, 999, 1000, 2499))
        assert made[1234] == queue.get(made[1234].id)
        assert made[3] in made

    def test_each_look_gives_a_job_of_its_own(self, queue: Queue) -> None:
        made = queue.enqueue_many([{"n": 1}])
        made[0].payload["n"] = 2
        assert made[0].payload == {"n": 1}

    def test_delays(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue_many("abc", delays=[2, 0, 1])
        assert [job.available_at - job.enqueued_at for job in made] == [2, 0, 1]
        assert counts(queue) == (1, 2, 0, 0, 0)
        assert drain(queue) == ["b"]
        clock.advance(1)
        assert drain(queue) == ["c"]
        clock.advance(1)
        assert drain(queue) == ["a"]

    def test_delays_may_be_any_iterable(self, queue: Queue) -> None:
        queue.enqueue_many(range(3), delays=iter((0.5, 0, 0)))
        assert drain(queue) == [1, 2]

    def test_delays_with_ids_some_of_which_are_known(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue("old", job_id="b")
        made = queue.enqueue_many(["a", "b", "c"], job_ids=["a", "b", "c"], delays=[1, 2, 3])
        assert [job.created for job in made] == [True, False, True]
        assert [round(job.available_at - job.enqueued_at, 6) for job in made] == [1, 0, 3]
        assert drain(queue) == ["old"]
        clock.advance(1)
        assert drain(queue) == ["a"]
        clock.advance(1)
        assert drain(queue) == []
        clock.advance(1)
        assert drain(queue) == ["c"]

    @pytest.mark.parametrize("wrong", [[1], [1, 2, 3], []])
    def test_a_wrong_number_of_delays_or_ids(self, queue: Queue, wrong: list[int]) -> None:
        with pytest.raises(ValueError, match="delays"):
            queue.enqueue_many([1, 2], delays=wrong)
        with pytest.raises(ValueError, match="job_ids"):
            queue.enqueue_many([1, 2], job_ids=map(str, wrong))
        assert len(queue) == 0

    def test_delays_exclude_delay_and_run_at(self, queue: Queue) -> None:
        with pytest.raises(ValueError, match="delays"):
            queue.enqueue_many([1], delays=[1], delay=1)
        with pytest.raises(ValueError, match="delays"):
            queue.enqueue_many([1], delays=[1], run_at=1_900_000_000)
        assert len(queue) == 0

    def test_the_common_arguments(self, queue: Queue, clock: ManualClock) -> None:
        made = queue.enqueue_many([1, 2], priority=-1, delay=5, max_attempts=1, expires_in=60, lane="x")
        for job in made:
            assert (job.priority, job.max_attempts, job.lane) == (-1, 1, "x")
            assert job.available_at == job.enqueued_at + 5
            assert job.expires_at == job.enqueued_at + 60
            assert queue.get(job.id) == job
        later = queue.enqueue_many([3], run_at=clock.wall_us() / 1e6 + 9)
        assert later[0] == queue.get(later[0].id)

    def test_all_or_nothing_on_a_bad_payload(self, queue: Queue) -> None:
        with pytest.raises(SerializationError, match=r"payloads\[1500\]\['x'\]"):
            queue.enqueue_many({"x": object()} if n == 1500 else n for n in range(2000))
        assert len(queue) == 0

    def test_all_or_nothing_when_the_iterable_raises(self, queue: Queue) -> None:
        def walk() -> Iterator[Any]:
            yield 1
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            queue.enqueue_many(walk())
        assert len(queue) == 0

    def test_the_iterable_is_walked_before_anything_is_locked(self, open_queue: Opener) -> None:
        one, two = open_queue(lock_timeout=0.2), open_queue(lock_timeout=0.2)

        def walk() -> Iterator[int]:
            two.enqueue("between")
            one.enqueue("same handle")
            yield 1

        one.enqueue_many(walk())
        assert drain(two) == ["between", "same handle", 1]

    def test_repeated_ids_create_one_job_each(self, queue: Queue) -> None:
        made = queue.enqueue_many("abc", job_ids=["x", "y", "x"])
        assert len(made) == 3
        assert [job.id for job in made] == ["x", "y", "x"]
        assert [job.created for job in made] == [True, True, False]
        assert [job.payload for job in made] == ["a", "b", "a"]
        assert counts(queue)[0] == 2
        assert drain(queue) == ["a", "b"]

    def test_ids_across_many_records(self, queue: Queue) -> None:
        ids = [f"id-{n}" for n in range(2500)]
        queue.enqueue_many(range(0, 2500, 2), job_ids=ids[::2])
        made = queue.enqueue_many(range(2500), job_ids=ids)
        assert [job.created for job in made] == [n % 2 == 1 for n in range(2500)]
        assert [job.payload for job in made] == list(range(2500))
        assert queue.get("id-2499").payload == 2499
        assert counts(queue)[0] == 2500

    def test_large_payloads_share_no_record_limit(self, queue: Queue) -> None:
        big = [bytes([n]) * 300_000 for n in range(8)]
        made = queue.enqueue_many(big)
        assert [job.payload[0] for job in made] == list(range(8))
        assert drain(queue) == big
