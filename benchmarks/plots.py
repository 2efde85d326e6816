"""Drawing plots as SVG: lines with their spread, and bars, on linear and logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from benchmarks.figures import Plot, Point, count, human

COLOURS = ("#0b6fa4", "#d1495b", "#3a7d44", "#8e5ea2", "#c98a00", "#4d4d4d")
WIDTH = 860
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 86, 60
LINES_HEIGHT = 460
BAR = 13
STYLE = """
text { font-family: system-ui, sans-serif; font-size: 13px; fill: #222 }
.title { font-size: 17px; font-weight: 600 }
.minor { font-size: 11px; fill: #444 }
.grid { stroke: #ddd }
"""


@dataclass(frozen=True)
class Scale:
    """Numbers to places on the picture."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        if self.log:
            part = (math.log10(max(value, self.low)) - math.log10(self.low)) / (
                math.log10(self.high) - math.log10(self.low)
            )
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = max(1, (last - first) // 8)
            return [10.0**power for power in range(first, last + 1, every)]
        step = nice_step((self.high - self.low) / 6)
        return [self.low + step * number for number in range(int((self.high - self.low) / step + 1e-9) + 1)]


def nice_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)


def scale(values: list[float], start: float, end: float, log: bool) -> Scale:
    """A scale that has all the values, ending at round numbers."""
    positive = [v for v in values if v > 0] or [1.0]
    if log:
        low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
        return Scale(10.0**low, 10.0 ** max(high, low + 1), start, end, True)
    top = max(positive)
    step = nice_step(top / 6)
    return Scale(0.0, math.ceil(top / step) * step, start, end, False)


def draw(plot: Plot) -> str:
    """The picture as the text of an SVG file."""
    points = [p for series in plot.series.values() for p in series]
    if not points:
        return svg(120, [text(WIDTH / 2, 60, f"{plot.title}: nothing was measured", "middle")])
    return bars(plot) if isinstance(points[0].x, str) else lines(plot, points)


def lines(plot: Plot, points: list[Point]) -> str:
    bottom = LINES_HEIGHT - BOTTOM
    across = scale([x_of(p) for p in points], LEFT, WIDTH - RIGHT, plot.log_x)
    up = scale([v for p in points for v in (p.low, p.high, p.y)], bottom, TOP, plot.log_y)
    parts = [head(plot), *legend(plot)]
    for tick in up.ticks():
        y = up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(LEFT - 8, y + 4, count(tick), "end"))
    for tick in across.ticks():
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(text(x, bottom + 20, count(tick), "middle"))
    for number, series in enumerate(plot.series.values()):
        parts += line(series, COLOURS[number % len(COLOURS)], across, up)
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, LINES_HEIGHT - 14, plot.x_label, "middle"))
    middle = (TOP + bottom) / 2
    turned = f'transform="translate(18 {middle}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {turned}>{escape(plot.y_label)}</text>")
    return svg(LINES_HEIGHT, parts)


def line(
    series: list[Point], colour: str, across: Callable[[float], float], up: Callable[[float], float]
) -> list[str]:
    ordered = sorted(series, key=lambda p: (x_of(p), p.y))
    path = " ".join(f"{across(x_of(p)):.1f},{up(p.y):.1f}" for p in ordered)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for p in ordered:
        x = across(x_of(p))
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{up(p.low):.1f}" y2="{up(p.high):.1f}" stroke="{colour}"/>'
        )
        parts.append(f'<circle cx="{x:.1f}" cy="{up(p.y):.1f}" r="3.5" fill="{colour}"/>')
    return parts


def bars(plot: Plot) -> str:
    """Lying bars, a group for each x."""
    names = list(dict.fromkeys(str(p.x) for series in plot.series.values() for p in series))
    left, group = 300, BAR * len(plot.series) + 14
    bottom = TOP + group * len(names)
    values = [v for series in plot.series.values() for p in series for v in (p.low, p.high)]
    across = scale(values, left, WIDTH - RIGHT - 50, plot.log_y)
    parts = [head(plot), *legend(plot)]
    for tick in across.ticks():
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(text(x, bottom + 18, count(tick), "middle"))
    for row, name in enumerate(names):
        y = TOP + row * group + 7
        parts.append(text(left - 8, y + (group - 14) / 2 + 4, name, "end"))
        for number, series in enumerate(plot.series.values()):
            for p in series:
                if p.x == name:
                    parts += one_bar(p, y + number * BAR, left, COLOURS[number % len(COLOURS)], across)
    parts.append(
        text(
            (left + WIDTH - RIGHT) / 2,
            bottom + 42,
            plot.y_label + (", logarithmic" if plot.log_y else ""),
            "middle",
        )
    )
    return svg(bottom + BOTTOM, parts)


def one_bar(p: Point, y: float, left: float, colour: str, across: Callable[[float], float]) -> list[str]:
    end, middle, width = across(p.y), y + BAR / 2, max(across(p.y) - left, 1)
    level = f'y1="{middle:.1f}" y2="{middle:.1f}"'
    return [
        f'<rect x="{left}" y="{y + 1:.1f}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>',
        f'<line x1="{across(p.low):.1f}" x2="{across(p.high):.1f}" {level} stroke="#222"/>',
        text(max(end, across(p.high)) + 5, middle + 4, human(p.y), "start", "minor"),
    ]


def x_of(p: Point) -> float:
    return float(p.x)


def head(plot: Plot) -> str:
    return text(LEFT / 4, 28, plot.title, "start", "title")


def legend(plot: Plot) -> list[str]:
    parts, x, y = [], LEFT / 4, 42
    for number, name in enumerate(plot.series):
        width = 34 + 6.9 * len(name)
        if x + width > WIDTH:
            x, y = LEFT / 4, y + 20
        parts.append(
            f'<rect x="{x:.0f}" y="{y}" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>'
        )
        parts.append(text(x + 18, y + 11, name, "start"))
        x += width
    return parts


def text(x: float, y: float, content: str, anchor: str, kind: str = "") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{styled}>{escape(content)}</text>'


def svg(height: float, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}">\n<style>{STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )
