"""What became of one call of a handler."""

from __future__ import annotations

from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a handler returned, or raised."""

    value: Any = None
    error: BaseException | None = None
