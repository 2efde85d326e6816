"""What the jobs do: nothing. In a module of its own, for workers that import it by name."""

from __future__ import annotations

from typing import Any


def work(payload: dict[str, Any]) -> None:
    """Nothing."""
