"""What a measurement yields: figures with their spread, bars to hold, lines and points to draw."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One quantity, measured several times."""

    name: str
    values: tuple[float, ...]
    unit: str
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Bar:
    """What a figure's median must reach, or not exceed."""

    figure: Figure
    limit: float
    at_most: bool = False

    @property
    def held(self) -> bool:
        return self.figure.median <= self.limit if self.at_most else self.figure.median >= self.limit

    @property
    def wording(self) -> str:
        return f"{'<=' if self.at_most else '>='} {human(self.limit)} {self.figure.unit}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.figure.name,
            "bar": self.wording,
            "held": self.held,
            "median": self.figure.median,
            "low": self.figure.low,
            "high": self.figure.high,
            "unit": self.figure.unit,
            "values": list(self.figure.values),
            "note": self.figure.note,
        }


@dataclass(frozen=True)
class Point:
    x: float | str
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Plot:
    """One picture: `series` by name; where x is text, a group of bars for each x, else lines."""

    file: str
    title: str
    x_label: str
    y_label: str
    series: dict[str, list[Point]]
    log_x: bool = False
    log_y: bool = False


@dataclass
class Section:
    """All that one row of the report says."""

    row: str
    title: str
    how: str
    figures: list[Figure] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_judged: dict[str, str] = field(default_factory=dict)  # bars, and why
    seconds: float = 0.0

    def figure(self, name: str, values: Iterable[float], unit: str, note: str = "") -> Figure:
        """Add a figure."""
        made = Figure(name, tuple(values), unit, note)
        self.figures.append(made)
        return made

    def at_least(self, limit: float, name: str, values: Iterable[float], unit: str, note: str = "") -> None:
        """Add a bar that the median has to reach."""
        self.bars.append(Bar(Figure(name, tuple(values), unit, note), limit))

    def at_most(self, limit: float, name: str, values: Iterable[float], unit: str, note: str = "") -> None:
        """Add a bar that the median must not exceed."""
        self.bars.append(Bar(Figure(name, tuple(values), unit, note), limit, at_most=True))

    def to_dict(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "title": self.title,
            "how": self.how,
            "seconds": round(self.seconds, 1),
            "bars": [b.to_dict() for b in self.bars],
            "figures": [f.to_dict() for f in self.figures],
            "notes": self.notes,
            "not judged": self.not_judged,
        }


def point(x: float | str, values: Sequence[float]) -> Point:
    return Point(x, statistics.median(values), min(values), max(values))


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Ratio of what was measured in the same round: the machine was equally busy for both."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def human(value: float) -> str:
    """A number as people write it, to three digits."""
    size = abs(value)
    if size >= 999_500:
        return f"{value / 1e6:.3g} M"
    if size >= 9_995:
        return f"{value / 1e3:.3g} k"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def count(value: float) -> str:
    """A round number of jobs: 1 k, 10 M."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
