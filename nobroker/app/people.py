"""Serializers for types that people bring: dataclasses, enums, Pydantic and Django models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nobroker.app.serializers import Serializer


def serializer_for(
    kind: type,
    encode: Callable[[Any], Any] | None,
    decode: Callable[[Any], Any] | None,
    name: str | None,
) -> Serializer:
    """How values of a type travel: as said, or as is usual for its kind.

    Raises:
        TypeError: neither is known.
    """
    raise NotImplementedError
