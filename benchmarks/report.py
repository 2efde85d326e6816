"""The report: a table on the terminal, and a document with plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.figures import Bar, Figure, Section, human

QUICK = (
    "Quick mode: sizes are small and runs are few. It shows that everything runs; its figures judge "
    "nothing, and what is marked missed here says nothing about the full sizes."
)


def to_terminal(result: dict[str, Any], sections: list[Section]) -> None:
    """Print the machine, every figure, and last the bars, held or missed."""
    for name, value in result["machine"].items():
        print(f"{name + ':':<36} {value}")
    for section in sections:
        print(f"\n{section.title}  ({section.seconds:.0f} s)")
        width = max((len(f.name) for f in section.figures), default=0)
        for figure in section.figures:
            print(f"  {figure.name:<{width}}  {spread(figure)}")
        for note in section.notes:
            print(f"  {note}")
    bars = [bar for section in sections for bar in section.bars]
    width = max((len(b.figure.name) for b in bars), default=0)
    print("\nBars: median (lowest - highest)")
    for bar in bars:
        print(f"  {verdict(bar):<6}  {bar.figure.name:<{width}}  {bar.wording:<16} {spread(bar.figure)}")
    for section in sections:
        for name, why in section.not_judged.items():
            print(f"  {'?':<6}  {name:<{width}}  not judged: {why}")
    for name, why in result["missing"].items():
        print(f"  MISSING {name}: {why}")
    for row, why in result["failures"].items():
        print(f"  FAILED  row {row}: {why}")
    print(f"\n{summary(bars)}")
    if result["quick"]:
        print(QUICK)


def verdict(bar: Bar) -> str:
    return "held" if bar.held else "MISSED"


def summary(bars: list[Bar]) -> str:
    held = sum(bar.held for bar in bars)
    return f"{held} of {len(bars)} bars held"


def spread(figure: Figure) -> str:
    unit = f" {figure.unit}" if figure.unit else ""
    return f"{human(figure.median)}{unit} ({human(figure.low)} - {human(figure.high)})"


def to_markdown(result: dict[str, Any], sections: list[Section], path: Path) -> None:
    """Write the document, and its plots beside it."""
    folder = path.parent / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    parts = ["# Results", ""]
    if result["quick"]:
        parts += [QUICK, ""]
    parts += [
        f"Measured with `{result['command']}`, {'up to ' * result['quick']}{result['runs']} runs.",
        "Each figure is the median, with the lowest and the highest beside it.",
        'The word "of" means: divided by, in the same round.',
        "",
        *table(["machine", ""], [[name, str(value)] for name, value in result["machine"].items()]),
        "",
        "## Bars",
        "",
        summary([bar for section in sections for bar in section.bars]) + ".",
        "",
        *bars_table(sections),
    ]
    if result["missing"] or result["failures"]:
        parts += ["", "## Missing", ""]
        parts += [f"- {name}: {why}" for name, why in result["missing"].items()]
        parts += [f"- row `{row}`: {why}" for row, why in result["failures"].items()]
    for section in sections:
        parts += section_text(section, folder)
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def bars_table(sections: list[Section]) -> list[str]:
    rows = [
        [
            "held" if bar.held else "**missed**",
            bar.figure.name,
            bar.wording,
            f"**{human(bar.figure.median)}**",
            f"{human(bar.figure.low)} - {human(bar.figure.high)}",
            f"`{section.row}`",
        ]
        for section in sections
        for bar in section.bars
    ]
    rows += [
        ["not judged", name, why, "", "", f"`{section.row}`"]
        for section in sections
        for name, why in section.not_judged.items()
    ]
    return table(["", "what", "bar", "median", "spread", "row"], rows)


def section_text(section: Section, folder: Path) -> list[str]:
    parts = [
        "",
        f"## {section.title}",
        "",
        section.how,
        "",
        f"Again: `python make.py bench --only {section.row}`",
    ]
    for plot in section.plots:
        (folder / plot.file).write_text(plots.draw(plot), encoding="utf-8")
        parts += ["", f"![{plot.title}](plots/{plot.file})"]
    if section.figures:
        noted = any(f.note for f in section.figures)
        rows = [
            [
                f.name,
                human(f.median),
                f"{human(f.low)} - {human(f.high)}",
                f.unit,
                *([f.note] if noted else []),
            ]
            for f in section.figures
        ]
        head = ["figure", "median", "spread", "unit", *(["note"] if noted else [])]
        parts += ["", *table(head, rows)]
    if section.notes:
        parts += ["", *(f"- {note}" for note in section.notes)]
    return parts


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
