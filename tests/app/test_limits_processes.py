"""`nobroker run` in several processes, some of them killed: never more of a key at once, no slot is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nobroker import Queue

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL"),
]

LIMIT, JOBS = 2, 40
PROCESSES = 4
KILLS = 3
PATIENCE_S = 120.0
MODULE = "tests.app.limits_child"


class Workers:
    """Processes that are killed, each with another one in its place."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "nobroker",
            "run",
            f"{MODULE}:app",
            "--threads",
            "2",
            "--no-scheduler",
        ]
        environment = {**os.environ, "LIMITS_DIR": str(self.directory)}
        with (self.directory / "errors").open("ab") as errors:
            self.running.append(subprocess.Popen(command, env=environment, stdout=errors, stderr=errors))

    def kill(self, number: int) -> int:
        """Kill one, and see that it is gone."""
        process = self.running.pop(number)
        process.kill()
        return process.wait(PATIENCE_S)

    def end(self) -> list[int]:
        for process in self.running:
            process.terminate()
        return [process.wait(PATIENCE_S) for process in self.running]


def lines(directory: Path) -> list[list[str]]:
    log = directory / "log"
    return [line.rsplit(" ", 3) for line in log.read_text().splitlines()] if log.exists() else []


def test_killed_workers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    rng = random.Random(request.config.getoption("--seed"))
    environment = {**os.environ, "LIMITS_DIR": str(tmp_path)}
    code = f"from {MODULE} import start; start()"
    workers = Workers(tmp_path)
    try:
        for _ in range(PROCESSES):
            workers.start()
        deadline = time.monotonic() + PATIENCE_S
        while len(list(tmp_path.glob("up-*"))) < PROCESSES:
            assert time.monotonic() < deadline, (tmp_path / "errors").read_text()
            time.sleep(0.01)
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=PATIENCE_S)
        moments = sorted(rng.sample(range(1, JOBS), KILLS))
        while (ended := len({job for word, job, *_ in lines(tmp_path) if word.startswith("end")})) < JOBS or (
            not all_done(tmp_path)  # one may have been killed between its end and the ack
        ):
            assert time.monotonic() < deadline, (tmp_path / "errors").read_text()
            if moments and ended >= moments[0]:
                del moments[0]
                assert workers.kill(rng.randrange(PROCESSES)) == -signal.SIGKILL
                workers.start()
            time.sleep(0.005)
        assert set(workers.end()) <= {0, -signal.SIGTERM}, "which one is killed by that has just been started"
    finally:
        for process in workers.running:
            process.kill()
    judge(lines(tmp_path))
    assert all_done(tmp_path), "all slots came back"
    with Queue(tmp_path / "jobs") as queue:
        assert queue.check() == []


def all_done(directory: Path) -> bool:
    with Queue(directory / "jobs") as queue:
        stats = queue.stats()
    return (stats.ready, stats.delayed, stats.leased, stats.dead) == (0, 0, 0, 0)


def judge(log: list[list[str]]) -> None:
    """Whoever begins finds room among the runs that had begun and went on. A run that was cut off, or lost
    its lease to another, counts at its begin alone: how long it held its slot, nobody has written down.
    """
    began: dict[tuple[str, str, int], int] = {}
    ended: dict[tuple[str, str, int], int] = {}
    for words, job, attempt, moment in log:
        word, key = words.split(" ", 1)
        run = key, job, int(attempt)
        assert run not in (began if word == "begin" else ended), "one lease ran twice"
        (began if word == "begin" else ended)[run] = int(moment)
    whole = {run for run in ended if (run[0], run[1], run[2] + 1) not in began}
    most = 0
    for run, moment in began.items():
        beside = [other for other in whole if other[0] == run[0] and began[other] <= moment <= ended[other]]
        assert len({*beside, run}) <= LIMIT, f"{run} beside {beside}"
        most = max(most, len({*beside, run}))
    assert most == LIMIT, "the limit was never reached: nothing was tested"
    assert len(whole) >= JOBS - 2 * KILLS
