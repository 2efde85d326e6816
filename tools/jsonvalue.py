"""Payload values as strict JSON and back, nothing lost.

What JSON lacks is written as an object with a single key that begins with `$`:

| value | JSON |
|---|---|
| NaN, infinities | `{"$float": "nan"}`, `"inf"`, `"-inf"` |
| bytes | `{"$bytes": "<base64>"}` |
| datetime | `{"$datetime": "2024-05-01T10:00:00+02:00"}`, or `[text, fold, zone name]` where they matter |
| date, time | `{"$date": "2024-05-01"}`, `{"$time": "10:00:00"}`, the latter with the same list form |
| timedelta | `{"$timedelta": [days, seconds, microseconds]}` |
| Decimal, UUID | `{"$decimal": "1.50"}`, `{"$uuid": "..."}` |
| text with lone surrogates | `{"$str": "..."}`: each as `\\udXXX`, a backslash doubled |
| int of more than 4096 bits | `{"$int": "0x..."}`: many readers refuse so many decimal digits |
| dict with keys that are not plain text, or that looks like one of these | `{"$map": [[key, value], ...]}` |

No function here recurses, so depth is no limit.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from . import jsontext

_PLAIN_INT_BITS = 4096
_LONE = re.compile("[\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|u[0-9a-f]{4})")
_AS_THEY_ARE = frozenset({bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
_JSON_KINDS = frozenset({bool, type(None), int, float, str, *_CONTAINERS})
_ONLY_STR = {str}
_Pending = list[tuple[Any, Any, Any]]


def dumps(value: Any) -> str:
    """One line of strict JSON, in ASCII, for any payload value. Raises `TypeError` for what is no payload."""
    if _is_plain(value):
        try:
            return jsontext.encode(value)
        except ValueError:
            # Not finite: that has a tag.
            pass
    return jsontext.encode(to_jsonable(value))


def _is_plain(value: Any) -> bool:
    """Whether JSON has all of it, but for what an encoder refuses by itself. Looks at whole levels."""
    level: list[Any] = [value]
    while level:
        kinds = set(map(type, level))
        if not kinds <= _JSON_KINDS:
            return False
        if str in kinds and not is_text("".join([item for item in level if type(item) is str])):
            return False
        if int in kinds and max(item.bit_length() for item in level if type(item) is int) > _PLAIN_INT_BITS:
            return False
        inner: list[Any] = []
        if not kinds.isdisjoint(_CONTAINERS):
            for item in level:
                kind = type(item)
                if kind is dict and item:
                    if set(map(type, item)) != _ONLY_STR or not is_text("".join(item)):
                        return False
                    if len(item) == 1 and next(iter(item)).startswith("$"):
                        return False
                    inner += item.values()
                elif kind is list or kind is tuple:
                    inner += item
        level = inner
    return True


def loads(text: str) -> Any:
    """The payload value of a line that `dumps` made.

    Raises `ValueError` for bad JSON and for an unknown or malformed tag.
    """
    return from_jsonable(jsontext.decode(text))


def to_jsonable(value: Any) -> Any:
    """A copy of `value` in which everything that strict JSON lacks is a tagged object;

    tuples become lists.
    """
    top: list[Any] = [None]
    pending: _Pending = [(top, 0, value)]
    while pending:
        holder, key, item = pending.pop()
        kind = type(item)
        if kind is dict:
            holder[key] = _dict_out(item, pending)
        elif kind is list or kind is tuple:
            holder[key] = _list_out(item, pending)
        else:
            holder[key] = _leaf_out(item)
    return top[0]


def from_jsonable(value: Any) -> Any:
    """The value that `to_jsonable` was given. Raises `ValueError` for an unknown or malformed tag."""
    top: list[Any] = [None]
    pending: _Pending = [(top, 0, value)]
    while pending:
        holder, key, item = pending.pop()
        if type(item) is dict:
            holder[key] = _dict_in(item, pending)
        elif type(item) is list:
            copy = list(item)
            holder[key] = copy
            pending.extend((copy, i, child) for i, child in enumerate(item) if type(child) in (dict, list))
        else:
            holder[key] = item
    return top[0]


# -- out ----------------------------------------------------------------------------------------------------


def _dict_out(item: dict[Any, Any], pending: _Pending) -> dict[str, Any]:
    if len(item) == 1:
        key = next(iter(item))
        if type(key) is str and key.startswith("$"):
            return _pairs_out(item, pending)
    if not all(type(key) is str and is_text(key) for key in item):
        return _pairs_out(item, pending)
    copy: dict[str, Any] = {}
    for key, child in item.items():
        kind = type(child)
        if kind in _AS_THEY_ARE:
            copy[key] = child
        elif kind is dict or kind is list or kind is tuple:
            copy[key] = None
            pending.append((copy, key, child))
        else:
            copy[key] = _leaf_out(child)
    return copy


def _pairs_out(item: dict[Any, Any], pending: _Pending) -> dict[str, Any]:
    pairs: list[list[Any]] = []
    for key, child in item.items():
        pair = [_leaf_out(key), None]
        pairs.append(pair)
        pending.append((pair, 1, child))
    return {"$map": pairs}


def _list_out(item: list[Any] | tuple[Any, ...], pending: _Pending) -> list[Any]:
    copy: list[Any] = []
    for child in item:
        kind = type(child)
        if kind is dict or kind is list or kind is tuple:
            pending.append((copy, len(copy), child))
            copy.append(None)
        else:
            copy.append(_leaf_out(child))
    return copy


def is_text(value: str) -> bool:
    """Whether there is no lone surrogate in it."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _leaf_out(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value if is_text(value) else {"$str": _LONE.sub(_escape, value)}
    if kind is int:
        return value if value.bit_length() <= _PLAIN_INT_BITS else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind in _AS_THEY_ARE:
        return value
    if kind in _OUT:
        tag, convert = _OUT[kind]
        return {tag: convert(value)}
    for base, (tag, convert) in _OUT.items():
        if isinstance(value, base):
            return {tag: convert(value)}
    raise TypeError(f"{kind.__name__} is not a payload type; see the list of payload types in the guide")


def _escape(match: re.Match[str]) -> str:
    found = match.group()
    return "\\\\" if found == "\\" else f"\\u{ord(found):04x}"


def _clock_out(value: datetime | time) -> Any:
    offset = value.utcoffset()
    text = value.isoformat() if offset is not None else value.replace(tzinfo=None).isoformat()
    name = value.tzname() if offset is not None else None
    if offset is not None and name == timezone(offset).tzname(None):
        name = None
    if not value.fold and name is None:
        return text
    return [text, value.fold, None if name is None else _leaf_out(name)]


_OUT: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode("ascii")),
    datetime: ("$datetime", _clock_out),
    date: ("$date", date.isoformat),
    time: ("$time", _clock_out),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
}

# -- in -----------------------------------------------------------------------------------------------------


def _dict_in(item: dict[str, Any], pending: _Pending) -> Any:
    if len(item) == 1:
        tag = next(iter(item))
        if tag.startswith("$"):
            return _pairs_in(item[tag], pending) if tag == "$map" else _tagged_in(tag, item[tag])
    copy = dict(item)
    pending.extend((copy, key, child) for key, child in item.items() if type(child) in (dict, list))
    return copy


def _pairs_in(pairs: Any, pending: _Pending) -> dict[Any, Any]:
    if type(pairs) is not list or any(type(pair) is not list or len(pair) != 2 for pair in pairs):
        raise ValueError("$map takes a list of [key, value] pairs")
    copy: dict[Any, Any] = {}
    for key, child in pairs:
        if type(key) is dict:
            key = _dict_in(key, [])
        try:
            copy[key] = child
        except TypeError as error:
            raise ValueError(f"$map: a {type(key).__name__} cannot be a key") from error
        if type(child) in (dict, list):
            pending.append((copy, key, child))
    return copy


def _tagged_in(tag: str, value: Any) -> Any:
    convert = _IN.get(tag)
    if convert is None:
        raise ValueError(f"unknown tag {tag!r}; known are $map, {', '.join(sorted(_IN))}")
    try:
        return convert(value)
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError, InvalidOperation) as error:
        raise ValueError(f"{tag}: {error or type(error).__name__}") from error


def _text_in(value: str) -> str:
    return _ESCAPED.sub(
        lambda match: "\\" if match.group(1) == "\\" else chr(int(match.group(1)[1:], 16)), value
    )


def _float_in(value: str) -> float:
    found = float(value)
    if math.isfinite(found):
        raise ValueError(f"{value!r} needs no tag")
    return found


def _zoned(found: Any, value: Any) -> Any:
    """Put fold and zone name, where given, on a datetime or time that was read from the text alone."""
    if type(value) is str:
        fold, name = 0, None
    else:
        _, fold, name = value
        name = from_jsonable(name)
    zone = found.tzinfo
    if zone is not None and name is not None:
        zone = timezone(zone.utcoffset(None), name)
    return found.replace(tzinfo=zone, fold=fold)


def _datetime_in(value: Any) -> datetime:
    found: datetime = _zoned(datetime.fromisoformat(value if type(value) is str else value[0]), value)
    return found


def _time_in(value: Any) -> time:
    found: time = _zoned(time.fromisoformat(value if type(value) is str else value[0]), value)
    return found


_IN: dict[str, Callable[[Any], Any]] = {
    "$float": _float_in,
    "$bytes": lambda value: base64.b64decode(value, validate=True),
    "$datetime": _datetime_in,
    "$date": date.fromisoformat,
    "$time": _time_in,
    "$timedelta": lambda value: timedelta(days=value[0], seconds=value[1], microseconds=value[2]),
    "$decimal": lambda value: Decimal(value),
    "$uuid": lambda value: UUID(value),
    "$str": _text_in,
    "$int": lambda value: int(value, 16),
}
