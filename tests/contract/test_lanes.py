"""`Lanes`: patterns, and which lane comes first."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from nobroker import Job, Lanes, Queue, Worker

from . import words
from .conftest import Opener


def fill(queue: Queue, words: str) -> None:
    """Jobs by a text such as ``a0 b0 a1+5``: the letter is the lane, ``+5`` the priority."""
    for word in words.split():
        name, _, priority = word.partition("+")
        queue.enqueue(name, lane=name.rstrip("0123456789"), priority=int(priority or 0))


def payloads(jobs: Iterable[Job]) -> str:
    return " ".join(job.payload for job in jobs)


def take(queue: Queue, lanes: Lanes | None = None) -> Job:
    if lanes is None:
        return words.take(queue)
    (job,) = queue.lease(lanes=lanes)
    return job


def one_by_one(queue: Queue, lanes: Lanes) -> str:
    found = []
    while jobs := queue.lease(lanes=lanes):
        found += jobs
    return payloads(found)


@pytest.fixture(params=[1, 2, 100])
def leased(request: pytest.FixtureRequest, queue: Queue) -> Any:
    """All that lanes give, leased so many at a time."""

    def lease(*names: str, **options: Any) -> str:
        lanes, found = Lanes(names, **options), []
        while jobs := queue.lease(request.param, lanes=lanes):
            found += jobs
        return payloads(found)

    return lease


class TestPatterns:
    def test_which_lanes_are_served(self, queue: Queue, leased: Any) -> None:
        fill(queue, "mail0 mails0 mailbox0 other0")
        queue.enqueue("raw")
        assert leased("mails") == "mails0"
        assert leased("mail*") == "mail0 mailbox0"
        assert leased("*", without=["", "mails"]) == "other0"
        assert leased("*") == "raw"

    def test_an_asterisk_in_a_list_is_a_letter(self, queue: Queue) -> None:
        fill(queue, "a0")
        queue.enqueue("odd", lane="a*")
        assert payloads(queue.lease(9, lanes=["a*"])) == "odd"
        assert payloads(queue.lease(9, lanes=Lanes(["a*"]))) == "a0"

    def test_lanes_that_come_later(self, queue: Queue) -> None:
        lanes = Lanes(["beta*"])
        assert queue.lease(lanes=lanes) == []
        fill(queue, "gamma0 betamax0")
        assert payloads(queue.lease(9, lanes=lanes)) == "betamax0"

    def test_a_name_counts_where_it_stands_though_a_pattern_comes_first(
        self, queue: Queue, leased: Any
    ) -> None:
        fill(queue, "slow0 a0 slow1+9 b0")
        assert leased("*", "slow") == "a0 b0 slow1 slow0"

    def test_a_name_may_be_left_out_of_patterns_and_served_by_itself(self, queue: Queue, leased: Any) -> None:
        fill(queue, "x0 y0")
        assert leased("x", "*", without=["x", "y"]) == "x0"

    @pytest.mark.parametrize(
        "names, options",
        [
            ("text", {}),
            ([], {}),
            ([1], {}),
            (["a", "a"], {}),
            (["a"], {"order": "random"}),
            (["a"], {"without": "text"}),
        ],
    )
    def test_what_can_not_be(self, names: Any, options: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            Lanes(names, **options)

    def test_equal_when_they_say_the_same(self) -> None:
        assert Lanes(["a", "b"]) == Lanes(iter("ab"))
        assert len({Lanes(["a"]), Lanes(["a"]), Lanes(["a"], order="fair"), Lanes(["a"], without=["b"])}) == 3
        assert Lanes(["a"]) != ("a",)
        assert repr(Lanes(["a"], order="fair")) == "Lanes(['a'], order='fair')"


WORDS = "c0+9 a0 b0+1 a1+2 c1 b1 a2"


class TestOrder:
    def test_in_the_order_of_the_list(self, queue: Queue, leased: Any) -> None:
        fill(queue, WORDS)
        assert leased("a", "b", "c") == "a1 a0 a2 b0 b1 c0 c1"

    def test_the_lanes_of_a_pattern_are_one_by_priority(self, queue: Queue, leased: Any) -> None:
        fill(queue, WORDS)
        assert leased("b", "*") == "b0 b1 c0 a1 a0 c1 a2"

    def test_one_by_priority(self, queue: Queue, leased: Any) -> None:
        fill(queue, WORDS)
        assert leased("b", "a", "c", order="priority") == "c0 a1 b0 a0 c1 b1 a2"

    def test_in_turn(self, queue: Queue, leased: Any) -> None:
        fill(queue, WORDS)
        assert leased("b", "a", "c", order="fair") == "b0 a1 c0 b1 a0 c1 a2"

    def test_turns_go_on_from_one_lease_to_the_next(self, queue: Queue) -> None:
        fill(queue, "a0 a1 a2 a3 b0 b1")
        lanes = Lanes(["*"], order="fair")
        assert [payloads(queue.lease(3, lanes=lanes)) for _ in range(2)] == ["a0 b0 a1", "b1 a2 a3"]

    def test_a_lane_that_comes_anew_has_the_next_turn(self, queue: Queue) -> None:
        lanes = Lanes(["*"], order="fair")
        fill(queue, "a0 a1 a2 a3")
        assert payloads([take(queue, lanes) for _ in range(2)]) == "a0 a1"
        fill(queue, "b0 b1")
        assert one_by_one(queue, lanes) == "b0 a2 b1 a3"

    def test_of_two_lists_that_say_different_orders(self, queue: Queue) -> None:
        fill(queue, "a0 a1 b0 b1 a2")
        assert payloads(queue.lease(2, lanes=Lanes(["b", "a"]))) == "b0 b1"
        assert payloads(queue.lease(9, lanes=Lanes(["a"]))) == "a0 a1 a2"


ORDERS = ["ordered", "priority", "fair"]


@pytest.mark.parametrize("order", ORDERS)
class TestWhatIsHeldBack:
    def test_a_paused_lane_does_not_hold_up_those_behind_it(self, queue: Queue, order: str) -> None:
        fill(queue, "a0+9 a1+9 b0")
        queue.pause(lane="a")
        lanes = Lanes(["a", "*"], order=order)
        assert payloads(queue.lease(9, lanes=lanes)) == "b0"
        assert queue.lease(lanes=lanes) == []
        queue.resume(lane="a")
        assert payloads(queue.lease(9, lanes=lanes)) == "a0 a1"

    def test_a_full_lane_neither(self, queue: Queue, order: str) -> None:
        fill(queue, "a0+9 a1+9 a2+9 b0 b1")
        queue.lane_limit("a", 2)
        lanes = Lanes(["a", "b"], order=order)
        jobs = queue.lease(9, lanes=lanes)
        assert sorted(payloads(jobs).split()) == ["a0", "a1", "b0", "b1"]
        queue.ack_many(jobs)
        assert payloads(queue.lease(9, lanes=lanes)) == "a2"

    def test_jobs_that_wait_for_a_limit_neither(self, queue: Queue, order: str) -> None:
        from nobroker import Limit

        for number in range(3):
            queue.enqueue(f"a{number}", lane="a", priority=9, limits=Limit("k", 1))
        fill(queue, "b0 b1")
        lanes = Lanes(["a", "b"], order=order)
        jobs = queue.lease(9, lanes=lanes)
        assert sorted(payloads(jobs).split()) == ["a0", "b0", "b1"]
        queue.ack_many(jobs)
        assert payloads(queue.lease(9, lanes=lanes)) == "a1"

    def test_fair_keys_go_round_within_their_lane(self, queue: Queue, order: str) -> None:
        for name in ("x0", "x1", "x2", "y0"):
            queue.enqueue(name, lane="a", fair_key=name[0])
        fill(queue, "b0")
        found = one_by_one(queue, Lanes(["a", "b"], order=order)).split()
        assert [name for name in found if name != "b0"] == ["x0", "y0", "x1", "x2"]

    def test_a_job_that_runs_alone_has_its_turn_by_priority(self, queue: Queue, order: str) -> None:
        fill(queue, "a0 b0+9")
        queue.enqueue("alone", lane="b", priority=5, exclusive="app")
        fill(queue, "a1")
        lanes = Lanes(["a", "b"], order=order)
        found = []
        for _ in range(9):
            if not (jobs := queue.lease(9, lanes=lanes)):
                break
            found.append(payloads(jobs))
            queue.ack_many(jobs)
        taken = " ".join(found).split()
        assert sorted(taken) == ["a0", "a1", "alone", "b0"]
        assert "alone" in found, "nothing runs beside it"
        if order == "ordered":
            assert taken.index("a0") < taken.index("b0")
        assert taken.index("b0") < taken.index("alone")

    def test_a_job_that_runs_alone_in_a_lane_that_is_not_served(self, queue: Queue, order: str) -> None:
        fill(queue, "a0 b0")
        queue.enqueue("alone", lane="x", priority=5, exclusive="app")
        assert queue.lease(9, lanes=Lanes(["a", "b"], order=order)) == []
        queue.ack(take(queue, Lanes(["x", "a"], order=order)))
        assert payloads(queue.lease(9, lanes=Lanes(["a", "b"], order=order))) == "a0 b0"

    def test_a_last_try_comes_alone(self, queue: Queue, open_queue: Opener, order: str) -> None:
        queue.enqueue("a0", lane="a", max_attempts=2)
        take(queue)
        open_queue.clock.advance(31)
        fill(queue, "a1 b0")
        queue.enqueue("a2", lane="a", priority=5)
        lanes = Lanes(["a", "b"], order=order)
        found = [payloads(queue.lease(9, lanes=lanes)) for _ in range(3)]
        assert "a0" in found
        assert sorted(" ".join(found).split()) == ["a0", "a1", "a2", "b0"]

    def test_another_handle_sees_what_was_taken(self, queue: Queue, open_queue: Opener, order: str) -> None:
        fill(queue, WORDS)
        lanes, other = Lanes(["a", "b"], order=order), open_queue()
        found = payloads(
            [*queue.lease(2, lanes=lanes), *other.lease(2, lanes=lanes), *queue.lease(9, lanes=lanes)]
        )
        assert sorted(found.split()) == ["a0", "a1", "a2", "b0", "b1"]

    def test_a_worker(self, queue: Queue, order: str) -> None:
        fill(queue, WORDS)
        queue.enqueue("raw")
        found: list[str] = []
        lanes = Lanes(["b", "*"], order=order, without=[""])
        Worker(
            queue, lambda job: found.append(job.payload), lanes=lanes, idle_timeout=0.0, handle_signals=False
        ).run()
        expected = {
            "ordered": "b0 b1 c0 a1 a0 c1 a2",
            "priority": "c0 a1 b0 a0 c1 b1 a2",
            "fair": "b0 c0 a1 b1 c1 a0 a2",
        }
        assert " ".join(found) == expected[order]
        assert queue.stats(lane="").ready == 1


class TestWaiting:
    @pytest.mark.parametrize("lane", ["a", "b", "beta2"])
    def test_a_job_of_any_of_the_lanes_ends_it(self, queue: Queue, open_queue: Opener, lane: str) -> None:
        found: list[Job] = []
        lanes = Lanes(["a", "b", "beta*"])
        thread = threading.Thread(target=lambda: found.extend(queue.lease(wait=30, lanes=lanes)))
        thread.start()
        open_queue().enqueue("for c", lane="c")
        open_queue().enqueue(f"for {lane}", lane=lane)
        thread.join(20)
        assert payloads(found) == f"for {lane}"
