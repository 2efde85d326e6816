"""What single records do to the state, the rare ones and those about jobs that are not known as well."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker.state import codes, kinds
from nobroker.state.entries import EXPIRED_LEASE
from nobroker.state.machine import NEVER, State
from nobroker.state.numbers import pack_words
from nobroker.state.owned import id_digest
from nobroker.state.pages import SIZE
from nobroker.state.replay import MISFITS, apply
from tests.unit.state.words import BASE, Record, fingerprint, jobs, leased, order, play, states

# -- arrivals ---------------------------------------------------------------------------------------


def test_new_jobs_below_what_was_seen_do_not_lower_the_next_number() -> None:
    reserve = (kinds.RESERVE, {"t": 0, "s": 200, "k": 300, "S": 100, "K": 150})
    for more in ({}, {"p": 1}):
        state = play(reserve, jobs(5, 3, **more))
        assert (state.next_seq, state.next_token) == (100, 150)
        assert (state.reserved_seq, state.reserved_token) == (200, 300)
        play(jobs(100, 2, **more), state=state)
        assert state.next_seq == 102
        assert order(state) == [5, 6, 7, 100, 101]
    play((kinds.RESERVE, {"t": 0, "s": 1, "k": 1}), state=state)
    assert (state.reserved_seq, state.reserved_token) == (200, 300), "reservations only grow"


def test_some_of_a_batch_have_ids_of_their_own() -> None:
    state = play(jobs(1, 3, i=["a", None, "b"]), jobs(4, 2, i=[None, None]), jobs(6, 1, i=["c"]))
    assert [state.find_own(job_id) for job_id in "abc"] == [(1,), (3,), (6,)]
    assert [seq for seq in range(1, 7) if state.pages.has_own_id(seq)] == [1, 3, 6]
    state.forget_ids(pack_words("Q", [id_digest("a")]))
    assert state.find_own("a") == (1,), "the job is still there"
    play((kinds.DROP, {"t": 12, "q": [1, 1], "h": pack_words("Q", [id_digest("a")])}), state=state)
    assert state.find_own("a") == ()
    assert not state.pages.has_own_id(1)


def test_jobs_with_their_own_times_or_by_the_wall_clock_wait() -> None:
    delays = jobs(1, 3, a=pack_words("q", [30, 10, 20]))
    dated = jobs(4, 1, a=5, w=True)
    later = jobs(5, 2, e=40)
    state = play(delays, dated, later)
    assert states(state, range(1, 7)) == [codes.DELAYED] * 6
    assert state.ready.next_due() == (10, 5)
    state.ready.promote(20, 4)
    assert order(state) == [2, 3]
    state.ready.promote(40, 5)
    assert order(state) == [4, 1, 5, 6], "in the order of their times"


def test_moved_jobs_keep_what_they_are() -> None:
    overrides = {
        1: {"s": "r", "n": 2, "a": 7, "f": EXPIRED_LEASE, "k": 31, "E": b""},
        2: {"s": "l", "n": 1, "k": 40, "d": 90},
        3: {"s": "l", "n": 3, "k": 41, "d": 95, "P": b""},
        4: {"s": "x", "n": 5, "k": 33, "E": b""},
        5: {"s": "d", "n": 1, "k": 34, "K": True},
        6: {"s": "d", "n": 2, "k": 0},
        7: {"s": "d"},
    }
    head = {"t": 20, "q": [3, 3, 11, 17], "n": 8, "a": 5, "l": "lane", "p": 2, "o": overrides, "x": 60}
    ids = ["three", None, "twelve", None, None, None, None, None]
    state = play((kinds.MOVE, {**head, "i": ids}))
    assert states(state, [3, *range(11, 18)]) == [
        *(codes.READY, codes.RETRY, codes.LEASED, codes.LEASED),
        *(codes.DEAD, codes.DONE, codes.DONE, codes.DONE),
    ]
    assert {state.pages.lane(seq) for seq in (3, *range(11, 18))} == {"lane"}
    assert (state.next_seq, state.next_token) == (18, 42)
    assert [state.attempts(seq) for seq in (3, *range(11, 18))] == [0, 2, 1, 3, 5, 1, 2, 0]
    assert state.entries[11].avail == 7
    assert (state.entries[11].error, state.entries[11].progress) == (1000, 0)
    assert (state.entries[13].error, state.entries[13].progress) == (0, 1000)
    assert 12 not in state.entries
    assert [state.leased[seq].deadline for seq in (12, 13)] == [90, 95]
    assert [seq + state.leased[seq].delta for seq in (12, 13)] == [40, 41]
    assert [state.pages.token(seq) for seq in (15, 16, 17)] == [34, 0, 0]
    assert [state.pages.ref(seq) for seq in (15, 16, 17)] == [1000, 0, 0]
    assert [state.find_own(job_id) for job_id in ("three", "twelve")] == [(3,), (12,)]
    assert [seq for seq in range(1, 20) if state.pages.has_own_id(seq)] == [3, 12]
    assert [(expires, seq) for expires, seq, *_ in sorted(state.expiries)] == [
        (60, seq) for seq in (3, *range(11, 18))
    ]
    assert order(state) == [3, 11]
    assert state.next_deadline() == 90


def test_moved_jobs_that_wait_are_due_or_not() -> None:
    head = {"t": 20, "q": [3, 6], "n": 4, "a": pack_words("q", [30, 15, 40, 10]), "i": ["x", None, None, "y"]}
    state = play((kinds.RESERVE, {"t": 0, "s": 9, "k": 9, "S": 50}), (kinds.MOVE, head))
    assert states(state, range(3, 7)) == [codes.DELAYED, codes.READY, codes.DELAYED, codes.READY]
    assert [seq for seq in range(1, 9) if state.pages.has_own_id(seq)] == [3, 6]
    assert state.next_seq == 50
    assert state.expiries == []
    assert order(state) == [6, 4]
    state.ready.promote(40, 0)
    assert order(state) == [3, 5]
    dated = play((kinds.MOVE, {**head, "q": [8, 8], "n": 1, "a": 5, "i": None, "w": True}))
    assert states(dated, [8]) == [codes.DELAYED], "by the wall clock, whatever the time of the queue"
    assert dated.ready.next_due() == (None, 5)


def test_a_move_of_known_jobs_changes_only_where_their_values_are() -> None:
    state = play(
        jobs(1, 3),
        leased(1, 2, a=pack_words("q", [10, 10])),
        (kinds.EXTEND, {"t": 12, "q": [1, 2], "d": 200, "g": [0], "s": [1]}),
        (kinds.NACK, {"t": 13, "q": [1, 1], "a": [40], "e": [0]}),
        (kinds.ACK, {"t": 14, "q": [2, 2], "k": 1}),
    )
    before = fingerprint(state)
    assert (state.entries[1].error, state.entries[1].progress, state.entries[1].state) == (1003, 1002, 0)
    assert state.pages.ref(2) == 1004
    play((kinds.MOVE, {"t": 15, "q": [1, 3], "n": 3, "o": {}}), state=state, lsn=5000)
    assert (state.entries[1].error, state.entries[1].progress, state.entries[1].state) == (5000, 5000, 0)
    assert state.entries[2].state == 5000
    assert state.pages.ref(2) == 5000
    after = fingerprint(state)
    assert after[2:] == before[2:]


# -- leases -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [2, 9, 3 * SIZE])
def test_a_lease_of_what_does_not_wait_changes_nothing_but_the_next_token(seq: int) -> None:
    state = play(jobs(1, 3), leased(2, 2, token=50))
    before = fingerprint(state)
    play(leased(seq, seq, token=60), state=state)
    assert state.next_token == 61
    play(leased(seq, seq, token=30), state=state)
    assert state.next_token == 61, "tokens only grow"
    state.next_token = 51
    assert fingerprint(state) == before


def test_a_lease_of_one_job_whose_place_is_packed() -> None:
    state = play(jobs(1, 3), leased(2, 2, a=pack_words("q", [7])))
    assert state.leased[2].place(2) == 7


def test_a_lease_of_jobs_in_different_states() -> None:
    state = play(
        jobs(1, 5),
        leased(2, 2, token=20),
        (kinds.NACK, {"t": 12, "q": [2, 2], "a": [12]}),
        leased(4, 4, token=21),
        (kinds.ACK, {"t": 13, "q": [4, 4]}),
        leased(1, 5, token=30, a=pack_words("q", [10, 12, 10, 10, 10]), time=14, deadline=70),
    )
    assert states(state, range(1, 6)) == [codes.LEASED] * 3 + [codes.DONE, codes.LEASED]
    assert {seq: seq + lease.delta for seq, lease in state.leased.items()} == {1: 30, 2: 31, 3: 32, 5: 34}
    assert [state.leased[seq].place(seq) for seq in (1, 2, 3)] == [10, 12, 10]
    assert [state.attempts(seq) for seq in range(1, 6)] == [1, 2, 1, 1, 1]
    assert state.leases == 4
    assert state.next_token == 35
    play((kinds.ACK, {"t": 15, "q": [1, 5]}), state=state)
    assert state.leases == 0
    assert not state.leased
    assert states(state, range(1, 6)) == [codes.DONE] * 5
    assert [state.pages.token(seq) for seq in range(1, 6)] == [30, 31, 32, 21, 34]
    assert state.next_deadline() == NEVER


def test_one_lease_of_several_rows() -> None:
    head = {"t": 11, "q": [1, 2, 9, 9, 5, 6], "k": 70, "d": 80, "v": [[3, 0, 5, 0, 10], [2, 7, 3, 99, 4]]}
    state = play(jobs(1, 2), jobs(5, 2, p=7, m=3, x=99, a=4), jobs(9, 1), (kinds.LEASE, head))
    assert {seq: seq + lease.delta for seq, lease in state.leased.items()} == {
        1: 70, 2: 71, 9: 72, 5: 73, 6: 74,
    }  # fmt: skip
    assert (state.leased[5].priority, state.leased[5].max_attempts, state.leased[5].expires) == (7, 3, 99)
    assert (state.leased[9].priority, state.leased[9].max_attempts, state.leased[9].expires) == (0, 5, 0)
    assert (state.leased[5].place(5), state.leased[9].place(9)) == (4, 10)
    assert state.next_token == 75


def test_acks_of_ranges_with_holes() -> None:
    state = play(jobs(1, 9), leased(1, 3, 5, 9, token=20), (kinds.ACK, {"t": 12, "q": [6, 7]}))
    play((kinds.ACK, {"t": 13, "q": [2, 8], "k": 1}), state=state, lsn=7000)
    assert states(state, range(1, 10)) == [
        *(codes.LEASED, codes.DONE, codes.DONE, codes.READY, codes.DONE, codes.DONE, codes.DONE),
        *(codes.DONE, codes.LEASED),
    ]
    assert [state.pages.ref(seq) for seq in range(1, 10)] == [0, 7000, 7000, 0, 7000, 0, 0, 7000, 0]
    assert [state.pages.token(seq) for seq in range(1, 10)] == [0, 21, 22, 0, 23, 24, 25, 26, 0]
    assert state.leases == 2
    assert sorted(state.leased) == [1, 9]
    play((kinds.ACK, {"t": 14, "q": [9, 9], "k": 1}), state=state, lsn=8000)
    assert state.pages.ref(9) == 8000
    assert state.leases == 1


def test_an_ack_where_a_lane_has_a_name() -> None:
    state = play(jobs(1, 2, l="lane"), leased(1, 1), (kinds.ACK, {"t": 12, "q": [1, 1]}))
    assert states(state, [1, 2]) == [codes.DONE, codes.READY]
    assert state.pages.total(codes.DONE, "lane") == 1
    assert state.pages.token(1) == 50


NOTHING: list[Record] = [
    (kinds.ACK, {"t": 12, "q": [1, 1]}),
    (kinds.ACK, {"t": 12, "q": [1, 9]}),
    (kinds.NACK, {"t": 12, "q": [1, 9], "a": [0] * 9}),
    (kinds.RECLAIM, {"t": 12, "q": [1, 9], "a": [0] * 9}),
    (kinds.EXTEND, {"t": 12, "q": [1, 9], "d": 500}),
    (kinds.EXTEND, {"t": 12, "q": [1, 9], "d": 500, "g": [0, 8], "s": [1]}),
    (kinds.RELEASE, {"t": 12, "q": [1, 9], "a": [0] * 9}),
    (kinds.REQUEUE, {"t": 12, "q": [1, 9]}),
    (kinds.EXPIRE, {"t": 12, "q": [20, 29], "a": 12}),
    (kinds.CANCEL, {"t": 12, "q": [20, 29], "g": [1, 29]}),
    (kinds.CANCEL, {"t": 12}),
    (kinds.RESCHEDULE, {"t": 12, "q": [20, 29], "a": 50}),
    (kinds.DROP, {"t": 12, "q": [20, 5 * SIZE]}),
    (kinds.PURGE, {"t": 12, "l": "nobody", "n": 1}),
    (kinds.RESERVE, {"t": 12, "s": 0, "k": 0}),
    (kinds.RETIRE, {"t": 12, "B": BASE}),
    (99, {"t": 12}),
]


@pytest.mark.parametrize("kind, head", NOTHING)
def test_a_record_about_jobs_that_it_does_not_concern_changes_nothing(
    kind: int, head: dict[str, Any]
) -> None:
    state = play(jobs(1, 9))
    before = fingerprint(state)
    play((kind, head), state=state)
    assert fingerprint(state) == before
    assert state.time == (12 if kind in kinds.NAMES else 10)
    play((kinds.PAUSE, {"t": 5, "p": True}), state=state)
    assert state.time >= 10, "time never runs backwards"


def test_a_record_that_is_none_is_a_misfit() -> None:
    for kind in sorted(set(kinds.NAMES) - {kinds.CLOSE, kinds.CANCEL, kinds.RETIRE}):
        with pytest.raises(MISFITS):
            apply(State(), kind, {"q": [1, "x"], "t": None}, 1)
    with pytest.raises(MISFITS):
        apply(State(), kinds.RETIRE, {}, 1)
