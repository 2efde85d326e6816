"""Who syncs, and how often: by counting the system calls, not by reputation."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import Contender
from benchmarks.running import Bench, TaskError
from benchmarks.servers import Server

CALLS = "fsync,fdatasync,sync_file_range,msync"
STRACE = ("-f", "-qq", "-ttt", "-e", f"trace={CALLS}", "-e", "signal=none")
# An interrupted line ("resumed") belongs to a call that was counted when it began.
LINE = re.compile(r"(?:\d+\s+)?(\d+\.\d+) (?:fsync|fdatasync|sync_file_range|msync)\(")


def available() -> bool:
    return shutil.which("strace") is not None


def per_job(bench: Bench, contender: Contender, server: Server | None) -> dict[str, float]:
    """Syncs for each job of single puts, single takes, and puts of 200 at once.

    Raises:
        TaskError: the peer failed under strace.
    """
    with bench.directory() as directory:
        log = directory / "strace"
        args: dict[str, Any] = {
            "module": contender.module,
            "directory": directory,
            "server": server.address if server else None,
            "options": contender.options,
            "count": bench.pick(10, 100),
        }
        if server is None:
            wrap = ("strace", *STRACE, "-o", log)
            marks = bench.task("measures.exercise:marks", who=contender.who, wrap=wrap, **args)
        else:
            marks = attached(
                server, log, lambda: bench.task("measures.exercise:marks", who=contender.who, **args)
            )
        moments = [float(m.group(1)) for line in log.read_text().splitlines() if (m := LINE.match(line))]
    return {
        name: sum(began <= moment <= ended for moment in moments) / jobs
        for name, (began, ended, jobs) in marks.items()
    }


def attached(server: Server, log: Path, run: Any) -> dict[str, Any]:
    """Run something while the server's system calls are written down."""
    tracer = subprocess.Popen(
        [
            "strace",
            *STRACE,
            "-o",
            str(log),
            *(word for pid in family(server.pid) for word in ("-p", str(pid))),
        ],
        stderr=subprocess.PIPE,
    )
    time.sleep(0.5)  # it says nothing when it has attached
    try:
        if tracer.poll() is not None:
            said = tracer.stderr.read().decode().strip() if tracer.stderr else ""
            raise TaskError(f"strace cannot attach to the server: {said}")
        found: dict[str, Any] = run()
        return found
    finally:
        tracer.terminate()
        tracer.wait()


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def in_words(per: dict[str, float] | None) -> str:
    if per is None:
        return "not counted (no strace)"
    return f"{per['put']:.2g} a put, {per['take']:.2g} a take"
