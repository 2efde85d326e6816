"""What is held back costs those that are not held back nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from nobroker.state import kinds
from tests.unit.state.limited import Machine, key, rate


def by_key(machine: Machine, number: int) -> None:
    machine.add(number, key("k", 1))
    machine.lease(1)


def by_keys(machine: Machine, number: int) -> None:
    """Of one full key, each with another one beside."""
    for other in range(number):
        machine.add(1, {"k": [["k", 1], [f"other {other}", 1]]})
    machine.lease(1)


def by_rate(machine: Machine, number: int) -> None:
    machine.add(number, rate("r", 1, 10**9))
    machine.lease(1)


def by_lane(machine: Machine, number: int) -> None:
    machine.apply(kinds.LANE_LIMIT, l="full", n=1)
    machine.add(number, l="full")
    machine.lease(1)


def steps_of(action: Callable[[], Any]) -> int:
    """How many functions were called, those in C included."""
    number = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    gc.disable()  # others may want to be told of collections
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return number


@pytest.mark.parametrize("held_back", [by_key, by_keys, by_rate, by_lane])
@pytest.mark.parametrize("count", [1, 5])
def test_a_lease_behind_many_takes_the_steps_of_one_behind_few(
    held_back: Callable[[Machine, int], None], count: int
) -> None:
    steps = []
    for number in (10, 3000):
        machine = Machine()
        held_back(machine, number)
        machine.now += 1
        free = [job for _ in range(20) for job in machine.add(1)]
        assert machine.lease(1) == free[:1]
        steps.append(steps_of(lambda machine=machine: machine.lease(count)))  # type: ignore[misc]
        assert machine.lease() == free[1 + count :]
    assert steps[0] == steps[1] > 10
