"""What records about jobs do where they meet others than they were written for."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker.state import codes, kinds
from nobroker.state.machine import State
from nobroker.state.replay import apply


@pytest.fixture
def state() -> State:
    """Jobs 1 to 6: one is leased, one done, one dead; the others wait."""
    made = State()
    apply(made, kinds.ENQUEUE, {"t": 10, "n": 6, "s": 1, "m": 1}, 100)
    apply(made, kinds.LEASE, {"t": 11, "w": 11, "d": 99, "k": 1, "q": [1, 3], "v": [[3, 0, 1, 0, 10]]}, 200)
    apply(made, kinds.ACK, {"t": 12, "q": [2, 2]}, 300)
    apply(made, kinds.NACK, {"t": 13, "q": [3, 3], "a": [13], "x": [0]}, 400)
    return made


def codes_of(state: State) -> list[int]:
    return [state.pages.code(seq) for seq in range(1, 8)]


def test_a_reschedule_moves_those_that_wait_and_no_others(state: State) -> None:
    before = codes_of(state)
    apply(state, kinds.RESCHEDULE, {"t": 14, "q": [1, 7], "a": 50, "m": 1}, 500)
    assert codes_of(state) == [*before[:3], *[codes.RETRY_LATER] * 3, codes.NONE]
    assert set(state.entries) == {3, 4, 5, 6}
    assert state.entries[4].max_attempts == 1
    apply(state, kinds.RESCHEDULE, {"t": 15, "q": [5, 5], "a": 15, "w": True}, 600)
    assert state.pages.code(5) == codes.RETRY_LATER
    state.ready.promote(50, 14)
    assert [state.pages.code(seq) for seq in (4, 5, 6)] == [codes.RETRY, codes.RETRY_LATER, codes.RETRY]
    state.ready.promote(50, 15)
    assert list(state.ready.in_order()) == [5, 4, 6]


@pytest.mark.parametrize("after", [{"a": 5}, {"a": 10**6}, {"a": 10**6, "w": True}])
def test_a_job_that_is_rescheduled_over_and_over_leaves_no_rows(state: State, after: dict[str, Any]) -> None:
    for turn in range(100):
        apply(state, kinds.RESCHEDULE, {"t": 14, "q": [4, 4], **after, "a": after["a"] + turn}, 500 + turn)
    ready = state.ready
    assert sum(map(len, (*ready.lanes.values(), ready.later, ready.later_wall))) == 2  # it, and the run
    ready.promote(2 * 10**6, 2 * 10**6)
    assert sorted(ready.in_order()) == [4, 5, 6]


@pytest.mark.parametrize("kind", [kinds.NACK, kinds.RELEASE])
def test_a_state_is_that_of_jobs_which_were_held(state: State, kind: int) -> None:
    head: dict[str, Any] = {"t": 14, "q": [1, 7], "a": [14] * 7, "J": b"\x01"}
    before = codes_of(state)
    apply(state, kind, head, 500)
    assert {seq: entry.state for seq, entry in state.entries.items()} == {1: 500, 3: 0}
    assert codes_of(state)[1:] == before[1:]
    apply(state, kinds.LEASE, {"t": 15, "w": 15, "d": 99, "k": 9, "q": [1, 1], "v": [[1, 0, 1, 0, 14]]}, 600)
    apply(state, kind, {"t": 16, "q": [1, 1], "a": [16]}, 700)
    assert state.entries[1].state == 500
