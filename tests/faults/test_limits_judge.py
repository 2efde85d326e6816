"""The judge of limits: what it sees, and what it does not cry wolf about."""

from __future__ import annotations

from typing import Any

from tests.faults.limited import KEYS, NARROW, Hold, exceeded

ONE: dict[str, Any] = {"limits": [["key 1", 1, "wait"]]}
ALONE: dict[str, Any] = {"exclusive": "app"}
RATED: dict[str, Any] = {"rates": [["rate", 4, 0.1, "reschedule"]]}


def holds(limits: dict[str, Any], *times: tuple[float, float], lane: str = "") -> list[Hold]:
    return [Hold(f"job {at}", lane, start, until, limits) for at, (start, until) in enumerate(times)]


def test_keys() -> None:
    assert exceeded(holds(ONE, (0, 1), (1, 2), (2.5, 3))) == []
    assert exceeded(holds(ONE, (0, 1.1), (1, 2))) == ["key 1: 2 leased at once, and 1 may be: job 1"]
    assert len(exceeded(holds(ONE, (1, 2), (1, 1)))) == 1, "of one moment, the later end counts"
    assert exceeded(holds(ONE, (5, 6), (0, 5))) == [], "in whatever order they were noted"
    both = {"limits": [["key 1", 1, "wait"], ["key 2", 2, "wait"]]}
    assert exceeded([*holds(both, (0, 9)), *holds({"limits": [["key 2", 2, "wait"]]}, (1, 2), (3, 4))]) == []
    three = {"limits": [["key 3", 3, "wait"]]}
    assert exceeded(holds(three, (0, 9), (1, 9), (2, 9))) == []
    assert exceeded(holds(three, (0, 9), (1, 9), (2, 9), (8, 9))) != []
    assert set(KEYS.values()) == {1, 2, 3}


def test_lanes() -> None:
    assert exceeded(holds({}, (0, 9), (1, 9), lane=NARROW)) == []
    assert exceeded(holds({}, (0, 9), (1, 9), (2, 3), lane=NARROW)) != []
    assert exceeded(holds({}, (0, 9), (1, 9), (2, 3))) == []


def test_rates() -> None:
    four = [(at / 100, at / 100) for at in range(4)]
    assert exceeded(holds(RATED, *four, (0.1, 0.2))) == []
    assert exceeded(holds(RATED, *four, (0.0999, 0.2))) != []


def test_jobs_that_run_alone() -> None:
    alone = holds(ALONE, (1, 2))
    assert exceeded([*alone, *holds({}, (0, 1), (2, 3))]) == []
    assert exceeded([*alone, *holds({}, (0, 1.5))]) != []
    assert exceeded([*alone, *holds({}, (1.5, 3))]) != []
    assert exceeded([*alone, *holds(ALONE, (1, 2))]) != []
    assert exceeded(holds({}, (0, 2), (1, 3))) == []
