"""What becomes of leases, and records about the queue as a whole."""

from __future__ import annotations

import pytest

from nobroker.state import codes, kinds
from nobroker.state.entries import CANCEL, CANCELLED, EXPIRED, EXPIRED_LEASE, NO_EXPIRY
from nobroker.state.machine import NEVER
from nobroker.state.numbers import column, columns, pack_words, unpack_words
from nobroker.state.owned import id_digest
from tests.unit.state.words import jobs, leased, order, play, states


def test_nacks_give_each_job_its_own_outcome() -> None:
    head = {"t": 20, "q": [1, 4], "a": [20, 25, 20, 20], "x": [2], "c": [3], "e": [0, 2]}
    state = play(jobs(1, 4), leased(1, 4, token=50), (kinds.NACK, {**head, "k": 1}))
    assert states(state, range(1, 5)) == [codes.RETRY, codes.RETRY_LATER, codes.DEAD, codes.DONE]
    assert [state.entries[seq].error for seq in range(1, 5)] == [1002, 0, 1002, 0]
    assert [state.entries[seq].token for seq in range(1, 5)] == [50, 51, 52, 53]
    assert [state.entries[seq].avail for seq in range(1, 5)] == [20, 25, 20, 20]
    assert state.entries[4].flags == CANCELLED
    assert (state.pages.ref(4), state.pages.token(4)) == (1002, 53)
    assert state.leases == 0
    assert order(state) == [1]
    state.ready.promote(25, 0)
    assert order(state) == [2]


def test_a_cancelled_job_of_which_nothing_is_kept() -> None:
    state = play(jobs(1, 1), leased(1, 1), (kinds.NACK, {"t": 20, "q": [1, 1], "a": [20], "c": [0]}))
    assert states(state, [1]) == [codes.DONE]
    assert state.pages.ref(1) == 0


def test_a_lease_that_ran_out_is_remembered_until_somebody_speaks() -> None:
    state = play(jobs(1, 1, m=2), leased(1, 1, m=2), (kinds.CANCEL, {"t": 12, "g": [1, 1]}))
    assert state.entries[1].flags == CANCEL
    play((kinds.RECLAIM, {"t": 99, "q": [1, 1], "a": [99]}), state=state)
    assert state.entries[1].flags == EXPIRED_LEASE
    assert state.entries[1].last_chance
    play(leased(1, 1, m=2, token=60), (kinds.NACK, {"t": 120, "q": [1, 1], "a": [120]}), state=state)
    assert state.entries[1].flags == 0
    assert state.entries[1].attempts == 2
    assert not state.entries[1].last_chance


def test_extending_a_part_of_a_lease() -> None:
    state = play(jobs(1, 6), leased(1, 6, token=20, deadline=50))
    play((kinds.EXTEND, {"t": 12, "q": [2, 3, 5, 5, 9, 9], "d": 80, "g": [0], "s": [0, 2]}), state=state)
    assert [state.leased[seq].deadline for seq in range(1, 7)] == [50, 80, 80, 50, 80, 50]
    assert {seq + state.leased[seq].delta - 19 for seq in range(1, 7)} == set(range(1, 7))
    assert (state.entries[2].progress, state.entries[2].state) == (1000, 1000)
    assert (state.entries[5].progress, state.entries[5].state) == (0, 1000)
    assert state.leases == 3
    assert [(seq, lease.deadline) for seq, lease in state.overdue(50)] == [(1, 50), (4, 50), (6, 50)]
    assert state.overdue(49) == []
    assert [seq for seq, _ in state.overdue(80)] == [1, 4, 6, 2, 3, 5]
    play((kinds.EXTEND, {"t": 13, "q": [1, 6], "d": 90}), state=state)
    assert [state.leased[seq].deadline for seq in range(1, 7)] == [90] * 6
    assert state.overdue(89) == []
    play((kinds.ACK, {"t": 14, "q": [1, 6]}), state=state)
    assert (state.leases, state.next_deadline()) == (0, NEVER)


def test_a_release_takes_the_attempt_back() -> None:
    state = play(jobs(1, 3, x=30), leased(1, 3, x=30), (kinds.RELEASE, {"t": 20, "q": [1, 2], "a": [10, 25]}))
    assert states(state, range(1, 4)) == [codes.RETRY, codes.RETRY_LATER, codes.LEASED]
    assert [state.attempts(seq) for seq in (1, 2, 3)] == [0, 0, 1]
    assert [entry[:3] for entry in state.expiries] == [(30, 1, 3)], "the one of the batch still stands"
    assert state.never_leased(1)
    assert not state.never_leased(3)
    state.drop_outdated(30)
    assert state.expiries == []
    play((kinds.RELEASE, {"t": 30, "q": [3, 3], "a": [10]}), state=state)
    assert state.expiries == [(30, 3, 3, 0, 5)]
    assert state.outdated(29) == []
    assert state.outdated(30) == [([3], 0, 5, 30)]


def test_a_release_of_a_job_that_was_tried_before_has_no_expiry() -> None:
    nack = (kinds.NACK, {"t": 12, "q": [1, 1], "a": [12]})
    release = (kinds.RELEASE, {"t": 40, "q": [1, 1], "a": [12]})
    state = play(jobs(1, 1, x=30), leased(1, 1, x=30), nack, leased(1, 1, x=30, token=60))
    state.drop_outdated(30)
    play(release, state=state)
    assert state.attempts(1) == 1
    assert state.expiries == []
    without = play(jobs(1, 1), leased(1, 1), release)
    assert without.expiries == []


def test_jobs_whose_time_is_over() -> None:
    state = play(
        jobs(1, 3, x=30, m=2, p=4, l="lane"),
        leased(2, 2, x=30),
        jobs(4, 1, x=31),
        leased(4, 4, x=31, token=60),
        (kinds.RELEASE, {"t": 20, "q": [4, 4], "a": [10]}),
        (kinds.EXPIRE, {"t": 35, "q": [1, 4], "a": 30, "p": 4, "m": 2}),
    )
    assert states(state, range(1, 5)) == [codes.DEAD, codes.LEASED, codes.DEAD, codes.DEAD]
    entry = state.entries[1]
    assert (entry.lane, entry.priority, entry.max_attempts) == ("lane", 4, 2)
    assert (entry.avail, entry.flags, entry.attempts) == (30, EXPIRED, 0)
    assert (state.entries[4].lane, state.entries[4].max_attempts, state.entries[4].token) == ("", 5, 60)
    plain = play(jobs(1, 1), (kinds.EXPIRE, {"t": 35, "q": [1, 1], "a": 30}))
    assert (plain.entries[1].priority, plain.entries[1].max_attempts) == (0, 5)


def test_requeued_jobs_begin_anew() -> None:
    state = play(
        jobs(1, 3, x=50),
        leased(1, 3, x=50),
        (kinds.NACK, {"t": 20, "q": [1, 2], "a": [20, 20], "x": [0, 1]}),
        (kinds.REQUEUE, {"t": 30, "q": [1, 3]}),
    )
    assert states(state, range(1, 4)) == [codes.RETRY, codes.RETRY, codes.LEASED]
    entry = state.entries[1]
    assert (entry.avail, entry.attempts, entry.flags) == (30, 0, NO_EXPIRY)
    assert not state.never_leased(1), "its expiry does not count any more"
    assert state.outdated(60) == []


def test_what_a_job_says_of_itself_when_it_is_given_back() -> None:
    state = play(jobs(1, 3), leased(1, 3), (kinds.EXTEND, {"t": 12, "q": [1, 3], "d": 99, "s": [0, 1, 2]}))
    assert [state.entries[seq].state for seq in (1, 2, 3)] == [1002] * 3
    play((kinds.NACK, {"t": 13, "q": [1, 1], "a": [13], "J": b"\x80"}), state=state, lsn=2000)
    play((kinds.RELEASE, {"t": 13, "q": [2, 2], "a": [13], "J": b"\x80"}), state=state, lsn=2001)
    play((kinds.RELEASE, {"t": 13, "q": [3, 3], "a": [13]}), state=state, lsn=2002)
    assert [state.entries[seq].state for seq in (1, 2, 3)] == [2000, 2001, 1002]


def test_rescheduled_jobs() -> None:
    again = (kinds.NACK, {"t": 12, "q": [2, 3], "a": [12, 60], "e": [0]})
    state = play(jobs(1, 5, l="lane", p=2, m=3, x=500), leased(2, 5, p=2, m=3, x=500), again)
    play((kinds.ACK, {"t": 12, "q": [5, 5]}), state=state)
    shared = {"p": 2, "m": 3, "x": 500}
    play((kinds.RESCHEDULE, {"t": 20, "q": [1, 5], "a": 40, **shared}), state=state)
    waits = [codes.RETRY_LATER] * 3
    assert states(state, range(1, 6)) == [*waits, codes.LEASED, codes.DONE]
    assert [state.entries[seq].avail for seq in (1, 2, 3)] == [40] * 3
    one, two = state.entries[1], state.entries[2]
    assert (one.lane, one.priority, one.max_attempts, one.expires) == ("lane", 2, 3, 500)
    assert (one.attempts, two.attempts, two.expires) == (0, 1, 500)
    assert two.error
    assert state.never_leased(1)
    assert list(state.ready.in_order()) == [1, 2, 3]
    assert state.ready.next_due() == (40, None)
    play((kinds.RESCHEDULE, {"t": 21, "q": [2, 2], "a": 30, "w": True}), state=state)
    play((kinds.RESCHEDULE, {"t": 21, "q": [3, 3], "a": 15}), state=state)
    assert states(state, range(1, 4)) == [codes.RETRY_LATER, codes.RETRY_LATER, codes.RETRY]
    assert state.ready.next_due() == (40, 30), "the rows of before are gone"
    assert order(state) == [3]
    state.ready.promote(39, 30)
    assert order(state) == [2]
    state.ready.promote(40, 0)
    assert order(state) == [1]
    assert list(state.ready.lanes) in ([], ["lane"])


def test_rescheduling_over_and_over_leaves_one_row() -> None:
    state = play(jobs(1, 1))
    for at in range(100):
        play((kinds.RESCHEDULE, {"t": 12, "q": [1, 1], "a": at, "w": at % 3 == 0}), state=state)
    rows = [*state.ready.later, *state.ready.later_wall, *state.ready.lanes.get("", ())]
    assert len([row for row in rows if row[-1] is None]) == 1
    plain = state.entries[1]
    assert (plain.lane, plain.priority, plain.max_attempts, plain.expires) == ("", 0, 5, 0)
    state.ready.promote(99, 99)
    assert order(state) == [1]
    assert order(state) == []


def test_cancelled_jobs() -> None:
    state = play(jobs(1, 4, l="lane"), leased(1, 1), leased(3, 3, token=60))
    play((kinds.NACK, {"t": 15, "q": [3, 3], "a": [90]}), state=state)
    play((kinds.CANCEL, {"t": 20, "q": [2, 3, 9, 9], "g": [1, 1, 4, 4], "k": 1}), state=state, lsn=3000)
    assert states(state, range(1, 5)) == [codes.LEASED, codes.DONE, codes.DONE, codes.READY]
    assert [state.entries[seq].flags for seq in (1, 2, 3)] == [CANCEL, CANCELLED, CANCELLED]
    assert [state.entries[seq].token for seq in (2, 3)] == [0, 0]
    assert state.entries[2].lane == "lane"
    assert [state.pages.ref(seq) for seq in range(1, 5)] == [0, 3000, 3000, 0]
    play((kinds.CANCEL, {"t": 21, "q": [4, 4]}), state=state)
    assert state.pages.ref(4) == 0


# -- the queue as a whole ---------------------------------------------------------------------------


def test_a_lane_that_is_purged() -> None:
    state = play(
        jobs(1, 3, l="a", i=["x", None, None]),
        jobs(4, 3, l="b"),
        leased(2, 2, 5, 5),
        leased(3, 3, token=60),
        (kinds.NACK, {"t": 13, "q": [3, 3], "a": [13], "x": [0]}),
        (kinds.PURGE, {"t": 14, "l": "a", "n": 20, "h": pack_words("Q", [id_digest("x")])}),
    )
    assert states(state, range(1, 7)) == [codes.NONE] * 3 + [codes.READY, codes.LEASED, codes.READY]
    assert state.next_seq == 20
    assert sorted(state.leased) == [5]
    assert state.leases == 1
    assert state.entries == {}
    assert state.find_own("x") == ()
    play((kinds.PURGE, {"t": 15, "n": 5}), state=state)
    assert state.next_seq == 20
    assert (state.leases, state.pages.table, state.next_event()) == (0, {}, NEVER)


def test_anchors_of_another_boot_replace_all() -> None:
    anchor = {"t": 100, "b": "one", "n": "boottime", "c": 5}
    state = play((kinds.ANCHOR, anchor), (kinds.ANCHOR, {**anchor, "n": "wall", "c": 6, "t": 101}))
    assert state.anchors == {"boottime": (5, 100), "wall": (6, 101)}
    play((kinds.ANCHOR, {**anchor, "b": "two", "t": 102}), state=state)
    assert (state.boot, state.anchors) == ("two", {"boottime": (5, 102)})


def test_leases_end_with_the_boot_that_gave_them() -> None:
    state = play(jobs(1, 4), leased(1, 2, deadline=500), leased(3, 3, deadline=50, token=60))
    play((kinds.ACK, {"t": 12, "q": [2, 2]}), leased(4, 4, deadline=400, token=70), state=state)
    play((kinds.ACK, {"t": 12, "q": [4, 4]}), state=state)
    play((kinds.ANCHOR, {"t": 100, "b": "two", "n": "boottime", "c": 5, "x": 1}), state=state)
    assert {seq: lease.deadline for seq, lease in state.leased.items()} == {1: 100, 3: 50}
    assert [when for when, _, _ in sorted(state.deadlines, key=lambda row: row[0])] == [50, 100]
    assert [seq for seq, _ in state.overdue(100)] == [3, 1]


@pytest.mark.parametrize("last", [5, 50])
def test_retired_jobs_are_not_known_any_more(last: int) -> None:
    state = play(jobs(1, 8, i=["a", *[None] * 7]), leased(1, 8))
    play((kinds.NACK, {"t": 12, "q": [1, 8], "a": [12] * 8, "x": list(range(8))}), state=state)
    base = {"s": 90, "k": 91, "S": 92, "K": 93, "t": 94, "p": ["lane", None]}
    anchors = {"b": "boot", "a": [["boottime", 5, 6]]}
    head = {"t": 20, "g": [1, last], "h": pack_words("Q", [id_digest("a")]), "B": {**base, "c": anchors}}
    play((kinds.RETIRE, head), state=state)
    assert sorted(state.entries) == [seq for seq in range(1, 9) if seq > last]
    assert states(state, range(1, 9)) == [codes.NONE if seq <= last else codes.DEAD for seq in range(1, 9)]
    assert state.find_own("a") == ()
    assert (state.next_seq, state.next_token) == (90, 91)
    assert (state.reserved_seq, state.reserved_token, state.time) == (92, 93, 94)
    assert state.paused == {"lane", None}
    assert (state.boot, state.anchors) == ("boot", {"boottime": (5, 6)})


def test_lanes_are_paused_one_by_one() -> None:
    state = play((kinds.PAUSE, {"t": 1, "p": True}), (kinds.PAUSE, {"t": 1, "p": True, "l": "a"}))
    assert state.paused == {None, "a"}
    play((kinds.PAUSE, {"t": 1, "p": False}), (kinds.PAUSE, {"t": 1, "p": False, "l": "b"}), state=state)
    assert state.paused == {"a"}


def test_what_happens_next() -> None:
    state = play(jobs(1, 1, e=70), jobs(2, 1, x=60), jobs(3, 1))
    assert state.next_event() == 60
    state.drop_outdated(59)
    assert state.next_event() == 60
    state.drop_outdated(60)
    assert state.next_event() == 70
    play(leased(3, 3, deadline=40), state=state)
    assert state.next_event() == 40


def test_deadlines_of_leases_that_ended_do_not_pile_up() -> None:
    state = play(jobs(1, 200), leased(200, 200, token=1, deadline=9000))
    for seq in range(1, 200):
        play(leased(seq, seq, token=500 + seq, deadline=10_000 - seq), state=state)
        play((kinds.ACK, {"t": 12, "q": [seq, seq]}), state=state)
        assert len(state.deadlines) <= 64 + 2 * 2 + 1
    assert state.next_deadline() == 9000


# -- numbers ----------------------------------------------------------------------------------------


def test_numbers_are_little_endian_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    assert pack_words("Q", [1]) == bytes(7) + b"\1", "the other order than this machine's"
    assert unpack_words("Q", pack_words("Q", [1, 2**40])).tolist() == [1, 2**40]


def test_columns() -> None:
    packed = pack_words("q", [5, -6, 7])
    assert [column(packed, at) for at in range(3)] == [5, -6, 7]
    assert columns(packed, 1, 3) == [-6, 7]
    assert (column(4, 9), columns(4, 1, 3)) == (4, 4)
