"""Heads of records that verify: which can be, and which are refused before anything is done by them."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker.state import fitting, kinds
from nobroker.state.fitting import check

TOP = 2**62
LSN = 1000
TAIL = 10
ONE = {"n": 1, "s": 5, "t": 0}
BASE = {"s": 1, "k": 1, "S": 1, "K": 1, "t": 0}

RIGHT: list[tuple[int, dict[str, Any]]] = [
    (kinds.ENQUEUE, ONE),
    (kinds.ENQUEUE, {**ONE, "s": TOP - 1, "t": TOP - 1}),
    (kinds.ENQUEUE, {**ONE, "n": TAIL}),
    (kinds.ENQUEUE, {**ONE, "n": 2, "a": b"\0" * 16, "i": ["a", None]}),
    (kinds.ENQUEUE, {**ONE, "a": -5, "e": 7, "p": -1, "m": 3, "l": "lane", "x": TOP, "M": b"\x80"}),
    (kinds.ENQUEUE, {**ONE, "M": None, "i": None}),
    (kinds.MOVE, {"q": [5, 6, 9, 9], "n": 3, "t": 0}),
    (kinds.MOVE, {"q": [1, TAIL], "n": TAIL, "t": 0}),
    (kinds.LEASE, {"q": [5, 6, 9, 9], "k": 1, "d": 9, "v": [[2, 0, 5, 0, 0], [1, 0, 5, 0, 0]]}),
    (kinds.ACK, {"q": [1, LSN]}),
    (kinds.ACK, {"q": [7, 7, 3, 4]}),
    (kinds.NACK, {}),
    (kinds.NACK, {"q": [1, 1], "J": b"\x80"}),
    (kinds.RESCHEDULE, {"q": [1, 1], "a": 0}),
    (kinds.RESCHEDULE, {"q": [1, LSN], "a": TOP, "x": TOP, "p": -1, "m": 3, "w": True}),
    (kinds.CANCEL, {"q": [1, 1], "g": [2, 2]}),
    (kinds.CANCEL, {}),
    (kinds.RETIRE, {"B": BASE}),
    (kinds.RETIRE, {"B": BASE, "g": [1, 4]}),
    (kinds.PURGE, {"n": 0}),
    (kinds.RESERVE, {"s": 1, "k": TOP}),
    (kinds.PAUSE, {"t": 0, "q": "whatever"}),
    (99, {"t": TOP}),
]

WRONG: list[tuple[int, dict[str, Any]]] = [
    (kinds.ENQUEUE, {**ONE, "n": 0}),
    (kinds.ENQUEUE, {**ONE, "n": -1}),
    (kinds.ENQUEUE, {**ONE, "n": TAIL + 1}),
    (kinds.ENQUEUE, {**ONE, "n": True}),
    (kinds.ENQUEUE, {**ONE, "n": 1.0}),
    (kinds.ENQUEUE, {**ONE, "s": -1}),
    (kinds.ENQUEUE, {**ONE, "s": TOP}),
    (kinds.ENQUEUE, {**ONE, "s": "5"}),
    (kinds.ENQUEUE, {**ONE, "t": -1}),
    (kinds.ENQUEUE, {**ONE, "t": TOP + 1}),
    (kinds.ENQUEUE, {"n": 1, "s": 1, "T": 1}),
    (kinds.ENQUEUE, {"n": 1, "s": 1}),
    (kinds.ENQUEUE, {**ONE, "a": 1.5}),
    (kinds.ENQUEUE, {**ONE, "a": b"\0" * 7}),
    (kinds.ENQUEUE, {**ONE, "e": b"\0" * 16}),
    (kinds.ENQUEUE, {**ONE, "i": "a"}),
    (kinds.ENQUEUE, {**ONE, "i": ["a", "b"]}),
    (kinds.ENQUEUE, {**ONE, "i": [5]}),
    (kinds.ENQUEUE, {**ONE, "p": 0.5}),
    (kinds.ENQUEUE, {**ONE, "m": None}),
    (kinds.ENQUEUE, {**ONE, "l": b"lane"}),
    (kinds.ENQUEUE, {**ONE, "x": -1}),
    (kinds.ENQUEUE, {**ONE, "M": {}}),
    (kinds.MOVE, {"q": [5, 6, 9, 9], "n": 2, "t": 0}),
    (kinds.MOVE, {"q": [1, TAIL + 1], "n": TAIL + 1, "t": 0}),
    (kinds.MOVE, {"q": [1, 6, 10, 15], "n": 12, "t": 0}),
    (kinds.MOVE, {"q": [5, 5], "n": 1}),
    (kinds.LEASE, {"q": [5, 6], "k": 1, "d": 9, "v": [[1, 0, 5, 0, 0]]}),
    (kinds.LEASE, {"q": [5, 6], "k": 1, "d": 9, "v": [[3, 0], [-1, 0]]}),
    (kinds.LEASE, {"q": [5, 6], "k": -1, "d": 9, "v": [[2, 0, 5, 0, 0]]}),
    (kinds.LEASE, {"q": [5, 6], "k": 1, "v": [[2, 0, 5, 0, 0]]}),
    (kinds.LEASE, {"q": [5, 6], "k": 1, "d": TOP + 1, "v": [[2, 0, 5, 0, 0]]}),
    (kinds.ACK, {"q": [1, LSN + 1]}),
    (kinds.ACK, {"q": [2, 1]}),
    (kinds.ACK, {"q": [5, 6, 9, 8]}),
    (kinds.ACK, {"q": [1]}),
    (kinds.ACK, {"q": [1, 2, 3]}),
    (kinds.ACK, {"q": (1, 2)}),
    (kinds.ACK, {"q": [1, 2.0]}),
    (kinds.ACK, {"q": [-1, 2]}),
    (kinds.ACK, {"q": [1, TOP + 1]}),
    (kinds.ACK, {"q": 5}),
    (kinds.NACK, {"q": [1, 1], "J": "state"}),
    (kinds.RELEASE, {"q": [1, 1], "J": {}}),
    (kinds.RECLAIM, {"q": [1, LSN + 1]}),
    (kinds.RESCHEDULE, {"a": 5}),
    (kinds.RESCHEDULE, {"q": [1, 1]}),
    (kinds.RESCHEDULE, {"q": [1, LSN + 1], "a": 5}),
    (kinds.RESCHEDULE, {"q": [1, 1], "a": -1}),
    (kinds.RESCHEDULE, {"q": [1, 1], "a": 5, "x": -1}),
    (kinds.RESCHEDULE, {"q": [1, 1], "a": 5, "p": "high"}),
    (kinds.RESCHEDULE, {"q": [1, 1], "a": 5, "m": None}),
    (kinds.RESCHEDULE, {"q": [1, 1], "a": 5, "w": 1}),
    (kinds.CANCEL, {"g": [2, 1]}),
    (kinds.CANCEL, {"q": [2, 1]}),
    (kinds.RETIRE, {"B": {**BASE, "t": -1}}),
    (kinds.RETIRE, {"B": {}}),
    (kinds.RETIRE, {"B": BASE, "g": [0]}),
    (kinds.PURGE, {}),
    (kinds.PURGE, {"n": -1}),
    (kinds.RESERVE, {"s": 1, "k": TOP + 1}),
    (kinds.RESERVE, {"S": 1.0}),
    (kinds.PAUSE, {"t": -1}),
    (kinds.PAUSE, {"t": TOP + 1}),
    (99, {"t": "now"}),
]


@pytest.mark.parametrize("kind, head", RIGHT)
def test_what_the_library_writes(kind: int, head: dict[str, Any]) -> None:
    before = repr(head)
    check(kind, head, TAIL, LSN)
    assert repr(head) == before


@pytest.mark.parametrize("kind, head", WRONG)
def test_what_it_never_writes(kind: int, head: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        check(kind, head, TAIL, LSN)


def test_every_kind_that_names_jobs_is_looked_at() -> None:
    kinds_with_jobs = set(kinds.NAMES) - {kinds.CLOSE, kinds.PAUSE, kinds.ANCHOR, kinds.PURGE, kinds.RESERVE}
    kinds_with_jobs -= {kinds.LANE_LIMIT}
    for kind in kinds_with_jobs:
        head = {"t": 0, "q": [2, 1], "g": [2, 1], "n": 1, "s": 1, "k": 1, "d": 1, "v": [], "B": BASE}
        if kind == kinds.ENQUEUE:
            head["n"] = TAIL + 1
        with pytest.raises(ValueError, match=r"ranges|number"):
            fitting.check(kind, head, TAIL, LSN)
