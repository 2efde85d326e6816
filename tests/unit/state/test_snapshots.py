"""The state as objects, and back; and objects that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from nobroker.state import kinds, snapshots
from nobroker.state.machine import State
from nobroker.state.numbers import pack_words
from nobroker.state.pages import SIZE
from nobroker.state.snapshots import capture, restore
from tests.unit.state.words import fingerprint, jobs, leased, order, play

MISFIT = (ValueError, TypeError, KeyError, IndexError)


def full() -> State:
    """A state with something of everything."""
    return play(
        (kinds.RESERVE, {"t": 1, "s": 5000, "k": 6000}),
        (kinds.ANCHOR, {"t": 2, "b": "boot", "n": "boottime", "c": 5}),
        (kinds.PAUSE, {"t": 2, "p": True, "l": "b"}),
        jobs(1, 100, x=500),
        jobs(101, 3, a=pack_words("q", [900, 700, 800]), l="a", p=3),
        jobs(104, 1, a=5, w=True),
        jobs(105, 1, i=["own"]),
        jobs(107, 1),
        jobs(109, 1),
        jobs(SIZE - 2, 5, l="b", p=-1, m=2),
        leased(1, 4, 6, 9, token=50, deadline=300, x=500),
        leased(105, 105, token=60, deadline=310),
        leased(20, 21, token=70, deadline=320, x=500, a=pack_words("q", [10, 12])),
        (kinds.ACK, {"t": 12, "q": [1, 2], "k": 1}),
        (kinds.NACK, {"t": 13, "q": [3, 4, 6, 6], "a": [13, 99, 13], "x": [2], "e": [0, 2]}),
        (kinds.EXTEND, {"t": 14, "q": [7, 7], "d": 400, "g": [0], "s": [0]}),
        (kinds.CANCEL, {"t": 15, "q": [30, 30], "g": [8, 8]}),
    )


def carried(state: State) -> list[Any]:
    """The objects as they come out of a file."""
    packed = [msgpack.packb(item) for item in capture(state)]
    return [msgpack.unpackb(data, strict_map_key=False) for data in packed]


def test_the_state_comes_back() -> None:
    state = full()
    again = restore(carried(state))
    assert again is not None
    assert fingerprint(again) == fingerprint(state)
    assert carried(again)[0] == carried(state)[0]
    assert again.find_own("own") == (105,)
    assert (again.time, again.boot, again.anchors) == (15, "boot", {"boottime": (5, 2)})
    assert (again.paused, again.next_event()) == ({"b"}, state.next_event())
    assert again.ready.next_due() == state.ready.next_due()
    assert [again.leased[seq].place(seq) for seq in (20, 21)] == [10, 12]
    for one in (state, again):
        one.ready.promote(900, 5)
    assert order(again) == order(state)
    records = [
        (kinds.ACK, {"t": 900, "q": [7, 9, 20, 20, 105, 105]}),
        (kinds.EXTEND, {"t": 901, "q": [21, 21], "d": 1000}),
        (kinds.REQUEUE, {"t": 902, "q": [6, 6]}),
        jobs(5000, 3, time=903),
    ]
    for one in (state, again):
        play(*records, state=one)
    assert fingerprint(again) == fingerprint(state)
    assert again.leases == len({id(lease) for lease in again.leased.values()}) == 1


def test_the_picture_is_of_one_moment() -> None:
    state = full()
    expected = carried(state)
    objects = capture(state)
    state.ready.promote(900, 5)
    order(state)
    play((kinds.PURGE, {"t": 20, "n": 1}), (kinds.PAUSE, {"t": 20, "p": False, "l": "b"}), state=state)
    assert [msgpack.unpackb(msgpack.packb(item), strict_map_key=False) for item in objects] == expected


def test_rows_that_are_used_up_are_left_out() -> None:
    state = play(jobs(1, 1), jobs(200, 70), leased(1, 1), leased(200, 269, token=60))
    again = restore(carried(state))
    assert again is not None
    assert order(again) == []
    run = next(item for item in carried(full())[1:] if item[0] == "r")
    head = carried(State())[0]
    empty = restore([head, [*run[:6], 0, *run[7:9], None, None, None]])
    assert empty is not None
    assert (empty.ready.lanes, order(empty)) == ({}, [])


def test_another_version_is_none() -> None:
    objects = carried(full())
    objects[0]["v"] = snapshots.VERSION + 1
    assert restore(objects) is None


def changed(mark: str, change: Callable[[list[Any]], None]) -> list[Any]:
    """Objects of which the first with a mark is spoilt."""
    objects = carried(full())
    change(next(item for item in objects[1:] if item[0] == mark))
    return objects


def put(index: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda item: item.__setitem__(index, value)


@pytest.mark.parametrize(
    "mark, index, value",
    [
        ("p", 0, "?"),
        ("p", 2, bytes(SIZE - 1)),
        ("p", 2, bytes(SIZE - 1) + b"\x08"),
        ("p", 2, 8),
        ("p", 2, -1),
        ("p", 2, None),
        ("p", 3, bytes(8 * SIZE - 8)),
        ("p", 3, b"1"),
        ("p", 4, bytes(8 * SIZE + 8)),
        ("p", 5, bytes(4 * SIZE - 4)),
        ("p", 5, (7).to_bytes(4, "little") * SIZE),
        ("p", 6, bytes(SIZE - 1)),
        ("p", 6, 5),
        ("e", 1, [[1]]),
        ("e", 1, [[1] * 40]),
        ("l", 1, [1, 10**9]),
        ("l", 1, [5, 4]),
        ("l", 1, [5, 4, 7, 9]),
        ("l", 1, [5]),
        ("l", 1, []),
        ("l", 8, [1, 2]),
        ("r", 5, -1),
        ("r", 6, -1),
        ("r", 6, 10**9),
        ("r", 9, bytes(4)),
        ("r", 10, bytes(8)),
        ("i", 2, []),
    ],
)
def test_objects_that_are_none(mark: str, index: int, value: Any) -> None:
    with pytest.raises(MISFIT):
        restore(changed(mark, put(index, value)))


def test_the_lanes_of_a_page_need_names() -> None:
    objects = carried(full())
    assert len(objects[0]["l"]) == 3
    objects[0]["l"] = objects[0]["l"][:2]
    with pytest.raises(ValueError, match="no name"):
        restore(objects)


def test_many_entries_come_in_pieces() -> None:
    number = 2500
    state = play(
        jobs(1, number),
        leased(1, number),
        (kinds.NACK, {"t": 12, "q": [1, number], "a": [12] * number, "x": list(range(number))}),
    )
    pieces = [item for item in carried(state) if isinstance(item, list) and item[0] == "e"]
    assert [len(item[1]) for item in pieces] == [1000, 1000, 500]
    again = restore(carried(state))
    assert again is not None
    assert again.entries == state.entries
