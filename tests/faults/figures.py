"""What the long runs saw, added up: figures.json, and RESULTS.md made from it.

`python -m tests.faults.figures` makes RESULTS.md anew. Whoever has found why a run failed says so in
figures.json, as the `cause` of that run.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import portalocker

from benchmarks import machine
from tests.faults.trial import Trial

HERE = Path(__file__).parent
FIGURES = HERE / "figures.json"
RESULTS = HERE / "RESULTS.md"
ROWS = {
    1: ("kill -9 of producers, workers, forks, compactors at random instants", ["kill_storm"]),
    2: ("kill at every system call, and again during the repair", ["kill_points"]),
    3: ("modelled power loss: every state that a disk may hold", ["power_loss"]),
    4: ("real power cuts on ext4", ["power_cut"]),
    5: ("each call that changes the disk fails, alone and in pairs", ["failing_disk"]),
    6: ("a really full disk", ["full_disk"]),
    7: ("truncation, of closed queues and under processes at work", ["truncation"]),
    8: ("bit flips", ["bit_flips"]),
    9: ("hostile files", ["hostile_files", "fuzzing"]),
    10: ("stale, swapped and foreign caches", ["caches"]),
    11: ("random verbs against a model", ["stateful_model"]),
    12: ("stopped holders of locks and leases", ["stopped_holder"]),
    13: ("clock steps, shifted boot clocks", ["clock_steps"]),
    14: ("read-only directories and mounts", ["read_only_places"]),
    15: ("leaks of descriptors, maps, memory", ["leaks"]),
    16: ("histories of eight processes", ["histories"]),
    18: ("numbers that never repeat: looked at in the rows 1, 3, 4 and 8", []),
    19: ("retirement in every order", ["retirement"]),
}
"""The rows of the plan, each with the files that are its harness. Row 17 is in MUTATION.md."""


def load() -> dict[str, Any]:
    """All that is known, by harness."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def begin_of(name: str, seed: int) -> int:
    """The round with which the next long run of a harness begins."""
    return int(load().get(name, {}).get("next", {}).get(str(seed), 0))


def commit() -> str:
    """Which state of the project is tested; what long runs write does not make it another."""
    own = [f":(top,exclude)tests/faults/{name}" for name in ("figures.json", "RESULTS.md", "corpus.msgpack")]
    said = [
        subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()
        for words in (["rev-parse", "--short=7", "HEAD"], ["status", "--porcelain", "-uno", "--", ":/", *own])
    ]
    return (said[0] or "not a checkout") + ("-dirty" if said[1] else "")


def add(trial: Trial, outcome: str) -> None:
    """Add a long run of a harness; `outcome` is `passed` or `failed`."""
    with portalocker.Lock(Path(tempfile.gettempdir()) / "nobroker-fault-figures.lock", "w"):
        known = load()
        entry = known.setdefault(trial.name, {"figures": {}, "minutes": 0.0, "next": {}, "runs": []})
        for what, number in sorted(trial.figures.items()):
            entry["figures"][what] = entry["figures"].get(what, 0) + number
        entry["minutes"] = round(entry["minutes"] + trial.seconds / 60, 2)
        entry["next"][str(trial.options.seed)] = trial.next_round
        run = {
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit(),
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
        "Sums over all long runs, written by them. What a run that failed had found was mended, with a test"
        " of its own, and the row was run again.",
        "",
        f"Last machine: {cores['cpu']}, {cores['cores']} cores, {cores['kernel']}, Python {cores['python']},"
        f" {cores['file system'].split(' ')[0]}.",
        "",
        "| row | what | minutes | seen | seeds | last run at | failed runs |",
        "|---:|---|---:|---|---|---|---:|",
        *(row_line(row, known) for row in ROWS),
        "",
        "Row 17, coverage and mutation, has its own page: [MUTATION.md](MUTATION.md).",
        "",
        "To run a row again, or to let it go on where it stopped:"
        " `python make.py test -n 0 FILES --long MINUTES --seed SEED`, minutes for each harness of the row."
        " One round: `--only ROUND` instead of `--long`.",
        "",
        "## Each harness",
        "",
        "| row | command: `python make.py test -n 0 …` | minutes | rounds | runs | failed runs |",
        "|---:|---|---:|---:|---:|---:|",
        *harness_lines(known),
    ]
    failures = [
        f"- {run['date']}, {run['commit']}, {name}: `{run['replay']}`."
        f" {run.get('cause', 'Not explained yet.')}"
        for name, entry in sorted(known.items())
        for run in entry["runs"]
        if "replay" in run
    ]
    if failures:
        lines += ["", "## Runs that failed", ""]
        lines += ["Each with the command that replays it at that commit, and its cause.", "", *failures]
    return "\n".join(lines) + "\n"


def entries_of(row: int, known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The harnesses of a row that ran."""
    for name, entry in sorted(known.items()):
        if name.partition(":")[0] in ROWS[row][1]:
            yield name, entry


def row_line(row: int, known: dict[str, Any]) -> str:
    """A row of the plan: the sums over its harnesses."""
    what, files = ROWS[row]
    entries = [entry for _, entry in entries_of(row, known)]
    if not entries:
        return f"| {row} | {what} | {'not run' if files else ''} | | | | |"
    seen: Counter[str] = Counter()
    for entry in entries:
        seen.update(entry["figures"])
    runs = [run for entry in entries for run in entry["runs"]]
    minutes = sum(entry["minutes"] for entry in entries)
    shown = ", ".join(f"{number:,} {thing}" for thing, number in sorted(seen.items()) if number)
    seeds = " ".join(sorted({str(run["seed"]) for run in runs}))
    last = sorted(runs, key=lambda run: run["date"])[-1]
    return (
        f"| {row} | {what} | {minutes:.1f} | {shown} | {seeds} | {last['commit']}, {last['date']} |"
        f" {failed(runs)} |"
    )


def harness_lines(known: dict[str, Any]) -> Iterator[str]:
    """Each harness with the command that runs it."""
    for row in ROWS:
        for name, entry in entries_of(row, known):
            file, _, test = name.partition(": ")
            yield (
                f"| {row} | `'tests/faults/test_{file}.py::test_{test}'` | {entry['minutes']:.1f} |"
                f" {entry['figures'].get('rounds', 0):,} | {len(entry['runs'])} | {failed(entry['runs'])} |"
            )


def failed(runs: list[dict[str, Any]]) -> int:
    """How many runs ended with a violation."""
    return sum(run["outcome"] != "passed" for run in runs)


if __name__ == "__main__":
    RESULTS.write_text(report(load()))
