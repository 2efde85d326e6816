"""Arguments and results to values that the queue stores, and back to what they were.

The queue stores None, numbers, text, bytes, lists, dicts, dates, Decimals and UUIDs as they are. Everything
else travels as a tag: a dict whose only key is ``$``, with the name of a serializer and what it made of the
value. A dict of the caller's with that key is wrapped itself, so that nothing can be taken for a tag.

Invariant: what `unpack` gives for what `pack` made is equal to the value and of the same types, at every
depth; else `pack` raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, repeat
from operator import contains
from typing import Any, Final, NamedTuple
from uuid import UUID

from nobroker.app.errors import UnknownSerializerError
from nobroker.errors import SerializationError

TAG: Final = "$"
MAX_DEPTH: Final = 100
"""How deep arguments and results may nest; the same in every thread, however much of its stack is used."""
_KEYS: Final = frozenset({type(None), bool, int, float, str, bytes})
_AS_THEY_ARE: Final = _KEYS | {datetime, date, time, timedelta, Decimal, UUID}
_PLAIN: Final = _AS_THEY_ARE | {list, dict}
_ONLY_DICTS: Final = frozenset({dict})
_MAP: Final = "map"
_RESERVED: Final = (_MAP, "discarded")


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
        if serializer.name in self._by_name or serializer.name in _RESERVED:
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
        return value if type(value) in _AS_THEY_ARE else self._pack(value, place, MAX_DEPTH)

    @staticmethod
    def leaves_alone(values: Iterable[Any]) -> bool:
        """Whether `pack` would give each of these values as it is: looked at level by level, which lets C do
        the walking. False also where it takes a closer look to know.
        """
        level = list(values)
        most = 64 * len(level) + 1024  # what refers to itself, or to one thing over and over, has many more
        for _ in range(MAX_DEPTH):
            kinds = set(map(type, level))
            if kinds <= _AS_THEY_ARE:
                return True
            if not kinds <= _PLAIN or len(level) > most:
                return False
            dicts = level if kinds == _ONLY_DICTS else [value for value in level if type(value) is dict]
            if not _KEYS.issuperset(map(type, chain.from_iterable(dicts))):
                return False
            if any(map(contains, dicts, repeat(TAG))):
                return False
            lists = [value for value in level if type(value) is list] if list in kinds else []
            level = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
        return False

    def unpack(self, value: Any) -> Any:
        """What `pack` was given. What needs nothing done is the value itself, not a copy.

        Raises:
            UnknownSerializerError: one that packed a value is not registered here.
            Exception: what a serializer says to what it made elsewhere.
        """
        kind = type(value)
        if kind is list:
            if _AS_THEY_ARE.issuperset(map(type, value)):
                return value
            return [self.unpack(item) for item in value]
        if kind is not dict:
            return value
        if len(value) == 1 and TAG in value:
            return self._untag(value[TAG])
        if _AS_THEY_ARE.issuperset(map(type, value.values())):
            return value
        return {key: self.unpack(item) for key, item in value.items()}

    def _pack(self, value: Any, place: str, depth: int) -> Any:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if depth == 0:
            raise SerializationError(f"{place[:200]}: it refers to itself, or nests deeper than {MAX_DEPTH}")
        if kind is list:
            if _AS_THEY_ARE.issuperset(map(type, value)):
                return value
            return [self._pack(item, f"{place}[{i}]", depth - 1) for i, item in enumerate(value)]
        if kind is dict:
            return self._pack_dict(value, place, depth)
        serializer = self._by_type.get(kind)
        if serializer is None:
            raise SerializationError(self._refusal(kind, place))
        try:
            encoded = serializer.encode(value)
        except SerializationError as error:
            raise SerializationError(f"{place}: {error}") from error
        except Exception as error:
            raise SerializationError(
                f"{place}: the serializer {serializer.name!r} raised {type(error).__name__}: {error}"
            ) from error
        return {TAG: [serializer.name, self._pack(encoded, place, depth - 1)]}

    def _pack_dict(self, value: dict[Any, Any], place: str, depth: int) -> dict[Any, Any]:
        if not _KEYS.issuperset(map(type, value)):
            key = next(key for key in value if type(key) not in _KEYS)
            raise SerializationError(
                f"{place} has the key {key!r:.100} of type {type(key).__qualname__}; keys of dicts may be "
                "str, int, float, bool, bytes or None. Pass a list of pairs instead"
            )
        if not _AS_THEY_ARE.issuperset(map(type, value.values())):
            value = {key: self._pack(item, f"{place}[{key!r}]", depth - 1) for key, item in value.items()}
        return {TAG: [_MAP, value[TAG]]} if len(value) == 1 and TAG in value else value

    def _refusal(self, kind: type, place: str) -> str:
        known = [base for base in kind.__mro__[1:] if base in self._by_type or base in _AS_THEY_ARE]
        known += [base for base in (list, dict) if issubclass(kind, base)]
        also = f", although {known[0].__qualname__} is: only the exact type is" if known else ""
        return (
            f"{place} is of type {kind.__module__}.{kind.__qualname__}, which is not stored{also}; "
            f"pass a plain value such as an id, or register it: app.serializer({kind.__name__})"
        )

    def _untag(self, content: Any) -> Any:
        if type(content) is not list or len(content) != 2 or type(content[0]) is not str:
            raise SerializationError(f"not a value that was packed here: {content!r:.200}")
        name, packed = content
        if name == _MAP:
            return {TAG: self.unpack(packed)}
        serializer = self._by_name.get(name)
        if serializer is None:
            raise UnknownSerializerError(
                f"a value was packed by the serializer {name!r}, which this process has not registered; "
                "register it with app.serializer before jobs run"
            )
        return serializer.decode(self.unpack(packed))
