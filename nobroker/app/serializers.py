"""Arguments and results to values that the queue stores, and back to what they were.

The queue stores None, numbers, text, bytes, lists, dicts, dates, Decimals and UUIDs as they are. Everything
else travels as a tag: a dict whose only key is ``$``, with the name of a serializer and what it made of the
value. A dict of the caller's with that key is wrapped itself, so that nothing can be taken for a tag.

Invariant: what `unpack` gives for what `pack` made is equal to the value and of the same types, at every
depth; else `pack` raises.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from nobroker.errors import SerializationError

TAG: Final = "$"
_AS_THEY_ARE: Final = frozenset(
    {type(None), bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID}
)
_MAP: Final = "map"


class Serializer(NamedTuple):
    """How values of one type travel.

    Attributes:
        name: in the payload; it must stay the same as long as such payloads are about.
        encode: to something that can be packed itself.
        decode: and back.
    """

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class Serializers:
    """Those of one application; tuples, sets and frozensets are known from the start."""

    def __init__(self) -> None:
        self._by_type: dict[type, Serializer] = {}
        self._by_name: dict[str, Serializer] = {}
        for kind in (tuple, set, frozenset):
            self.add(kind, Serializer(kind.__name__, list, kind))

    def add(self, kind: type, serializer: Serializer) -> None:
        """Use it for values of exactly this type.

        Raises:
            ValueError: the type or the name is taken.
        """
        if kind in _AS_THEY_ARE or kind in (list, dict):
            raise ValueError(f"{kind.__name__} is stored by the queue itself and needs no serializer")
        if kind in self._by_type:
            raise ValueError(f"{kind.__qualname__} has a serializer already: {self._by_type[kind].name!r}")
        if serializer.name in self._by_name or serializer.name == _MAP:
            raise ValueError(f"there is a serializer of the name {serializer.name!r} already")
        self._by_type[kind] = serializer
        self._by_name[serializer.name] = serializer

    def pack(self, value: Any, place: str) -> Any:
        """A value that the queue stores.

        Args:
            place: what errors call it, such as ``argument 'user'``.

        Raises:
            SerializationError: some value in it has no serializer, or refers to itself.
        """
        if type(value) in _AS_THEY_ARE:
            return value
        try:
            return self._pack(value, place)
        except RecursionError:
            raise SerializationError(f"{place} refers to itself, or is nested too deeply") from None

    def unpack(self, value: Any) -> Any:
        """What `pack` was given.

        Raises:
            SerializationError: a serializer is not registered here, or refuses what it made elsewhere.
        """
        kind = type(value)
        if kind is list:
            return [self.unpack(item) for item in value]
        if kind is not dict:
            return value
        if len(value) == 1 and TAG in value:
            return self._untag(value[TAG])
        return {key: self.unpack(item) for key, item in value.items()}

    def _pack(self, value: Any, place: str) -> Any:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is list:
            return [self._pack(item, f"{place}[{index}]") for index, item in enumerate(value)]
        if kind is dict:
            packed = {key: self._pack(item, f"{place}[{key!r}]") for key, item in value.items()}
            if TAG in packed and len(packed) == 1:
                return {TAG: [_MAP, packed[TAG]]}
            return packed
        serializer = self._by_type.get(kind)
        if serializer is None:
            raise SerializationError(
                f"{place} is of type {kind.__module__}.{kind.__qualname__}, which the queue does not store; "
                "pass a plain value such as an id, or register the type with app.serializer"
            )
        return {TAG: [serializer.name, self._pack(serializer.encode(value), place)]}

    def _untag(self, content: Any) -> Any:
        if type(content) is not list or len(content) != 2 or type(content[0]) is not str:
            raise SerializationError(f"not a value that was packed here: {content!r:.200}")
        name, packed = content
        if name == _MAP:
            return {TAG: self.unpack(packed)}
        serializer = self._by_name.get(name)
        if serializer is None:
            raise SerializationError(
                f"a value was packed by the serializer {name!r}, which this process has not registered; "
                "register it with app.serializer before jobs run"
            )
        return serializer.decode(self.unpack(packed))
