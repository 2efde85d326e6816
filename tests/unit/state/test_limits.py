"""Rates, lanes, jobs that run alone; limits in snapshots and in what compaction writes."""

from __future__ import annotations

import pytest

from nobroker.state import kinds
from nobroker.state.gates import words_of
from nobroker.state.numbers import pack_words
from tests.unit.state.limited import Machine, key, rate


@pytest.fixture
def machine() -> Machine:
    return Machine()


# -- rates


def test_leases_within_a_window(machine: Machine) -> None:
    jobs = machine.add(6, rate("r", 2, 100))
    assert machine.state.next_event() > 10**9
    assert machine.lease() == jobs[:2]
    assert machine.state.ready.next_opening() == 1100
    assert machine.state.next_event() == 1100
    machine.ack(*jobs[:2])
    machine.pass_by(99)
    assert machine.lease() == []
    machine.pass_by(1)
    assert machine.lease(1) == [jobs[2]]
    machine.pass_by(40)
    assert machine.lease() == [jobs[3]]
    assert machine.state.ready.next_opening() == 1200
    machine.pass_by(60)
    assert machine.lease() == [jobs[4]]
    machine.pass_by(40)
    assert machine.lease() == [jobs[5]]
    machine.ack(*jobs[2:])
    machine.idle()


def test_what_a_rate_has_used(machine: Machine) -> None:
    ready = machine.state.ready
    assert ready.used("r", 100) == 0
    machine.add(3, rate("r", 2, 100))
    machine.lease()
    assert ready.used("r", 100) == 3
    machine.pass_by(60)
    assert ready.used("r", 50) == 1, "one that waits; the others were leased longer ago"
    machine.pass_by(40)
    assert ready.used("r", 100) == 1


def test_a_rate_that_is_said_anew(machine: Machine) -> None:
    jobs = machine.add(4, rate("r", 1, 100))
    assert machine.lease() == jobs[:1]
    machine.add(1, rate("r", 2, 100))
    assert machine.lease() == jobs[1:2]
    machine.add(1, rate("r", 2, 10))
    machine.pass_by(10)
    assert machine.lease() == jobs[2:4]


def test_rates_and_keys_outlive_a_retirement_and_a_snapshot(machine: Machine) -> None:
    machine.apply(kinds.LANE_LIMIT, l="a", n=1)
    jobs = machine.add(5, {**rate("r", 2, 100), "f": ["t", 1]})
    waiting = machine.add(2, l="a")
    assert machine.lease() == [*jobs[:2], waiting[0]]
    machine.retire()
    assert machine.lease() == []
    for state in (machine.carried(), machine.state):
        machine.state = state
        assert machine.lease() == []
        assert state.ready.lane_limits == {"a": 1}
        assert state.ready.next_opening() == 1100
    machine.pass_by(100)
    assert machine.lease() == jobs[2:4]


def test_a_retirement_that_says_nothing_of_a_rate(machine: Machine) -> None:
    jobs = machine.add(2, rate("r", 1, 100))
    machine.lease()
    base = {"s": 1, "k": 1, "S": 1, "K": 1, "t": 0, "p": []}
    machine.apply(kinds.RETIRE, B=base)
    assert machine.lease() == jobs[1:]


def test_rates_that_say_nothing_any_more_are_forgotten(machine: Machine) -> None:
    for number in range(200):
        (seq,) = machine.add(1, rate(f"r {number}", 1, 10))
        machine.lease()
        machine.ack(seq)
        machine.pass_by(1)
    assert len(machine.state.ready.rates) < 100
    machine.idle()


# -- lanes


def test_the_limit_of_a_lane(machine: Machine) -> None:
    machine.apply(kinds.LANE_LIMIT, l="a", n=2)
    jobs, others = machine.add(4, l="a"), machine.add(2, l="b")
    assert machine.lease() == [*jobs[:2], *others]
    assert machine.state.ready.limited
    assert not machine.state.ready.has_ready(None, frozenset())
    machine.ack(jobs[0])
    assert machine.state.ready.has_ready(None, frozenset())
    assert machine.lease(1) == [jobs[2]]
    machine.apply(kinds.LANE_LIMIT, l="a", n=None)
    assert machine.lease() == [jobs[3]]


def test_the_limit_of_a_lane_and_the_jobs_of_a_key(machine: Machine) -> None:
    machine.apply(kinds.LANE_LIMIT, l="a", n=2)
    limited = machine.add(5, key("k", 4), l="a")
    assert machine.lease() == limited[:2]
    machine.release(limited[0])
    assert machine.lease(1) == limited[:1]


# -- alone


def test_alone(machine: Machine) -> None:
    first = machine.add(1)
    (alone,) = machine.add(1, {"x": True}, l="x")
    behind = machine.add(2, l="a")
    assert machine.in_order() == [*first, alone, *behind]
    assert machine.lease() == first
    assert machine.lease() == machine.lease(9, ["a"]) == []
    assert not machine.state.ready.has_ready(None, frozenset())
    assert machine.state.ready.oldest(["x"], frozenset()) == 1000
    machine.ack(*first)
    assert not machine.state.ready.has_ready(["a"], frozenset())
    assert machine.lease(9, ["a"]) == [], "nobody else, as long as its turn is not over"
    assert machine.state.ready.has_ready(["x", "a"], frozenset())
    assert machine.lease() == [alone]
    assert machine.lease() == []
    assert not machine.state.ready.has_ready(None, frozenset())
    machine.ack(alone)
    assert machine.lease() == behind
    machine.ack(*behind)
    machine.idle()


def test_two_that_are_alone_and_a_paused_lane(machine: Machine) -> None:
    one = machine.add(1, {"x": True, **key("k", 1)}, l="x")
    two = machine.add(2, {"x": True}, l="y")
    plain = machine.add(1)
    machine.apply(kinds.PAUSE, p=True, l="x")
    assert machine.lease() == two[:1]
    machine.apply(kinds.PAUSE, p=False, l="x")
    machine.ack(two[0])
    assert machine.lease() == one
    machine.drop(*one)
    assert machine.lease() == two[1:]
    machine.nack(two[1], dead=True)
    assert machine.lease() == plain
    machine.requeue(two[1])
    machine.ack(*plain)
    assert machine.lease() == two[1:]


def test_one_that_is_later_than_the_others_waits_its_turn(machine: Machine) -> None:
    plain = machine.add(3)
    alone = machine.add(1, {"x": True}, p=-1, l="x")
    more = machine.add(1, l="b", p=-2)
    assert machine.lease(2) == plain[:2]
    assert machine.lease() == plain[2:]
    machine.ack(*plain)
    assert machine.lease() == alone
    machine.ack(*alone)
    assert machine.lease() == more


def test_one_whose_turn_comes_second(machine: Machine) -> None:
    """Between the rows of its lane and of others, its place counts like theirs."""
    a = machine.add(2, p=2, l="a")
    alone = machine.add(1, {"x": True}, p=1, l="x")
    b = machine.add(2, l="b")
    assert machine.lease(1) == a[:1]
    assert machine.lease(9) == a[1:]
    machine.ack(*a)
    assert machine.lease(9) == alone
    machine.ack(*alone)
    assert machine.lease(9) == b


def test_jobs_behind_one_that_was_to_run_alone_and_is_gone(machine: Machine) -> None:
    (alone,) = machine.add(1, {"x": True, **key("k", 5)})
    behind = machine.add(2, key("k", 5))
    machine.drop(alone)
    assert machine.lease() == behind


def test_jobs_that_are_let_through_by_one_that_was_to_run_alone(machine: Machine) -> None:
    """Nobody has looked at them when the others of their lane were looked at."""
    (alone,) = machine.add(1, {"x": True, **key("k", 5)})
    behind = machine.add(2, key("k", 5))
    plain = machine.add(1)
    machine.add(1, {"x": True}, l="x", p=-1)
    machine.drop(alone, behind[0])
    assert machine.lease() == [behind[1], *plain]


# -- snapshots and compaction


def test_a_snapshot_has_who_belongs_where(machine: Machine) -> None:
    machine.apply(kinds.LANE_LIMIT, l="z", n=7)
    keyed = machine.add(80, key("k", 2))
    machine.add(3, {**key("k", 2), **rate("r", 1, 50)}, l="a")
    machine.add(1, {"x": True}, l="x", p=-3)
    machine.add(2, key("k", 2), a=pack_words("q", [1500, 1200]))
    fair = machine.add(3, {"f": ["t", 3]})
    machine.lease(1)
    machine.nack(keyed[0], dead=True)
    held = machine.lease()
    again, state = machine.carried(), machine.state
    assert list(again.ready.in_order()) == list(state.ready.in_order())
    assert again.ready.dead == state.ready.dead
    assert {seq: again.ready.words(seq) for seq in again.ready.of} == {
        seq: state.ready.words(seq) for seq in state.ready.of
    }
    assert again.ready.gates["k"].held == state.ready.gates["k"].held
    assert again.ready.alone_held == state.ready.alone_held
    assert again.ready.lasting() == state.ready.lasting()
    outcomes = []
    for one in (state, again):
        machine.state, machine.now = one, 1000
        machine.ack(*held)
        taken = []
        for _ in range(60):
            machine.pass_by(25)
            found = machine.lease(3)
            taken.append(found)
            machine.ack(*found)
        outcomes.append(taken)
    assert outcomes[0] == outcomes[1]
    assert fair[0] in held


def test_a_snapshot_while_one_runs_alone(machine: Machine) -> None:
    (alone,) = machine.add(1, {"x": True})
    plain = machine.add(1)
    machine.lease()
    machine.state = machine.carried()
    assert machine.state.ready.alone_held == {alone}
    assert machine.lease() == []
    machine.ack(alone)
    assert machine.lease() == plain


def test_a_snapshot_of_runs_whose_jobs_are_gone(machine: Machine) -> None:
    jobs = machine.add(2, key("k", 1), a=1100)
    machine.drop(*jobs)
    machine.state = machine.carried()
    machine.pass_by(100)
    assert machine.lease() == []
    machine.idle()


def test_moved_jobs_bring_their_keys(machine: Machine) -> None:
    """As compaction writes them: by themselves, with the numbers that are in force, in each state."""
    head = {"c": key("k", 9), "C": key("k", 1), "l": "a"}
    machine.apply(kinds.MOVE, q=[5, 6, 9, 9], n=3, **head)
    words = machine.state.ready.words(5)
    assert words == words_of(key("k", 1))
    machine.apply(
        kinds.MOVE,
        q=[10, 13],
        n=4,
        o={
            0: {"s": "r", "n": 1, "a": 900},
            1: {"s": "l", "n": 1, "k": 70, "d": 1500},
            2: {"s": "x", "n": 3},
            3: {"s": "d", "n": 1},
        },
        **head,
    )
    ready = machine.state.ready
    assert sorted(ready.of) == [5, 6, 9, 10, 11]
    assert list(ready.dead) == [12]
    assert ready.gates["k"].held == {11}
    assert machine.lease() == []
    machine.ack(11)
    assert machine.lease() == [10]
    machine.ack(10)
    assert machine.lease(1) == [5]
    machine.requeue(12)
    assert ready.words(12) == words_of(key("k", 1))


def test_moved_jobs_of_whose_limits_nobody_said_anything_newer(machine: Machine) -> None:
    machine.apply(kinds.MOVE, q=[5, 5], n=1, c={"x": True})
    machine.apply(kinds.MOVE, q=[7, 7], n=1, o={0: {"s": "l", "n": 1, "k": 70, "d": 1500}}, c={"x": True})
    machine.apply(kinds.MOVE, q=[8, 8], n=1, o={0: {"s": "x", "n": 1}}, c={"x": True})
    assert machine.state.ready.alone_held == {7}
    assert machine.lease() == []
    machine.ack(7)
    assert machine.lease() == [5]
    assert machine.state.ready.dead[8].words.alone


def test_a_replacement_of_a_job_with_keys(machine: Machine) -> None:
    (job,) = machine.add(1, key("k", 1), a=1100)
    blocker = machine.add(1, key("k", 1))
    machine.lease()
    for avail in (1050, 1060):
        machine.apply(kinds.REPLACE, q=[job, job], n=1, a=avail, c=key("k", 1))
    machine.pass_by(60)
    assert machine.lease() == []
    machine.ack(*blocker)
    assert machine.lease() == [job]
    machine.release(job, delay=-30)
    machine.apply(kinds.REPLACE, q=[job, job], n=1, a=1040, c=key("k", 1))
    assert machine.lease() == [job]
    machine.apply(kinds.REPLACE, q=[job + 90, job + 90], n=1, a=1000, c=key("k", 1))
    assert machine.lease() == []
