"""What holds jobs back beside their time: plain values, and how records word them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from nobroker import arguments
from nobroker_mmap.plain import Frozen

MAX_KEYS: Final = 16
"""Limits of one job."""
_CONFLICTS: Final = ("wait", "discard")


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


def worded(limits: Iterable[Limit] | Limit | None, where: str = "") -> dict[str, Any] | None:
    """Limits as records say them; None for none. `where` goes before their names in errors.

    Raises:
        TypeError, ValueError: they are no limits, too many, or two for one key.
    """
    said: dict[str, Any] = {}
    if limits is not None:
        keys = [
            [limit.key, limit.limit] if limit.on_conflict == "wait" else [limit.key, limit.limit, 1]
            for limit in _all(where + "limits", limits, Limit)
        ]
        if keys:
            said["k"] = keys
    return said or None


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
    return said is not None and any(len(limit) > 2 for limit in said.get("k", ()))


def shown(said: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a record says, for people and for dumps of jobs."""
    if said is None:
        return None
    found: dict[str, Any] = {}
    if "k" in said:
        found["limits"] = [[key, limit, _CONFLICTS[len(more)]] for key, limit, *more in said["k"]]
    return found


def from_shown(found: Any) -> dict[str, Any] | None:
    """The reverse of `shown`.

    Raises:
        TypeError, ValueError: it is nothing that `shown` gives.
    """
    if found is None:
        return None
    if type(found) is not dict or not found.keys() <= {"limits"}:
        raise ValueError(f"limits of a job that are none: {found!r:.100}")
    return worded([Limit(*fields) for fields in found.get("limits", ())])
