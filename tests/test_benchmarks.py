"""The benchmarks run and say what they should; how fast anything is, is not looked at here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import plots, report
from benchmarks.figures import Plot, Point, Section, human, ratios

ROOT = Path(__file__).resolve().parent.parent
COMPARE = [sys.executable, str(ROOT / "benchmarks" / "compare.py")]
linux = pytest.mark.skipif(sys.platform != "linux", reason="measures with what only Linux tells")


def run(tmp_path: Path, *rows: str) -> tuple[dict[str, Any], str]:
    files = ["--json", str(tmp_path / "out.json"), "--results", str(tmp_path / "RESULTS.md")]
    command = [
        *COMPARE,
        "--quick",
        "--no-peers",
        "--runs",
        "1",
        "--dir",
        str(tmp_path),
        *files,
        "--only",
        *rows,
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads((tmp_path / "out.json").read_text()), ran.stdout


@linux
@pytest.mark.processes
def test_quick_mode_judges_every_bar_and_names_what_is_missing(tmp_path: Path) -> None:
    found, shown = run(tmp_path, "limits", "mixed")
    limits, mixed = found["sections"]
    assert found["quick"]
    assert {"cpu", "kernel", "python", "file system", "load at start"} <= set(found["machine"])
    assert [bar["name"].partition(":")[0] for bar in limits["bars"]] == [
        "enqueue, durable",
        "enqueue_many, durable",
    ]
    for bar in limits["bars"]:
        assert bar["name"] in shown
        assert bar["low"] <= bar["median"] <= bar["high"]
        assert isinstance(bar["held"], bool)
    assert mixed["not judged"]
    assert "not judged" in shown
    text = (tmp_path / "RESULTS.md").read_text()
    assert all(bar["name"] in text for bar in limits["bars"])
    assert found["command"] in text
    assert not list(tmp_path.glob("run-*"))


@linux
@pytest.mark.processes
def test_processes_that_begin_together(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "processes")
    (section,) = found["sections"]
    assert all(value > 0 for figure in section["figures"] for value in figure["values"])
    ElementTree.parse(tmp_path / "plots" / "throughput-by-processes.svg")


@linux
@pytest.mark.processes
def test_jobs_are_measured_also_where_the_others_are_missing(tmp_path: Path) -> None:
    (section,) = run(tmp_path, "jobs")[0]["sections"]
    assert len(section["bars"]) == 4
    assert {name.rpartition(" ")[2] for name in section["not judged"]} == {"quebec", "huey"}
    assert all(value > 0 for figure in section["figures"] for value in figure["values"])


def test_a_row_that_fails_is_reported_and_the_others_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    section = Section("fine", "Fine", "how")
    section.at_least(2, "speed", [1, 3, 2.5], "x")
    section.at_most(2, "cost", [1, 3, 2.5], "us")
    result = {
        "machine": {},
        "missing": {"Redis": "no redis-server here"},
        "failures": {"broken": "TaskError: exit code 1"},
        "quick": False,
    }
    report.to_terminal(result, [section])
    shown = capsys.readouterr().out
    assert "held    speed" in shown
    assert "MISSED  cost" in shown
    assert "MISSING Redis: no redis-server here" in shown
    assert "FAILED  row broken" in shown
    assert "1 of 2 bars held" in shown


def test_ratios_are_of_the_same_round() -> None:
    assert ratios([2, 9], [1, 3]) == [2, 3]
    with pytest.raises(ValueError):
        ratios([1], [1, 2])


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (999, "999"), (1234, "1,234"), (56_700, "56.7 k"), (4_400_000, "4.4 M")]
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert human(value) == text


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("xs", [(1, 1000, 10_000_000), ("ours", "theirs & <others>")])
def test_plots_are_pictures(xs: tuple[float | str, ...], log: bool) -> None:
    series = {
        name: [Point(x, 10.0 * n + 1, 10.0 * n + 0.5, 10.0 * n + 2) for n, x in enumerate(xs)]
        for name in ("a", "b")
    }
    picture = plots.draw(Plot("p.svg", "Title", "across", "up", series, log_x=log, log_y=log))
    root = ElementTree.fromstring(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height


def test_nothing_to_draw_says_so() -> None:
    assert "nothing was measured" in plots.draw(Plot("p.svg", "Title", "", "", {}))
