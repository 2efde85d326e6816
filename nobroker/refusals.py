"""Why a value is not stored: the place in it, and what stands there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, time
from typing import Any, Final

from nobroker.extensions import EXTENDED, type_name

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_CONTAINERS: Final = frozenset({list, tuple, dict})


def first_fault(value: Any, max_depth: int) -> tuple[str, str] | None:
    """The path and the description of the first refused thing, without recursion: hostile depth is what it
    looks for.
    """
    kind = type(value)
    if kind in _SCALARS or kind in EXTENDED:
        return _scalar_fault(value)
    if kind not in _CONTAINERS:
        return "", f"is a {type_name(kind)}, which is not stored"
    stack: list[tuple[Iterator[tuple[Any, Any]], str]] = [(_items(value), "")]
    while stack:
        items, path = stack[-1]
        for key, child in items:
            kind = type(child)
            if type(items) is not enumerate and type(key) not in _SCALARS:
                return path, f"has a key of type {type_name(type(key))}, which is not stored"
            if kind in _CONTAINERS:
                if len(stack) >= max_depth:
                    return _place(path, key)[
                        :80
                    ] + "...", f"is nested more than {max_depth} deep (or contains itself)"
                stack.append((_items(child), _place(path, key)[:4000]))
                break
            if kind not in _SCALARS and kind not in EXTENDED:
                return _place(path, key), f"is a {type_name(kind)}, which is not stored"
            fault = _scalar_fault(child)
            if fault is not None:
                return _place(path, key), fault[1]
        else:
            stack.pop()
    return None


def _items(container: Any) -> Any:
    return iter(container.items()) if type(container) is dict else enumerate(container)


def _scalar_fault(value: Any) -> tuple[str, str] | None:
    if type(value) is datetime or type(value) is time:
        try:
            value.utcoffset()
        except Exception as error:  # a foreign tzinfo may raise anything
            return "", f"is a {type(value).__name__} whose time zone fails: {error}"
    return None


def _place(path: str, key: Any) -> str:
    return f"{path}[{_shown(key)}]"


def _shown(key: Any) -> str:
    try:
        text = repr(key)
    except ValueError:  # an int with more digits than Python writes
        return f"<{type(key).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
