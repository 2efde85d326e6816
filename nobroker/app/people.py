"""Serializers for types that people bring: dataclasses, enums, Pydantic and Django models.

What is not said is worked out from the kind of the type. Pydantic and Django are recognised by what their
classes are, not imported.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Final

from nobroker.app.serializers import Serializer
from nobroker.errors import SerializationError

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


def serializer_for(kind: type, encode: Encode | None, decode: Decode | None, name: str | None) -> Serializer:
    """How values of a type travel: as said, or as is usual for its kind.

    Raises:
        TypeError: neither is known, or an argument has a wrong type.
    """
    if not isinstance(kind, type):
        raise TypeError(f"app.serializer takes a type, not {kind!r:.100}")
    for what, function in (("encode", encode), ("decode", decode)):
        if function is not None and not callable(function):
            raise TypeError(f"{what} must be a function, not {type(function).__name__}")
    if name is not None and (type(name) is not str or not name):
        raise TypeError(f"name must be a str that is not empty, not {name!r}")
    if encode is None and decode is None:
        encode, decode = _usual(kind)
    if encode is None or decode is None:
        raise TypeError(f"app.serializer({kind.__name__}) needs both encode and decode, or none of them")
    return Serializer(name or f"{kind.__module__}.{kind.__qualname__}", encode, decode)


def _usual(kind: type) -> tuple[Encode, Decode]:
    if issubclass(kind, enum.Enum):
        return _enum(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    for module, name, make in _FOREIGN:
        if any(base.__name__ == name and base.__module__ == module for base in kind.__mro__[1:]):
            return make(kind)
    raise TypeError(
        f"{kind.__qualname__} is no dataclass, enum, Pydantic or Django model: say how it travels, with "
        "encode=lambda value: ..., decode=lambda stored: ..."
    )


# -- enums: by name; flags, whose combinations have none, by value


def _enum(kind: type[enum.Enum]) -> tuple[Encode, Decode]:
    if issubclass(kind, enum.Flag):
        return (lambda member: member.value), kind

    def decode(name: Any) -> enum.Enum:
        if name not in kind.__members__:
            raise SerializationError(f"{kind.__qualname__} has no member {name!r} here")
        return kind[name]

    return (lambda member: member.name), decode


# -- dataclasses: by the names of their fields


def _dataclass(kind: type) -> tuple[Encode, Decode]:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    given = [name for name, field in fields.items() if field.init]
    needed = [name for name in given if _has_no_default(fields[name])]
    extra = _needed_beside_fields(kind)
    if extra:
        raise TypeError(
            f"{kind.__qualname__} needs {', '.join(extra)} to be made, which its values do not keep; "
            "say how it travels, with encode= and decode="
        )

    def encode(value: Any) -> dict[str, Any]:
        return {name: getattr(value, name) for name in fields}

    def decode(stored: Any) -> Any:
        if type(stored) is not dict:
            raise SerializationError(f"expected the fields of a {kind.__qualname__}, not {stored!r:.100}")
        unknown = [name for name in stored if name not in fields]
        missing = [name for name in needed if name not in stored]
        if unknown or missing:
            what = f"has no field {unknown[0]!r} here" if unknown else f"needs a value for {missing[0]!r}"
            raise SerializationError(
                f"{kind.__qualname__} {what}: it was stored by another version of the program. Give new "
                "fields defaults, and remove old ones when no such jobs are left"
            )
        made = kind(**{name: stored[name] for name in given if name in stored})
        for name, value in stored.items():
            if not fields[name].init:
                object.__setattr__(made, name, value)
        return made

    return encode, decode


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _needed_beside_fields(kind: type) -> list[str]:
    """Parameters of the constructor without a default that are no fields (`InitVar`)."""
    import inspect

    fields = {field.name for field in dataclasses.fields(kind)}
    parameters = inspect.signature(kind).parameters.values()
    return [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in fields
    ]


# -- models of others


def _pydantic(kind: Any) -> tuple[Encode, Decode]:
    def encode(model: Any) -> Any:
        stored = model.model_dump(by_alias=True, round_trip=True)
        if kind.model_validate(stored) != model:
            raise SerializationError(
                f"{kind.__qualname__} would not come back as it is: model_validate makes something else of "
                "what model_dump gives (excluded fields, aliases for one direction, sub-classes in fields); "
                "say how it travels, with encode= and decode="
            )
        return stored

    return encode, kind.model_validate


def _django(kind: Any) -> tuple[Encode, Decode]:
    def encode(model: Any) -> Any:
        if model.pk is None:
            raise SerializationError(f"{kind._meta.label} is not saved, so that no worker could load it")
        return [kind._meta.label, model.pk]

    def decode(stored: Any) -> Any:
        return kind._default_manager.get(pk=stored[1])

    return encode, decode


_FOREIGN: Final = (
    ("pydantic.main", "BaseModel", _pydantic),
    ("django.db.models.base", "Model", _django),
)
