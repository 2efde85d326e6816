"""Whether the head of a record that others wrote can be what it says, before anything is done by it.

A checksum tells accidents, not lies: a few bytes could name more jobs than there is memory or time for. Every
job has at least one byte of payload, so no record speaks of more jobs than bytes were written before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nobroker.state import kinds
from nobroker.state.machine import Head

_TOP = 2**62
"""Above all numbers that are ever given out."""


def check(kind: int, head: Head, tail: int, lsn: int) -> None:
    """Look at the numbers that decide how much is to be done.

    Args:
        kind: type of the record.
        head: its head, decoded.
        tail: size of its tail in bytes.
        lsn: where in the log it begins.

    Raises:
        ValueError, TypeError, KeyError: this is no head that the library writes.
    """
    if kind == kinds.ENQUEUE and len(head) == 3 and _ordinary(tail, **head):
        return
    _number(head.get("t", 0))
    looker = _LOOKERS.get(kind)
    if looker is not None:
        looker(head, tail, lsn)


def _ordinary(tail: int, n: Any, s: Any, t: Any) -> bool:
    """Whether these are the numbers of one new job, as in most records."""
    return type(n) is type(s) is type(t) is int and n == 1 <= tail and 0 < s < _TOP and 0 <= t < _TOP


def _number(value: Any, top: int = _TOP) -> int:
    if type(value) is not int or not 0 <= value <= top:
        raise ValueError(f"{value!r} where a number from 0 to {top} belongs")
    return value


def _spans(spans: Any, most: int) -> int:
    """How many numbers flat ranges hold; at most so many."""
    if type(spans) is list and len(spans) == 2:  # most have one range
        first, last = spans
        if type(first) is type(last) is int and 0 <= first <= last <= _TOP and last - first < most:
            return last - first + 1
    if type(spans) is not list or len(spans) % 2:
        raise ValueError("ranges that are no pairs")
    total = 0
    for first, last in zip(spans[::2], spans[1::2], strict=True):
        total += _number(last) - _number(first) + 1
        if first > last or total > most:
            raise ValueError(f"ranges of more than {most} jobs, or that end before they begin")
    return total


def _new(head: Head, tail: int, lsn: int) -> None:
    number = _number(head["n"], tail)
    if not number:
        raise ValueError("no job")
    _number(_number(head["s"]) + number)
    _fields(head, number)


def _fields(head: Head, number: int) -> None:
    """What jobs have in common, or each of its own."""
    for key in "ea":
        value = head.get(key, 0)
        if type(value) is not int and (type(value) is not bytes or len(value) != 8 * number):
            raise ValueError(f"{key!r} is neither one time nor one for each job")
    ids = head.get("i")
    if ids is not None and (
        type(ids) is not list or len(ids) != number or {type(one) for one in ids} - {str, type(None)}
    ):
        raise ValueError("ids that are not one for each job")
    if any(type(head.get(key, 0)) is not int for key in "pm") or type(head.get("l", "")) is not str:
        raise ValueError("a priority, a number of attempts or a lane that is none")
    _number(head["t"]), _number(head.get("x", 0))
    if type(head.get("M", b"")) not in (bytes, type(None)):
        raise ValueError("metadata that are not packed")
    for key in "cC":
        if key in head:
            _limits(head[key])


def _limits(said: Any) -> None:
    """What is said of limits."""
    if type(said) is not dict:
        raise ValueError("limits that are no map")
    for key, fewest in (("k", 2), ("r", 3)):
        for words in said.get(key, ()):
            if not fewest <= len(words) <= fewest + 1 or type(words[0]) is not str:
                raise ValueError(f"{words!r} where a key and its limit belong")
            for number in words[1:]:
                if not _number(number):
                    raise ValueError("a limit that lets nothing through")
    if "f" in said and (len(said["f"]) != 2 or type(said["f"][0]) is not str or not _number(said["f"][1])):
        raise ValueError("a fair key or a weight that is none")
    if said.get("x", True) is not True:
        raise ValueError("jobs that run alone, or not")


def _texts(*values: Any) -> None:
    if any(type(value) is not str for value in values):
        raise ValueError(f"{values!r:.100} where texts belong")


def _lane_limit(head: Head, tail: int, lsn: int) -> None:
    _texts(head["l"])
    if head["n"] is not None and not _number(head["n"]):
        raise ValueError("a limit that lets nothing through")


def _moved(head: Head, tail: int, lsn: int) -> None:
    if _spans(head["q"], tail) != _number(head["n"]):
        raise ValueError("ranges that do not hold as many jobs as the record")
    _fields(head, head["n"])


def _replaced(head: Head, tail: int, lsn: int) -> None:
    _moved(head, tail, lsn)
    if head["n"] != 1 or type(head["a"]) is not int:
        raise ValueError("it replaces one job, and says when it is due")


def _leased(head: Head, tail: int, lsn: int) -> None:
    _number(head["k"]), _number(head["d"])
    if _spans(head["q"], lsn) != sum(_number(row[0]) for row in head["v"]):
        raise ValueError("ranges that do not hold as many jobs as the rows")


def _settled(head: Head, tail: int, lsn: int) -> None:
    _spans(head.get("q", []), lsn)


def _given_back(head: Head, tail: int, lsn: int) -> None:
    _spans(head.get("q", []), lsn)
    if type(head.get("J", b"")) is not bytes:
        raise ValueError("a state that is not packed")


def _rescheduled(head: Head, tail: int, lsn: int) -> None:
    _spans(head["q"], lsn)
    _number(head["a"]), _number(head.get("x", 0))
    if any(type(head.get(key, 0)) is not int for key in "pm") or type(head.get("w", False)) is not bool:
        raise ValueError("a priority, a number of attempts or a clock that is none")


def _cancelled(head: Head, tail: int, lsn: int) -> None:
    _spans(head.get("q", []), lsn)
    _spans(head.get("g", []), lsn)


def _retired(head: Head, tail: int, lsn: int) -> None:
    _spans(head.get("g", []), lsn)
    base = head["B"]
    for key in "skSKt":
        _number(base[key])
    for lane, limit in base.get("L", ()):
        _lane_limit({"l": lane, "n": limit}, tail, lsn)
    for lane, priority, *key, place in (*base.get("f", ()), *base.get("F", ())):
        _texts(lane, *key)
        _number(abs(priority)), _number(place)
    for key, duration, times in base.get("w", ()):
        _texts(key)
        if len(times) % 2:
            raise ValueError("leases of a rate that are no pairs")
        for number in (duration, *times):
            _number(number)


def _purged(head: Head, tail: int, lsn: int) -> None:
    _number(head["n"])


def _reserved(head: Head, tail: int, lsn: int) -> None:
    for key in "skSK":
        _number(head.get(key, 0))


_LOOKERS: dict[int, Callable[[Head, int, int], None]] = {
    kinds.ENQUEUE: _new,
    kinds.MOVE: _moved,
    kinds.REPLACE: _replaced,
    kinds.LEASE: _leased,
    kinds.CANCEL: _cancelled,
    kinds.RESCHEDULE: _rescheduled,
    kinds.RETIRE: _retired,
    kinds.PURGE: _purged,
    kinds.RESERVE: _reserved,
    kinds.LANE_LIMIT: _lane_limit,
    **dict.fromkeys(
        (
            kinds.ACK,
            kinds.EXTEND,
            kinds.EXPIRE,
            kinds.REQUEUE,
            kinds.DROP,
        ),
        _settled,
    ),
    **dict.fromkeys((kinds.NACK, kinds.RECLAIM, kinds.RELEASE), _given_back),
}
