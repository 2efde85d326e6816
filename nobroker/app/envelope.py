"""A call as the payload of a job: the only place that knows its layout.

``{"job": name, "args": [...], "kwargs": {...}, "batch": id, ...}``; only ``job`` and ``args`` are always
there. The others are fields of `Call`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from nobroker.app.serializers import Serializers
from nobroker.errors import SerializationError


class Call(NamedTuple):
    """What is to be called, and what the job has to do with others.

    Attributes:
        batch: the batch that it belongs to, or whose callback it is.
        ended: of a callback: the content of the batch's ``end`` record.
        then: the record that holds other jobs until this one is done.
        held: the record that says so if what this job waited for can't come any more. See `records`.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    batch: str | None = None
    ended: Any = None
    then: str | None = None
    held: str | None = None


MARKS: Final = Call._fields[3:]
_AT_ONCE: Final = 1000
"""Calls of which the arguments are looked at together."""


def seal(serializers: Serializers, call: Call, marks: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The payload.

    Args:
        marks: what the job has to do with others, as the fields of `Call`.

    Raises:
        SerializationError: an argument can't be stored; it is named.
    """
    name, args, kwargs = call[:3]
    pack = serializers.pack
    payload: dict[str, Any] = {
        "job": name,
        "args": [pack(value, f"argument {index} of {name}") for index, value in enumerate(args)],
    }
    if kwargs:
        payload["kwargs"] = {key: pack(value, f"argument {key!r} of {name}") for key, value in kwargs.items()}
    if marks:
        payload.update(marks)
    return payload


def seal_all(serializers: Serializers, calls: Sequence[Call]) -> list[dict[str, Any]]:
    """The payloads of many calls.

    Raises:
        SerializationError: as `seal`.
    """
    payloads: list[dict[str, Any]] = []
    for at in range(0, len(calls), _AT_ONCE):
        some = calls[at : at + _AT_ONCE]
        values = chain(chain.from_iterable(call.args for call in some), (call.kwargs for call in some))
        if serializers.leaves_alone(values):
            payloads += [
                {"job": call.name, "args": list(call.args), "kwargs": call.kwargs}
                if call.kwargs
                else {"job": call.name, "args": list(call.args)}
                for call in some
            ]
        else:
            payloads += [seal(serializers, call) for call in some]
    return payloads


def with_ended(payload: dict[str, Any], ended: Any) -> dict[str, Any]:
    """The payload of a callback, which says what became of its batch."""
    return {**payload, "ended": ended}


def name_in(payload: Any) -> str | None:
    """The name of the job; None where the payload is not a call."""
    if type(payload) is not dict or type(payload.get("args")) is not list:
        return None
    name = payload.get("job")
    return name if type(name) is str else None


def opened(serializers: Serializers, payload: dict[str, Any]) -> Call:
    """The call in a payload that has a name.

    Raises:
        UnknownSerializerError: a serializer is missing here.
        Exception: what a serializer raised; a note names the argument.
    """
    name, kwargs = payload["job"], payload.get("kwargs", {})
    if type(kwargs) is not dict:
        raise SerializationError(f"the keyword arguments of {name} are {kwargs!r:.100}, not a dict")

    unpack = serializers.unpack
    args: list[Any] = []
    named: dict[str, Any] = {}
    place: object = None
    try:
        for index, value in enumerate(payload["args"]):
            place = index
            args.append(unpack(value))
        for key, value in kwargs.items():
            place = key
            named[key] = unpack(value)
    except Exception as error:
        error.add_note(f"while restoring argument {place!r} of {name}")
        raise
    marks = map(payload.get, MARKS) if len(payload) > 2 else ()
    return Call(name, tuple(args), named, *marks)
