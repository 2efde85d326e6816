"""The harness's own machinery: rounds, points, figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults import figures
from tests.faults.trial import Options, Trial


def numbers(trial: Trial, ordinary: int, least: int) -> list[int]:
    return [number for number, _ in trial.rounds(ordinary, least=least)]


def test_an_ordinary_run_has_its_rounds() -> None:
    trial = Trial("name", "file::name", Options(), begin=7)
    assert numbers(trial, 3, 100) == [0, 1, 2]
    assert trial.figures["rounds"] == 3


def test_a_long_run_goes_on_where_the_last_one_stopped_and_does_the_least_size() -> None:
    trial = Trial("name", "file::name", Options(long_minutes=0.0))
    assert numbers(trial, 3, 5) == [0, 1, 2, 3, 4]
    later = Trial("name", "file::name", Options(long_minutes=0.0), begin=trial.next_round)
    assert numbers(later, 3, 6) == [5]
    timed = Trial("name", "file::name", Options(long_minutes=0.0005))
    assert len(numbers(timed, 1, 0)) > 1


def test_points_are_gone_through_once_or_again() -> None:
    once = Trial("name", "file::name", Options(long_minutes=0.0), begin=99)
    assert [point for _, point, _ in once.points(3)] == [0, 1, 2]
    again = Trial("name", "file::name", Options(long_minutes=0.0005))
    rounds = [(number, point) for number, point, _ in again.points(3, again=True)]
    assert rounds[:4] == [(0, 0), (1, 1), (2, 2), (3, 0)]


def test_a_round_has_the_same_random_numbers_wherever_it_is_run() -> None:
    trial = Trial("name", "file::name", Options(seed=3))
    drawn = [rng.random() for _, rng in trial.rounds(5)]
    (alone,) = Trial("name", "file::name", Options(seed=3, only=4)).rounds(5)
    assert alone[0] == 4
    assert alone[1].random() == drawn[4]
    assert len(set(drawn)) == 5


def test_a_failing_round_is_replayed_by_its_number() -> None:
    trial = Trial("name", "file::name", Options(seed=3))
    for _ in trial.rounds(9):
        if trial.current == 4:
            break
    assert trial.replay().endswith("'file::name' --seed 3 --only 4")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures.json")
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(figures, "commit", lambda: "abc1234")
    return tmp_path


def run(name: str, outcome: str, **counts: int) -> Any:
    trial = Trial(name, "tests/faults/x.py::x", Options(seed=5, long_minutes=1.0))
    trial.figures.update(counts)
    trial.seconds, trial.next_round, trial.current = 90.0, 12, 11
    figures.add(trial, outcome)


def test_figures_add_up_and_violations_are_named(elsewhere: Path) -> None:
    run("kill_storm: every_role", "passed", rounds=4, kills=400)
    run("kill_storm: every_role", "failed", rounds=1, kills=100)
    run("kill_storm: beside_a_compactor", "passed", rounds=2, kills=20)
    assert figures.begin_of("kill_storm: every_role", 5) == 12
    assert figures.begin_of("kill_storm: every_role", 6) == 0
    page = (elsewhere / "RESULTS.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| 1 | kill -9")]
    assert "| 4.5 | 520 kills, 7 rounds | 5 |" in row
    assert row.endswith("| 1 |")
    assert "tests/faults/x.py::x' --seed 5 --only 11`. Not explained yet." in page
    assert "| not run |" in page


def test_every_harness_has_a_row() -> None:
    rows = {file for _, files in figures.ROWS.values() for file in files}
    here = {
        path.stem.removeprefix("test_")
        for path in figures.HERE.glob("test_*.py")
        if "trial: Trial" in path.read_text()
    }
    assert rows == here - {"harness_catches", "trial"}
