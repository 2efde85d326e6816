"""Keys: who may be leased, and what is left of it afterwards."""

from __future__ import annotations

import pytest

from nobroker.state import codes, kinds
from nobroker.state.gates import Group, said_of, words_of
from tests.unit.state.limited import Machine, key, rate


@pytest.fixture
def machine() -> Machine:
    return Machine()


# -- keys


def test_at_most_so_many_and_each_end_of_a_lease_lets_the_next_one_in(machine: Machine) -> None:
    jobs = machine.add(9, key("k", 2))
    assert machine.lease() == jobs[:2]
    assert machine.lease() == []
    assert machine.state.ready.gates["k"].room() == 0
    machine.ack(jobs[0])
    assert machine.lease() == [jobs[2]]
    machine.nack(jobs[1], delay=50)
    assert machine.lease() == [jobs[3]]
    machine.nack(jobs[2], dead=True)
    assert machine.lease() == [jobs[4]]
    machine.release(jobs[3], delay=50)
    assert machine.lease() == [jobs[5]]
    machine.drop(jobs[4])
    assert machine.lease() == [jobs[6]]
    machine.ack(jobs[5], jobs[6])
    machine.pass_by(50)
    assert machine.lease() == jobs[7:9]
    machine.ack(jobs[7])
    machine.drop(jobs[8])
    assert machine.lease() == [jobs[1], jobs[3]]
    machine.ack(jobs[1], jobs[3])
    machine.drop(jobs[2])
    machine.idle()


def test_groups_of_several_lanes_and_priorities_share_a_gate(machine: Machine) -> None:
    a = machine.add(2, key("k", 1), l="a")
    b = machine.add(2, key("k", 1), l="b")
    high = machine.add(1, key("k", 1), l="b", p=3)
    assert machine.in_order() == [*high, *a, *b]
    assert machine.in_order(["a"]) == a
    assert machine.state.ready.oldest(None, frozenset()) == 1000
    assert machine.lease(1) == high
    assert machine.lease() == machine.lease(9, ["a"]) == []
    assert machine.state.ready.oldest(["b"], frozenset()) == 1000
    machine.ack(*high)
    assert machine.lease(9, ["b"]) == [b[0]]
    machine.ack(b[0])
    assert machine.lease() == [a[0]]


def test_a_job_with_several_keys_needs_room_at_each(machine: Machine) -> None:
    said = {"k": [["a", 1], ["b", 2]]}
    both = machine.add(2, said)
    other = machine.add(2, key("b", 2))
    assert machine.lease() == [both[0], other[0]]
    machine.ack(other[0])
    assert machine.lease() == [other[1]], "the second of both still waits at a"
    machine.ack(both[0])
    assert machine.lease() == [both[1]]
    assert machine.state.ready.entered("a") == 1
    assert machine.state.ready.entered("nothing") == 0


def test_the_newest_word_counts_for_those_that_wait_too(machine: Machine) -> None:
    jobs = machine.add(5, key("k", 1))
    assert machine.lease() == jobs[:1]
    more = machine.add(1, key("k", 3))
    assert machine.lease() == jobs[1:3]
    assert machine.state.ready.words(jobs[4]) == words_of(key("k", 3))
    machine.add(1, key("k", 1))
    machine.ack(jobs[0], jobs[1])
    assert machine.lease() == [], "one is leased, and one may be"
    machine.ack(jobs[2])
    assert machine.lease() == [jobs[3]]
    assert machine.state.ready.words(more[0] + 99) is None


def test_an_earlier_job_of_a_parked_group_comes_first(machine: Machine) -> None:
    """A retry goes before those of its group that are parked, and so does a job of another group."""
    first = machine.add(1, key("k", 1))
    machine.lease()
    machine.now += 10
    later = machine.add(2, key("k", 1))
    machine.now += 10
    last = machine.add(1, key("k", 1), p=2)
    machine.ack(*first)
    assert machine.lease(1) == last
    machine.ack(*last)
    assert machine.lease() == later[:1]


def test_dead_jobs_bring_their_keys_again(machine: Machine) -> None:
    said = {**key("k", 1), **rate("r", 5, 100), "f": ["tenant", 2]}
    (one,) = machine.add(1, said)
    machine.lease()
    machine.nack(one, dead=True)
    assert machine.state.ready.dead[one].words == words_of(said)
    assert machine.state.ready.words(one) == words_of(said)
    assert machine.state.ready.gates == {}
    machine.requeue(one)
    assert machine.state.ready.words(one) == words_of(said)
    assert machine.lease() == [one]
    machine.nack(one, dead=True)
    newer = {**key("k", 2), **rate("r", 6, 100), "f": ["tenant", 3]}
    (other,) = machine.add(1, newer)
    machine.requeue(one)
    assert machine.state.ready.words(one) == words_of(newer), "others may have come later"
    assert sorted(machine.lease()) == [one, other]
    machine.nack(one, dead=True)
    machine.ack(other)
    machine.drop(one)
    machine.idle()


def test_two_dead_ones(machine: Machine) -> None:
    jobs = machine.add(2, key("k", 2))
    machine.lease()
    for seq in jobs:
        machine.nack(seq, dead=True)
    machine.drop(jobs[0])
    assert machine.state.pages.watch is not None
    machine.drop(jobs[1])
    machine.idle()


def test_whole_ranges_that_end(machine: Machine) -> None:
    """A purge, a drop of more than has limits, an ack of a page."""
    plain = machine.add(200)
    limited = machine.add(100, key("k", 90))
    dead = limited[0]
    assert machine.lease(1, [""]) == plain[:1]
    machine.apply(kinds.ACK, q=[plain[0], plain[0]])
    assert machine.lease(400) == plain[1:] + limited[:90]
    machine.nack(dead, dead=True)
    machine.apply(kinds.ACK, q=[plain[1], limited[50]])
    assert len(machine.state.ready.gates["k"].held) == 39
    assert machine.lease() == limited[90:]
    machine.apply(kinds.ACK, q=[limited[51], limited[99]])
    machine.drop(dead)
    machine.idle()


def test_the_range_of_a_whole_page(machine: Machine) -> None:
    jobs = machine.add(20, key("k", 30))
    machine.lease()
    machine.nack(jobs[3], dead=True)
    machine.requeue(jobs[3])
    machine.nack(jobs[4], dead=True)
    machine.state.pages.fill(1, 4000, codes.NONE)
    assert (machine.state.ready.of, machine.state.ready.dead) == ({}, {})
    machine.pass_by(0)
    assert machine.lease() == []
    machine.idle()


def test_a_purge(machine: Machine) -> None:
    machine.apply(kinds.LANE_LIMIT, l="", n=5)
    machine.add(5, {**key("k", 1), **rate("r", 2, 100)})
    (first,) = machine.lease()
    machine.apply(kinds.PURGE, n=6)
    again = machine.add(2, {**key("k", 1), **rate("r", 2, 100)})
    assert machine.lease() == again[:1], "the slot is free, and the lease still counts in the rate"
    machine.ack(again[0])
    assert machine.lease() == []
    assert machine.state.ready.lane_limits == {"": 5}
    assert first not in machine.state.ready.of


def test_a_group_that_loses_all_its_jobs_while_it_is_parked(machine: Machine) -> None:
    first = machine.add(1, key("k", 1))
    machine.lease()
    parked = machine.add(3, key("k", 1), p=-1)
    behind = machine.add(1, key("k", 1), p=-2)
    machine.drop(*parked)
    machine.ack(*first)
    assert machine.lease() == behind
    machine.ack(*behind)
    machine.idle()


def test_a_run_that_comes_when_none_of_its_jobs_waits(machine: Machine) -> None:
    jobs = machine.add(2, key("k", 1), a=1100)
    machine.drop(*jobs)
    machine.pass_by(100)
    assert machine.lease() == []
    machine.idle()


def test_a_lease_that_came_to_nothing(machine: Machine) -> None:
    jobs = machine.add(3, key("k", 2))
    machine.release(*machine.lease(1))
    ready = machine.state.ready
    pieces = ready.take(9, None, frozenset())
    assert sum(piece.size for piece in pieces) == 2
    ready.put_back(pieces)
    assert sorted(machine.lease()) == jobs[:2]


def test_a_take_of_several_groups(machine: Machine) -> None:
    """What was chosen so far counts, also where runs, singles and groups come by turns."""
    a = machine.add(70, key("a", 60))
    b = machine.add(1, key("b", 1))
    plain = machine.add(2)
    more = machine.add(4, key("a", 60))
    taken = machine.lease(500)
    assert taken == a[:60] + b + plain
    machine.ack(*taken)
    assert machine.lease(500) == a[60:] + more


def test_groups_of_one_gate_go_by_turns(machine: Machine) -> None:
    """Each group has two keys. Of those parked at the common one, the first in turn is let through."""
    jobs = [machine.add(1, {"k": [["all", 1], [f"own {number}", 1]]}) for number in range(5)]
    for (seq,) in jobs:
        assert machine.lease() == [seq]
        machine.ack(seq)
    machine.idle()


def test_one_that_is_blocked_elsewhere_is_passed(machine: Machine) -> None:
    blocker = machine.add(1, key("own", 1))
    assert machine.lease() == blocker
    holder = machine.add(1, key("all", 1))
    assert machine.lease() == holder
    both = machine.add(1, {"k": [["all", 1], ["own", 1]]})
    free = machine.add(1, key("all", 1), p=-1)
    machine.ack(*holder)
    assert machine.lease() == free
    machine.ack(*blocker)
    machine.ack(*free)
    assert machine.lease() == both


def test_a_group_whose_first_job_comes_back_while_another_one_is_first(machine: Machine) -> None:
    (back,) = machine.add(1, key("b", 2))
    machine.lease()
    machine.now = 1005
    a = machine.add(1, key("a", 1))
    machine.now = 1010
    b = machine.add(1, key("b", 2))
    machine.apply(kinds.RELEASE, q=[back, back], a=[1001])
    assert machine.lease() == [back, *a, *b]


def test_the_oldest_of_a_group_that_is_left_out(machine: Machine) -> None:
    first = machine.add(1, key("k", 1))
    machine.now += 5
    second = machine.add(1, key("l", 1))
    oldest = machine.state.ready.oldest
    assert oldest(None, frozenset()) == 1000
    assert oldest(None, frozenset(first)) == 1005
    assert oldest(None, frozenset(first + second)) is None


# -- last tries


def test_a_job_whose_lease_expired_on_its_last_try_is_taken_by_itself(machine: Machine) -> None:
    jobs = machine.add(3, key("k", 3), m=2)
    machine.lease()
    machine.apply(kinds.RECLAIM, q=[jobs[0], jobs[0]], a=[machine.now])
    assert machine.lease() == jobs[:1]
    plain = machine.add(1)
    machine.lease()
    machine.apply(kinds.RECLAIM, q=[*jobs[1:2], *jobs[1:2]], a=[machine.now - 1])
    more = machine.add(1)
    assert machine.lease() == jobs[1:2]
    assert machine.lease() == more
    assert plain[0] in machine.state.leased


# -- words


def test_words_and_back() -> None:
    said = {"k": [["a", 1], ["b", 2]], "r": [["c", 3, 4]], "x": True, "f": ["t", 5]}
    assert said_of(words_of(said)) == said
    assert said_of(words_of({})) == {}
    assert words_of(key("k", 1, 1)) == words_of(key("k", 1)), "how a job came in counts no more"


def test_rows_of_groups_and_rounds_can_be_compared(machine: Machine) -> None:
    """Two rows may say the same first job: an outdated one, and a true one."""
    machine.add(1, key("a", 1))
    machine.add(1, key("b", 1))
    one, other = machine.state.ready.groups.values()
    assert (one < other) != (other < one)
    assert (one > other) != (other > one)
    assert isinstance(one, Group)


def test_of_many_that_wait_for_a_slot_one_is_let_through(machine: Machine) -> None:
    """The others are not looked at: a queue with a hundred thousand of them costs what one does."""
    for number in range(50):
        machine.add(1, {"k": [["shared", 1], [f"own {number}", 1]]})
    (gate,) = (gate for name, gate in machine.state.ready.gates.items() if name == "shared")
    assert sum(map(len, gate.parked.values())) == 49
    for left in range(48, -1, -1):
        machine.ack(*machine.lease())
        assert sum(map(len, gate.parked.values())) == left
