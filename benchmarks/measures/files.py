"""Row `files`: importing JSON Lines and dumping, beside the least that reading JSON can cost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import work
from benchmarks.figures import Section, ratios
from benchmarks.running import Bench, TaskError, settle

HOW = (
    "Importing is the function behind `nobroker import`, durable, beside a loop that reads the same lines"
    " and calls json.loads on each, in the same process, in turns; with the standard library's parser, "
    "and with orjson. Dumping is the command `nobroker-dump` to a file, from start to end of the process."
)


def measure(bench: Bench) -> Section:
    section = Section("files", "Importing and dumping", HOW)
    jobs = bench.pick(20_000, 200_000)
    found: dict[str, list[float]] = {}
    parsers = {"this": "json", "this+json": "orjson"}
    if why := bench.environment.why_missing("this+json"):
        section.not_judged["import of JSON Lines with orjson: of a json.loads loop"] = (
            f"orjson is missing: {why}"
        )
        del parsers["this+json"]
    with bench.directory() as directory:
        lines = directory / "jobs.jsonl"
        with lines.open("w") as file:
            file.writelines(json.dumps(job) + "\n" for batch in work.batches(jobs) for job in batch)
        bench.task("measures.filling:fill", directory=directory / "full", waiting=jobs)
        for _ in bench.rounds():
            for who, parser in parsers.items():
                settle()
                with bench.directory() as target:
                    rates = bench.task(
                        "measures.files:importing", who=who, lines=lines, target=target, parser=parser
                    )
                for name, rate in rates.items():
                    found.setdefault(f"{name} ({parser})", []).append(rate)
            for kind in ("", "--jobs"):
                rate = dumping(bench, directory, kind, jobs)
                found.setdefault(f"nobroker-dump {kind}".strip(), []).append(rate)
    for name, values in found.items():
        section.figure(name, values, "lines/s")
    for parser in parsers.values():
        section.at_least(
            0.6,
            f"import of JSON Lines with {parser}: of a json.loads loop",
            ratios(found[f"import ({parser})"], found[f"json.loads loop ({parser})"]),
            "x",
        )
    for kind in ("nobroker-dump", "nobroker-dump --jobs"):
        section.at_least(150_000, kind, found[kind], "jobs/s")
    return section


def importing(lines: str, target: str, parser: str) -> dict[str, float]:
    """Lines per second of the loop and of the import."""
    if parser == "json":
        sys.modules["orjson"] = None  # type: ignore[assignment]  # as if it were not installed
    else:
        import orjson  # type: ignore[import-not-found,unused-ignore]  # noqa: F401 - fails here rather than not being used
    from nobroker import Queue
    from nobroker_tools.importer import import_jsonl

    bare, ours = work.Stopwatch(), work.Stopwatch()

    def loop() -> int:
        number = 0
        with open(lines, "rb") as file:
            for line in file:
                json.loads(line)
                number += 1
        return number

    def bring(name: str) -> int:
        with Queue(f"{target}/{name}") as queue, open(lines, "rb") as file:
            return int(import_jsonl(file, queue).added)

    for name in ("first", "second"):
        bare.run(loop)
        ours.run(lambda name=name: bring(name))  # type: ignore[misc]
    return {"json.loads loop": bare.rate, "import": ours.rate}


def dumping(bench: Bench, directory: Path, kind: str, jobs: int) -> float:
    """Jobs per second of the command, its start included."""
    out = directory / "dump.jsonl"
    code = "import sys; sys.path.append(sys.argv.pop(1)); from nobroker_tools.dump import main; main()"
    root = Path(__file__).resolve().parent.parent.parent
    command = [sys.executable, "-c", code, str(root), str(directory / "full"), "-o", str(out)]
    began = time.perf_counter()
    ran = subprocess.run([*command, *([kind] if kind else [])], capture_output=True, text=True)
    took = time.perf_counter() - began
    if ran.returncode != 0:
        raise TaskError(f"nobroker-dump: {ran.stderr.strip()}")
    with out.open("rb") as file:
        found = sum(1 for _ in file)
    if found < jobs:
        raise TaskError(f"nobroker-dump wrote {found} lines for {jobs} jobs")
    return jobs / took
