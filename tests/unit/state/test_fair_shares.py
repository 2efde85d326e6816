"""Fair shares: whose turn it is, and what counts on."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker.state import kinds
from nobroker.state.shares import Fair
from tests.unit.state.limited import Machine, key


@pytest.fixture
def machine() -> Machine:
    return Machine()


def fair(tenant: str, weight: int = 1) -> dict[str, Any]:
    return {"f": [tenant, weight]}


class Tenants:
    """Jobs of tenants by their numbers."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.of: dict[int, str] = {}

    def add(self, tenant: str, number: int, weight: int = 1, **more: Any) -> list[int]:
        jobs = self.machine.add(number, fair(tenant, weight), **more)
        self.of.update(dict.fromkeys(jobs, tenant))
        return jobs

    def lease(self, count: int = 100) -> str:
        return "".join(self.of.get(seq, ".") for seq in self.machine.lease(count))


def test_keys_take_turns(machine: Machine) -> None:
    tenants = Tenants(machine)
    tenants.add("a", 6), tenants.add("b", 2), tenants.add("c", 1)
    assert tenants.lease(4) == "abca"
    assert tenants.lease() == "baaaa"


def test_by_weight(machine: Machine) -> None:
    tenants = Tenants(machine)
    tenants.add("a", 20), tenants.add("b", 20, weight=3)
    taken = tenants.lease(16)
    assert (taken.count("a"), taken.count("b")) == (4, 12)
    tenants.add("a", 1, weight=3)
    taken = tenants.lease(8)
    assert abs(taken.count("a") - taken.count("b")) <= 1, "the newest word counts"


def test_nobody_saves_anything_up(machine: Machine) -> None:
    tenants = Tenants(machine)
    tenants.add("a", 50)
    assert tenants.lease(40) == "a" * 40
    tenants.add("b", 5)
    assert tenants.lease() == "babababab" + "a" * 6


def test_others_keep_their_place_by_time(machine: Machine) -> None:
    tenants = Tenants(machine)
    machine.add(1)
    tenants.add("a", 2)
    machine.add(1)
    tenants.add("b", 1)
    assert tenants.lease() == ".aba."  # the round stands where the oldest of its jobs does
    assert machine.in_order() == []


def test_priorities_and_lanes_have_rounds_of_their_own(machine: Machine) -> None:
    tenants = Tenants(machine)
    tenants.add("a", 3), tenants.add("b", 3)
    tenants.add("a", 2, p=5)
    tenants.add("b", 1, l="x")
    assert machine.state.ready.oldest(None, frozenset()) == 1000
    assert machine.state.ready.oldest(["x"], frozenset()) == 1000
    assert machine.in_order(["x"]) == [9]
    taken = machine.lease(4, [""])
    assert [tenants.of[seq] for seq in taken] == ["a", "a", "a", "b"]
    assert taken[:2] == [7, 8]


def test_an_older_job_moves_the_round_and_the_share(machine: Machine) -> None:
    """A retry is in its old place: before the jobs that came since."""
    tenants = Tenants(machine)
    first = tenants.add("a", 1)
    machine.lease()
    machine.now += 10
    tenants.add("b", 1), tenants.add("a", 1)
    machine.apply(kinds.RELEASE, q=[first[0], first[0]], a=[1000])
    plain = machine.add(1, a=1005)
    found = machine.lease()
    assert (found[0] in first, plain[0] in found) == (False, True)
    assert sorted(tenants.of.get(seq, ".") for seq in found) == [".", "a", "a", "b"]


def test_a_share_whose_jobs_went_elsewhere(machine: Machine) -> None:
    tenants = Tenants(machine)
    a, b = tenants.add("a", 3), tenants.add("b", 3)
    machine.drop(*a)
    assert tenants.lease(2) == "bb"
    machine.drop(b[2])
    assert tenants.lease() == ""
    machine.ack(b[0], b[1])
    machine.idle()


def test_rounds_and_keys(machine: Machine) -> None:
    """A key that has no room is out of the round until it has."""
    tenants = Tenants(machine)
    blocked = machine.add(3, {**fair("a"), **key("k", 1)})
    tenants.of.update(dict.fromkeys(blocked, "a"))
    tenants.add("b", 3)
    assert tenants.lease() == "abbb"
    machine.ack(blocked[0])
    assert tenants.lease() == "a"
    tenants.add("b", 2)
    machine.ack(blocked[1])
    assert tenants.lease() == "abb"


def test_several_groups_of_one_share(machine: Machine) -> None:
    tenants = Tenants(machine)
    for number in range(3):
        tenants.of.update(dict.fromkeys(machine.add(2, {**fair("a"), **key(f"k {number}", 1)}), "a"))
    tenants.add("b", 2)
    assert tenants.lease() == "ababa"


def test_one_that_runs_alone_with_a_share(machine: Machine) -> None:
    tenants = Tenants(machine)
    alone = machine.add(2, {**fair("a"), "x": True})
    tenants.add("b", 1)
    assert machine.lease() == alone[:1]
    machine.ack(alone[0])
    assert machine.lease() == alone[1:]
    machine.ack(alone[1])
    assert tenants.lease() == "b"


def test_what_counts_on(machine: Machine) -> None:
    """Rounds outlive jobs, in a retirement and in a snapshot."""
    tenants = Tenants(machine)
    tenants.add("a", 5), tenants.add("b", 5, weight=2)
    taken = machine.lease(3)
    machine.ack(*taken)
    lasting = machine.state.ready.lasting_shares()
    assert {name[2] for name in lasting["F"]} == {"a", "b"}
    assert lasting["f"][0][:2] == ["", 0]
    machine.retire()
    assert machine.state.ready.lasting_shares() == lasting
    again = machine.carried()
    assert again.ready.lasting_shares() == lasting
    orders = []
    for state in (machine.state, again):
        machine.state = state
        orders.append(tenants.lease())
    assert orders[0] == orders[1]
    base = {"s": 1, "k": 1, "S": 1, "K": 1, "t": 0, "p": []}
    machine.apply(kinds.RETIRE, B=base)
    assert machine.state.ready.lasting_shares() == {"f": [], "F": []}


def test_keys_that_say_nothing_any_more_are_forgotten(machine: Machine) -> None:
    tenants = Tenants(machine)
    for number in range(300):
        machine.ack(*tenants.add(f"t {number}", 1)) if machine.lease() else None
        machine.ack(*machine.lease())
    assert len(machine.state.ready.fair_keys) < 150


def test_rounds_can_be_compared() -> None:
    one, other = Fair(("", 0)), Fair(("", 1))
    assert (one < other) != (other < one)
    assert (one > other) != (other > one)


def test_a_lease_that_came_to_nothing_moves_nobody_on(machine: Machine) -> None:
    tenants = Tenants(machine)
    tenants.add("a", 4), tenants.add("b", 4), tenants.add("c", 2)
    ready = machine.state.ready
    ready.put_back(ready.take(4, None, frozenset()))
    assert tenants.lease(3) == "abc"
    ready.put_back(ready.take(2, None, frozenset()))
    tenants.add("d", 1)
    assert tenants.lease() == "dabcabab"


def test_the_oldest_job_of_a_lane_with_shares(machine: Machine) -> None:
    tenants = Tenants(machine)
    tenants.add("a", 1, l="x")
    machine.pass_by(5)
    tenants.add("b", 1, l="y")
    oldest = machine.state.ready.oldest
    assert [oldest(lanes, frozenset()) for lanes in (None, ["x"], ["y"], ["z"])] == [1000, 1000, 1005, None]
