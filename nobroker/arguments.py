"""Checks of what callers pass: wrong types and values outside their range are refused before anything is
written.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Iterable
from typing import Any, Final

from nobroker.lanes import Lanes, Selection
from nobroker_mmap.format import MIN_SEGMENT_SIZE

MAX_SECONDS: Final = 100 * 366 * 86400.0
"""A hundred years: longer delays are mistakes."""

_NOT_TEXT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TEXT: Final = frozenset({str})
_NUMBERS: Final = frozenset({int, float})
_MADE: Final = re.compile("nb-[0-9a-v]{13}-[0-9]+")
MAX_ID_LENGTH: Final = 255
MAX_LANE_LENGTH: Final = 100
MAX_COUNT: Final = 2**31
MAX_ATTEMPTS: Final = 2**31 - 1


def directory(path: Any) -> str:
    """A path of text, as text."""
    found = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(found, str):
        raise TypeError(f"path must be a path, not {type(path).__name__}")
    return found or os.curdir


def seconds(name: str, value: Any, *, low: float = 0.0, positive: bool = False) -> int:
    """Seconds -> microseconds. Finite, within a hundred years, not below `low` (above 0 when `positive`)."""
    number = _number(name, value)
    if not math.isfinite(number) or number > MAX_SECONDS or number < low or (positive and number <= 0):
        bound = "greater than 0" if positive else f"at least {low:g}"
        raise ValueError(
            f"{name} must be a finite number of seconds, {bound} and at most 100 years, not {value!r}"
        )
    micros = round(number * 1e6)
    return max(micros, 1) if positive else micros


def all_seconds(name: str, values: Iterable[Any]) -> array[int]:
    """`seconds` of each."""
    numbers = list(values)
    if (
        numbers
        and set(map(type, numbers)) <= _NUMBERS
        and min(numbers) >= 0
        and max(numbers) <= MAX_SECONDS
        and all(map(math.isfinite, numbers))
    ):
        return array("q", [round(number * 1e6) for number in numbers])
    return array("q", [seconds(name, value) for value in numbers])


def optional_seconds(name: str, value: Any, *, positive: bool = False) -> int | None:
    """As `seconds`; None stays None."""
    return None if value is None else seconds(name, value, positive=positive)


def wait_seconds(name: str, value: Any) -> float:
    """Seconds to wait: a number >= 0; infinite means for ever."""
    number = _number(name, value)
    if math.isnan(number) or number < 0:
        raise ValueError(f"{name} must be a number of seconds >= 0, not {value!r}")
    return min(float(number), MAX_SECONDS)


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in `low..high`; a bool is none."""
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low:,} and {high:,}, not {value!r}")
    return value


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of some words."""
    if type(value) is not str or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r:.40}")
    return value


def flag(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def wall_time(name: str, value: Any) -> int | None:
    """A moment: seconds since the epoch, or an aware datetime -> microseconds."""
    if value is None:
        return None
    if hasattr(value, "utcoffset") and hasattr(value, "timestamp"):
        if value.utcoffset() is None:
            raise ValueError(
                f"{name} must have a time zone: a naive datetime means another moment on another machine"
            )
        value = value.timestamp()
    number = _number(name, value)
    if not math.isfinite(number) or not 0 <= number < 253402300800:
        raise ValueError(f"{name} must be a moment before the year 10000, not {value!r}")
    return round(number * 1e6)


def text(name: str, value: Any, longest: int, *, empty: bool = False) -> str:
    """Text without control characters and lone surrogates."""
    if type(value) is not str:
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if len(value) > longest or not (value or empty):
        raise ValueError(f"{name} must have {0 if empty else 1} to {longest} characters, not {len(value)}")
    found = _NOT_TEXT.search(value)
    if found is not None:
        raise ValueError(
            f"{name} must not contain control characters or surrogates, as {found.group()!r} is one"
        )
    return value


def own_id(value: Any, name: str = "job_id") -> str:
    """An id of the caller's own."""
    job_id = text(name, value, MAX_ID_LENGTH)
    if looks_made(job_id):
        raise ValueError(
            f"{name} {job_id!r} has the form of the ids that the queue makes itself; choose another one"
        )
    return job_id


def own_ids(values: Iterable[Any]) -> list[str]:
    """`own_id` of each: in order where all of them together are."""
    ids = list(values)
    return ids if plainly_ids(ids) else [own_id(job_id) for job_id in ids]


def plainly_ids(ids: list[Any]) -> bool:
    """Whether all are ids of the caller's own, at a look at all of them together; False: look at each."""
    if ids and set(map(type, ids)) == _TEXT and max(map(len, ids)) <= MAX_ID_LENGTH and min(map(len, ids)):
        together = "".join(ids)
        sound = together.isprintable() if together.isascii() else _NOT_TEXT.search(together) is None
        return sound and "nb-" not in together
    return False


def looks_made(job_id: str) -> bool:
    """Whether an id has the form of default ids: nb-, 13 characters of base 32, -, digits."""
    return job_id.startswith("nb-") and _MADE.fullmatch(job_id) is not None


def lane(name: str, value: Any) -> str:
    return text(name, value, MAX_LANE_LENGTH, empty=True)


def optional_lane(value: Any) -> str | None:
    return None if value is None else lane("lane", value)


def lane_list(value: Any) -> Selection:
    if value is None or type(value) is Lanes:
        return value
    if isinstance(value, (str, bytes)):
        raise TypeError("lanes must be a list of lanes, not a single string")
    names = tuple(dict.fromkeys(lane("lanes", name) for name in value))
    if not names:
        raise ValueError("lanes must name at least one lane; leave it out for all")
    return names


def segment_size(value: Any) -> int:
    """Bytes; a power of two is made of it by rounding up."""
    size = whole("segment_size", value, MIN_SEGMENT_SIZE, 256 * 2**20)
    return 1 << (size - 1).bit_length()


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large: {value!r:.40}") from None
