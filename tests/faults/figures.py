"""What the long runs saw, added up: figures.json, and RESULTS.md made from it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from tests.faults.trial import Trial

HERE = Path(__file__).parent
FIGURES = HERE / "figures.json"
RESULTS = HERE / "RESULTS.md"


def load() -> dict[str, Any]:
    """All that is known, by harness."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def begin_of(name: str, seed: int) -> int:
    """The round with which the next long run of a harness begins."""
    return int(load().get(name, {}).get("next", {}).get(str(seed), 0))


def add(trial: Trial, outcome: str) -> None:
    """Add a long run of a harness; `outcome` is `passed` or `failed`."""
    known = load()
    entry = known.setdefault(trial.name, {"figures": {}, "minutes": 0.0, "next": {}, "runs": []})
    for what, number in sorted(trial.figures.items()):
        entry["figures"][what] = entry["figures"].get(what, 0) + number
    entry["minutes"] = round(entry["minutes"] + trial.seconds / 60, 2)
    entry["next"][str(trial.options.seed)] = trial.next_round
    run = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": machine.commit(),
        "seed": trial.options.seed,
        "minutes": round(trial.seconds / 60, 2),
        "outcome": outcome,
    }
    if outcome != "passed":
        run["replay"] = trial.replay()
    entry["runs"].append(run)
    FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    RESULTS.write_text(report(known))


def report(known: dict[str, Any]) -> str:
    """The figures as a page."""
    cores = machine.facts(HERE)
    lines = [
        "# What the fault harness has seen",
        "",
        "Sums over all long runs (`python -m pytest -n 0 tests/faults --long MINUTES`), written by them.",
        "",
        f"Last machine: {cores['cpu']}, {cores['cores']} cores, {cores['kernel']}, Python {cores['python']}, "
        f"{cores['file system'].split(' ')[0]}.",
        "",
        "| harness | minutes | seen | seeds | runs | last commit | violations |",
        "|---|---:|---|---|---:|---|---:|",
    ]
    for name, entry in sorted(known.items()):
        seen = ", ".join(f"{number:,} {what}" for what, number in entry["figures"].items())
        seeds = " ".join(sorted({str(run["seed"]) for run in entry["runs"]}))
        failed = sum(run["outcome"] != "passed" for run in entry["runs"])
        last = entry["runs"][-1]
        lines.append(
            f"| {name} | {entry['minutes']:.1f} | {seen} | {seeds} | {len(entry['runs'])} "
            f"| {last['commit']} of {last['date']} | {failed} |"
        )
    failures = [
        (name, run) for name, entry in sorted(known.items()) for run in entry["runs"] if "replay" in run
    ]
    if failures:
        lines += ["", "Violations that were found, each with the command that replays it at that commit:", ""]
        lines += [f"- {run['date']}, {run['commit']}, {name}: `{run['replay']}`" for name, run in failures]
    return "\n".join(lines) + "\n"
