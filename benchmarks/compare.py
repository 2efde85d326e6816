#!/usr/bin/env python3
"""Measures the queue beside others, beside the machine's limits, and against its own bars."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# By the package's full name only: the folder of this script has modules that are called like packages.
sys.path[:] = [str(HERE.parent), *(p for p in sys.path if p and Path(p).resolve() != HERE)]

from benchmarks import environment, machine, report  # noqa: E402
from benchmarks.figures import Section  # noqa: E402
from benchmarks.measures import ROWS  # noqa: E402
from benchmarks.running import Bench, TaskError  # noqa: E402

QUICK_REPEATS_S = 4.0  # quick mode measures nothing twice after that


def options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make.py bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, at most 2 minutes: shows that it runs"
    )
    parser.add_argument(
        "--only", nargs="+", choices=sorted(ROWS), metavar="ROW", help=f"of: {', '.join(ROWS)}"
    )
    parser.add_argument(
        "--runs", type=int, metavar="N", help="how often each figure is measured (5; quick: 2)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="write the report there, and its plots into the folder plots beside it "
        "(benchmarks/RESULTS.md; with --quick or --only nowhere, unless named)",
    )
    parser.add_argument("--dir", type=Path, help="measure on that file system (that of benchmarks/)")
    parser.add_argument(
        "--no-peers", action="store_true", help="leave out everything that has to be installed"
    )
    parser.add_argument(
        "--install-servers",
        action="store_true",
        help=f"first: apt-get install {' '.join(environment.DEBIAN_PACKAGES)}",
    )
    chosen = parser.parse_args(argv)
    if chosen.runs is None:
        chosen.runs = 2 if chosen.quick else 5
    if chosen.runs < 1:
        parser.error("--runs must be at least 1")
    if chosen.results is None and not chosen.quick and not chosen.only:
        chosen.results = HERE / "RESULTS.md"
    return chosen


def said(chosen: argparse.Namespace) -> list[str]:
    """The words that decide what is measured; not those that say where it is written."""
    words = ["--quick"] * chosen.quick + ["--no-peers"] * chosen.no_peers
    return words + (["--only", *chosen.only] if chosen.only else [])


def main(argv: list[str]) -> int:
    chosen = options(argv)
    if chosen.install_servers:
        environment.install_servers()
    place = chosen.dir or HERE / ".work"
    place.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=place)).resolve()
    try:
        facts = machine.facts(work)  # before anything here makes the machine busy
        found = environment.nothing() if chosen.no_peers else environment.ensure()
        deadline = time.monotonic() + QUICK_REPEATS_S if chosen.quick else float("inf")
        bench = Bench(chosen.quick, chosen.runs, work, found, deadline)
        sections, failures = measure(bench, chosen.only or list(ROWS))
    finally:
        shutil.rmtree(work)
    command = "python make.py bench" + "".join(f" {shlex.quote(word)}" for word in said(chosen))
    result = document(facts, command, bench, sections, failures)
    report.to_terminal(result, sections)
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    if chosen.results:
        report.to_markdown(result, sections, chosen.results)
        print(f"report: {chosen.results}")
    return 1 if failures else 0


def measure(bench: Bench, rows: list[str]) -> tuple[list[Section], dict[str, str]]:
    """The sections of these rows; and why a row could not be measured."""
    sections, failures = [], {}
    for row in rows:
        print(f"measuring: {row}", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            section = ROWS[row](bench)
        except (TaskError, OSError, LookupError) as error:
            failures[row] = f"{type(error).__name__}: {error}"
            print(f"  failed: {failures[row]}", file=sys.stderr)
            continue
        section.seconds = time.monotonic() - began
        sections.append(section)
    return sections, failures


def document(
    facts: dict[str, Any], command: str, bench: Bench, sections: list[Section], failures: dict[str, str]
) -> dict[str, Any]:
    return {
        "machine": facts,
        "command": command,
        "quick": bench.quick,
        "runs": bench.runs,
        "missing": bench.missing,
        "failures": failures,
        "sections": [s.to_dict() for s in sections],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
