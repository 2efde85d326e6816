"""`Lanes`: which lanes are served, and which of them comes first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

ORDERS: Final = ("ordered", "priority", "fair")
_MOST_KNOWN: Final = 10_000


class Lanes:
    """Lanes by names and patterns, and their order: in place of a list of names, which is one by priority.

    A lane belongs to the entry with its name, else to the first pattern that fits it. New lanes that fit a
    pattern are served as they come.

    Args:
        names: lanes; one with an asterisk at its end is all lanes that begin so.
        order: ``"ordered"``: a job of an earlier entry goes before one of a later entry; the lanes of one
            pattern are one by priority. ``"priority"``: all lanes are one by priority. ``"fair"``: the lanes
            take turns, a job each; whose turn it is, each process knows for itself.
        without: lanes that no pattern stands for.

    Attributes:
        by_priority: whether all lanes are one by priority, also because there is one entry only.

    Raises:
        TypeError, ValueError: a name or an order that is none; no names; a name that is there twice.
    """

    __slots__ = ("_exact", "_ranks", "_stems", "by_priority", "names", "order", "without")

    def __init__(self, names: Iterable[str], *, order: str = "ordered", without: Iterable[str] = ()) -> None:
        self.names = _texts("names", names)
        self.without = frozenset(_texts("without", without))
        if not self.names:
            raise ValueError("names must have at least one lane")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"names has a lane twice: {', '.join(self.names)}")
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
        self.order = order
        self.by_priority = order == "priority" or (order == "ordered" and len(self.names) == 1)
        ranked = [(name, 0 if self.by_priority else rank) for rank, name in enumerate(self.names)]
        self._exact = {name: rank for name, rank in ranked if not name.endswith("*")}
        self._stems = [(name[:-1], rank) for name, rank in ranked if name.endswith("*")]
        self._ranks: dict[str, int] = {}

    def rank(self, lane: str) -> int:
        """Of the entry that a lane belongs to, from 0; -1: it is not served."""
        found = self._ranks.get(lane)
        if found is None:
            if len(self._ranks) >= _MOST_KNOWN:
                self._ranks.clear()
            found = self._ranks[lane] = self._find(lane)
        return found

    def _find(self, lane: str) -> int:
        if lane in self._exact:
            return self._exact[lane]
        if lane not in self.without:
            for stem, rank in self._stems:
                if lane.startswith(stem):
                    return rank
        return -1

    def __contains__(self, lane: str) -> bool:
        return self.rank(lane) >= 0

    def _said(self) -> tuple[Any, ...]:
        return self.names, self.order, self.without

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Lanes) and self._said() == other._said())

    def __hash__(self) -> int:
        return hash(self._said())

    def __repr__(self) -> str:
        return f"Lanes({list(self.names)!r}, order={self.order!r})"


Selection = tuple[str, ...] | Lanes | None
"""The lanes that somebody asks for; None: all."""


def _texts(what: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{what} must be a list of lanes, not a single text")
    found = tuple(values)
    for value in found:
        if type(value) is not str:
            raise TypeError(f"{what} must be a list of lanes, and {value!r} is none")
    return found
