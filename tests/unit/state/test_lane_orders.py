"""Lanes in the order of whoever asks: one after the other, in turn, by one priority; jobs that run alone."""

from __future__ import annotations

import pytest

from nobroker.lanes import Lanes
from nobroker.state import kinds
from tests.unit.state.limited import Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_one_after_the_other(machine: Machine) -> None:
    b, a = machine.add(3, l="b", p=9), machine.add(2, l="a")
    machine.add(1, l="other")
    lanes = Lanes(["a", "b"])
    assert machine.lease(4, lanes) == a + b[:2]
    assert machine.lease(4, lanes) == b[2:]
    assert machine.lease(4, lanes) == []


def test_those_of_a_pattern_are_one_by_priority(machine: Machine) -> None:
    x, y, first = machine.add(1, l="beta x"), machine.add(1, l="beta y", p=2), machine.add(1, l="a", p=-5)
    assert machine.lease(9, Lanes(["a", "beta*"])) == first + y + x


def test_by_one_priority(machine: Machine) -> None:
    b, a = machine.add(2, l="b"), machine.add(2, l="a", p=1)
    assert machine.lease(9, Lanes(["b", "a"], order="priority")) == a + b


def test_in_turn(machine: Machine) -> None:
    a, b = machine.add(4, l="a", p=9), machine.add(2, l="b")
    fair = Lanes(["a", "b"], order="fair")
    assert machine.lease(3, fair) == [a[0], b[0], a[1]]
    assert machine.lease(3, fair) == [b[1], a[2], a[3]]


def test_in_turn_also_where_there_was_one_lane_only(machine: Machine) -> None:
    fair = Lanes(["a", "b"], order="fair")
    a = machine.add(2, l="a")
    assert machine.lease(1, fair) == a[:1]
    b = machine.add(1, l="b")
    assert machine.lease(2, fair) == [b[0], a[1]]


def test_a_lane_that_is_not_served(machine: Machine) -> None:
    machine.add(1, l="a")
    assert machine.lease(1, ["b"]) == machine.lease(1, Lanes(["b", "c"])) == []


@pytest.mark.parametrize("order", ["ordered", "fair"])
def test_one_that_runs_alone_has_its_turn_by_priority(machine: Machine, order: str) -> None:
    lanes = Lanes(["a", "b", "x"], order=order)
    first = machine.add(1, l="a")
    alone = machine.add(1, {"x": True}, l="x")
    a, b = machine.add(1, l="a"), machine.add(1, l="b")
    assert machine.lease(9, lanes) == first
    assert machine.lease(9, lanes) == [], "it waits for the first one, and the others for it"
    machine.ack(*first)
    assert machine.lease(9, lanes) == alone
    assert machine.lease(9, lanes) == []
    machine.ack(*alone)
    assert machine.lease(9, lanes) == (a + b if order == "ordered" else b + a), "a has had a turn"


def test_one_that_runs_alone_and_whose_turn_has_not_come(machine: Machine) -> None:
    machine.add(1, {"x": True}, l="x", p=-9)
    b, a = machine.add(2, l="b"), machine.add(1, l="a")
    assert machine.lease(9, Lanes(["a", "b", "x"])) == a + b


def test_all_of_them_are_paused(machine: Machine) -> None:
    for lane in "ab":
        machine.add(1, l=lane)
        machine.apply(kinds.PAUSE, p=True, l=lane)
    assert machine.lease(9, Lanes(["a", "b"])) == []
