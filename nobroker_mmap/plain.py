"""Values that are dataclasses to whoever looks, without loading `dataclasses` for it.

That module brings `inspect` and compiles the methods of every class it makes: a quarter of the time that
importing the queue would take. It is loaded when one of its functions first meets such a value.

Invariant: `dataclasses.fields`, `replace`, `asdict` and the decorator on a subclass do what they would do
with a dataclass of the same fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

if TYPE_CHECKING:
    from dataclasses import Field


class _LeftByDecorator:
    """What the decorator would have left in the class, made when somebody looks at it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, value: object, kind: type[Plain]) -> Any:
        if not kind.__match_args__:
            raise AttributeError(f"{kind.__name__} has no fields")
        from dataclasses import MISSING, field, make_dataclass
        from inspect import signature

        given = signature(kind).parameters
        fields: list[tuple[str, Any, Any]] = []
        for name in kind.__match_args__:
            default = given[name].default
            fields.append(
                (
                    name,
                    given[name].annotation,
                    field(default=MISSING if default is given[name].empty else default),
                )
            )
        return getattr(make_dataclass(kind.__name__, fields, frozen=issubclass(kind, Frozen)), self._name)


class Plain:
    """A value with named fields: equal, shown and matched by them.

    A subclass lists them in `__match_args__`, in the order of the parameters of its `__init__`.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _LeftByDecorator()
        __dataclass_params__ = _LeftByDecorator()

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({shown})"

    def __replace__(self, /, **changes: Any) -> Self:
        """A copy with other values in some fields."""
        return type(self)(**{**dict(zip(self.__match_args__, self._values(), strict=True)), **changes})


class Frozen(Plain):
    """A plain value that does not change, so it has a hash."""

    __slots__ = ()

    def _fill(self, *values: Any) -> None:
        """Give the fields their values, once, from `__init__`."""
        for name, value in zip(self.__match_args__, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        self._refuse(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        self._refuse(f"cannot delete field {name!r}")

    def _refuse(self, why: str) -> NoReturn:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(why)

    def __hash__(self) -> int:
        return hash(self._values())

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), self._values()
