"""What msgpack has no form of its own for: big ints, dates and times, Decimal, UUID."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgpack

EXTENDED: Final = frozenset({datetime, date, time, timedelta, Decimal, UUID})
"""The types that are stored as extensions, beside ints outside 64 bits."""

_INT, _DATETIME, _DATE, _TIME, _DELTA, _DECIMAL, _UUID = range(1, 8)


def to_extension(value: Any) -> Any:
    """The packer's hook: what msgpack has no form of its own for."""
    kind = type(value)
    if kind is tuple:
        return list(value)
    if kind is int:
        return msgpack.ExtType(_INT, value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))
    if kind is datetime:
        return msgpack.ExtType(_DATETIME, msgpack.packb(_datetime_parts(value)))
    if kind is date:
        return msgpack.ExtType(_DATE, value.isoformat().encode())
    if kind is time:
        return msgpack.ExtType(_TIME, msgpack.packb(_datetime_parts(value)))
    if kind is timedelta:
        return msgpack.ExtType(_DELTA, msgpack.packb([value.days, value.seconds, value.microseconds]))
    if kind is Decimal:
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if kind is UUID:
        return msgpack.ExtType(_UUID, value.bytes)
    raise TypeError(f"a {type_name(kind)} is not stored")


def _datetime_parts(value: datetime | time) -> list[Any]:
    """ISO text without offset, fold, offset, zone name.

    The offset alone would do, but Python calls datetimes in a repeated hour unequal across zones; with the
    zone's name the same zone comes back where it is known, and equality with it.
    """
    offset = value.utcoffset()
    bare = value.replace(tzinfo=None, fold=0).isoformat()
    micros = None if offset is None else offset // timedelta(microseconds=1)
    key = getattr(value.tzinfo, "key", None)
    return [bare, value.fold, micros, key if type(key) is str else None]


def from_extension(code: int, data: bytes) -> Any:
    if code == _INT:
        return int.from_bytes(data, "big", signed=True)
    if code == _DATETIME:
        text, fold, micros, key = msgpack.unpackb(data)
        return _in_zone(datetime.fromisoformat(text).replace(fold=fold), micros, key)
    if code == _DATE:
        return date.fromisoformat(data.decode())
    if code == _TIME:
        text, fold, micros, key = msgpack.unpackb(data)
        return _in_zone(time.fromisoformat(text).replace(fold=fold), micros, key)
    if code == _DELTA:
        days, seconds, microseconds = msgpack.unpackb(data)
        return timedelta(days, seconds, microseconds)
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _UUID:
        return UUID(bytes=data)
    raise ValueError(f"extension type {code} is not known to this version")


def _in_zone(value: Any, micros: int | None, key: str | None) -> Any:
    if key is not None:
        zone = _zone(key)
        if zone is not None:
            placed = value.replace(tzinfo=zone)
            offset = placed.utcoffset()
            if (offset is None and micros is None) or offset == timedelta(microseconds=micros or 0):
                return placed
    if micros is None:
        return value
    return value.replace(tzinfo=UTC if micros == 0 else timezone(timedelta(microseconds=micros)))


def _zone(key: str) -> Any:
    """The zone of that name, or None where this machine does not know it."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(key)
    except (OSError, ValueError, KeyError):  # not found is a KeyError
        return None


def type_name(kind: type) -> str:
    """A type as errors name it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
