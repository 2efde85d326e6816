"""What holds jobs back beside their time: plain values, and how records word them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from nobroker import arguments
from nobroker_mmap.plain import Frozen

MAX_KEYS: Final = 16
"""Limits of one job."""
_CONFLICTS: Final = ("wait", "discard")
_THROTTLES: Final = ("reschedule", "discard")
_MAX_LEASES: Final = 1_000_000
_MAX_WEIGHT: Final = 1000
_SHOWN: Final = frozenset({"limits", "rates", "exclusive", "fair"})


class Limit(Frozen):
    """At most `limit` jobs that bring this key are leased at once, whatever their lanes.

    Attributes:
        key: 1 to 255 characters, without control characters.
        limit: how many, 1 to 2**31 - 1. What the newest job of a key says counts for all of them, as long as
            one of them waits or is leased.
        on_conflict: "wait" for its turn, or "discard": not taken in when so many jobs of the key wait or are
            leased already. Once in, it waits like any other.
    """

    __slots__ = __match_args__ = ("key", "limit", "on_conflict")

    key: str
    limit: int
    on_conflict: str

    def __init__(self, key: str, limit: int, on_conflict: str = "wait") -> None:
        arguments.text("key", key, arguments.MAX_ID_LENGTH)
        arguments.whole("limit", limit, 1, arguments.MAX_COUNT - 1)
        self._fill(key, limit, arguments.one_of("on_conflict", on_conflict, _CONFLICTS))


class Rate(Frozen):
    """Jobs that bring this key are leased at most `max` times within any `duration`, whatever their lanes.

    Each lease counts, of a job's later tries too. Keys of rates and of `Limit`s have nothing to do with each
    other.

    Attributes:
        key: 1 to 255 characters, without control characters.
        max: how many leases, 1 to 1,000,000. What the newest job of a key says counts for all of them, as
            long as one of them waits or is leased.
        duration: seconds.
        on_throttle: "reschedule": wait until there is room, or "discard": not taken in when the leases that
            count and the jobs of the key that wait are that many already. Once in, it waits like any other.
    """

    __slots__ = __match_args__ = ("key", "max", "duration", "on_throttle")

    key: str
    max: int
    duration: float
    on_throttle: str

    def __init__(self, key: str, max: int, duration: float, on_throttle: str = "reschedule") -> None:
        arguments.text("key", key, arguments.MAX_ID_LENGTH)
        arguments.whole("max", max, 1, _MAX_LEASES)
        arguments.seconds("duration", duration, positive=True)
        self._fill(key, max, duration, arguments.one_of("on_throttle", on_throttle, _THROTTLES))


def worded(
    limits: Iterable[Limit] | Limit | None,
    rates: Iterable[Rate] | Rate | None = None,
    exclusive: str | None = None,
    fair_key: str | None = None,
    fair_weight: int = 1,
    where: str = "",
) -> dict[str, Any] | None:
    """Limits as records say them; None for none. `where` goes before their names in errors.

    Raises:
        TypeError, ValueError: they are no limits, too many, or two for one key.
    """
    said: dict[str, Any] = {}
    if limits is not None and (found := _all(where + "limits", limits, Limit)):
        said["k"] = [_flagged([one.key, one.limit], one.on_conflict) for one in found]
    if rates is not None and (found := _all(where + "rates", rates, Rate)):
        said["r"] = [
            _flagged([one.key, one.max, arguments.seconds("duration", one.duration)], one.on_throttle)
            for one in found
        ]
    if exclusive is not None:
        arguments.one_of(where + "exclusive", exclusive, ("app",))
        said["x"] = True
    if fair_key is not None:
        arguments.text(where + "fair_key", fair_key, arguments.MAX_ID_LENGTH)
        said["f"] = [fair_key, arguments.whole(where + "fair_weight", fair_weight, 1, _MAX_WEIGHT)]
    elif fair_weight != 1 or type(fair_weight) is not int:
        raise ValueError(f"{where}fair_weight without a fair_key")
    return said or None


def _flagged(words: list[Any], choice: str) -> list[Any]:
    return [*words, 1] if choice == "discard" else words


def _all(name: str, values: Any, kind: type[Any]) -> list[Any]:
    found = [values] if isinstance(values, kind) else values
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise TypeError(f"{name} must be {kind.__name__}s, not {type(found).__name__}")
    found = list(found)
    for value in found:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {kind.__name__}s, not {type(value).__name__}")
    if len(found) > MAX_KEYS:
        raise ValueError(f"{name} must be at most {MAX_KEYS}, not {len(found)}")
    if len({value.key for value in found}) != len(found):
        raise ValueError(f"{name} must not have one key twice")
    return found


def discards(said: dict[str, Any] | None) -> bool:
    """Whether one of the limits may keep a job from being taken in."""
    return said is not None and (
        any(len(limit) > 2 for limit in said.get("k", ())) or any(len(rate) > 3 for rate in said.get("r", ()))
    )


def shown(said: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a record says, for people and for dumps of jobs."""
    if said is None:
        return None
    found: dict[str, Any] = {}
    if "k" in said:
        found["limits"] = [[key, limit, _CONFLICTS[len(more)]] for key, limit, *more in said["k"]]
    if "r" in said:
        found["rates"] = [
            [key, most, duration / 1e6, _THROTTLES[len(more)]] for key, most, duration, *more in said["r"]
        ]
    if "x" in said:
        found["exclusive"] = "app"
    if "f" in said:
        found["fair"] = list(said["f"])
    return found


def from_shown(found: Any) -> dict[str, Any] | None:
    """The reverse of `shown`.

    Raises:
        TypeError, ValueError: it is nothing that `shown` gives.
    """
    if found is None:
        return None
    if type(found) is not dict or not found.keys() <= _SHOWN:
        raise ValueError(f"limits of a job that are none: {found!r:.100}")
    return worded(
        [Limit(*fields) for fields in found.get("limits", ())],
        [Rate(*fields) for fields in found.get("rates", ())],
        found.get("exclusive"),
        *found.get("fair", ()),
    )
