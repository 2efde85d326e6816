"""Groups: the rows of their jobs, few or many; leases of one job; pictures of one moment."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from sortedcontainers import SortedList

from nobroker.state import kinds
from nobroker.state.gates import Rows
from nobroker.state.snapshots import capture, restore
from tests.unit.state.limited import Machine, key, rate


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_rows_do_as_a_sorted_list_does() -> None:
    ours, theirs = Rows(), SortedList()
    numbers = random.Random(1)
    for _ in range(2000):
        row = (numbers.randrange(3), numbers.randrange(3), numbers.randrange(5), None)
        assert (row in ours) == (row in theirs)
        what = numbers.random()
        if what < 0.5 and row not in ours:
            ours.add(row)
            theirs.add(row)
        elif what < 0.8:
            ours.discard(row)
            theirs.discard(row)
        elif ours:
            assert ours.pop(0) == theirs.pop(0)
        assert list(ours) == list(theirs)


def test_many_rows_in_one_group(machine: Machine) -> None:
    number = 3 * Rows.MOST
    jobs = machine.add(number, key("k", number))
    assert machine.lease(number) == jobs
    for job in jobs:
        machine.nack(job, delay=number - job)
    machine.pass_by(number)
    (group,) = machine.state.ready.groups.values()
    assert isinstance(group.rows, SortedList)
    machine.drop(jobs[-1], jobs[7])
    machine.state = machine.carried()
    left = [job for job in reversed(jobs) if job not in (jobs[-1], jobs[7])]
    assert machine.in_order() == left
    assert machine.lease(number) == left
    machine.ack(*left)
    machine.idle()


def test_a_group_whose_first_job_has_gone_waits_its_turn(machine: Machine) -> None:
    """Its row still says the key of the job that has gone."""
    first, later = machine.add(2, key("k", 1))
    machine.now += 1
    (other,) = machine.add(1)
    machine.drop(first)
    assert machine.lease(1) == [later]
    assert machine.lease(1) == [other]
    machine.ack(later, other)
    machine.idle()


@pytest.mark.parametrize("limits", [None, key("other", 1), {"k": [["k", 4], ["other", 1]]}])
@pytest.mark.parametrize("count", [1, 9])
def test_a_group_whose_next_job_is_behind_another_one(
    machine: Machine, limits: dict[str, Any] | None, count: int
) -> None:
    (between,) = machine.add(1, limits, a=machine.now + 1)
    first, second = machine.add(1, key("k", 4)) + machine.add(1, key("k", 4))
    machine.now += 2
    (last,) = machine.add(1, key("k", 4))
    leased = [job for _ in range(5) for job in machine.lease(count)]
    assert leased == [first, second, between, last]
    machine.ack(first, second, between, last)
    machine.idle()


def test_a_retried_job_comes_between_those_of_its_group(machine: Machine) -> None:
    first, second, third = [job for _ in range(3) for job in machine.add(1, key("k", 3))]
    machine.now += 2
    (last,) = machine.add(1, key("k", 3))
    assert machine.lease(2) == [first, second]
    machine.now -= 1
    machine.nack(first)
    machine.now += 1
    assert [machine.lease(1) for _ in range(3)] == [[third], [first], []], "three have slots"
    machine.ack(first, second, third)
    assert machine.lease(1) == [last]


def test_one_that_waits_again_where_its_group_still_stands(machine: Machine) -> None:
    """Nothing of the group is due, and nobody has looked since."""
    (job,) = machine.add(1, key("k", 1))
    machine.lease(1)
    machine.nack(job)
    machine.apply(kinds.RESCHEDULE, q=[job, job], a=machine.now + 100)
    assert machine.lease(1) == []
    machine.pass_by(100)
    assert machine.lease(1) == [job]
    machine.ack(job)
    machine.idle()


def test_a_group_that_stands_where_another_one_has_taken_the_slot(machine: Machine) -> None:
    (low,) = machine.add(1, key("k", 1))
    (high,) = machine.add(1, key("k", 1), p=1)
    assert [machine.lease(1) for _ in range(2)] == [[high], []]
    machine.ack(high)
    assert machine.lease(1) == [low]


def test_one_by_one_through_several_gates(machine: Machine) -> None:
    said = {**key("k", 2), **rate("r", 3, 100)}
    jobs = machine.add(5, said)
    others = machine.add(2, key("k", 2))
    assert [machine.lease(1) for _ in range(3)] == [[jobs[0]], [jobs[1]], []]
    machine.ack(jobs[0])
    assert [machine.lease(1) for _ in range(2)] == [[jobs[2]], []]
    machine.ack(jobs[1])
    assert [machine.lease(1) for _ in range(2)] == [[others[0]], []], "the rate has no room"
    machine.ack(jobs[2], others[0])
    assert [machine.lease(1) for _ in range(2)] == [[others[1]], []]
    machine.pass_by(100)
    assert [machine.lease(1) for _ in range(2)] == [[jobs[3]], []]
    machine.ack(jobs[3], others[1])
    assert machine.lease(1) == [jobs[4]]


def test_a_picture_has_the_limits_of_its_moment(machine: Machine) -> None:
    jobs = machine.add(2, {**key("k", 1), "f": ["one", 1]}) + machine.add(2, rate("r", 1, 100))
    picture = capture(machine.state)
    machine.add(1, {**key("k", 2), "f": ["one", 5]})
    machine.add(1, rate("r", 5, 100))
    assert len(machine.lease()) == 5
    found = restore([msgpack.unpackb(msgpack.packb(item), strict_map_key=False) for item in picture])
    assert found is not None
    machine.state = found
    assert machine.lease() == [jobs[0], jobs[2]]
