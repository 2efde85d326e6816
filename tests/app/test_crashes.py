"""Workers are killed at random moments: batches end once, behind their last member; chains go on in order."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nobroker import Queue

pytestmark = pytest.mark.processes

MEMBERS, LINKS = 200, 20
ROUNDS = 2
KILLS = 3
PATIENCE_S = 120.0


@contextmanager
def child(directory: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.app.crash_child", str(directory / "jobs"), str(directory / "log")]
    with subprocess.Popen([*command, *more]) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(directory: Path) -> list[str]:
    log = directory / "log"
    return log.read_text().splitlines() if log.exists() else []


def wait_until(directory: Path, worker: subprocess.Popen[bytes], enough: Callable[[list[str]], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not enough(lines(directory)):
        assert worker.poll() is None
        assert time.monotonic() < deadline, lines(directory)[-3:]
        time.sleep(0.005)


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_kills(tmp_path: Path, round_: int, request: pytest.FixtureRequest) -> None:
    rng = random.Random(f"{request.config.getoption('--seed')} {round_}")
    with child(tmp_path, "start") as start:
        assert start.wait(60) == 0
    # The last one dies about when the batch ends.
    moments = [*sorted(rng.sample(range(1, MEMBERS), KILLS - 1)), MEMBERS + LINKS + rng.randrange(6)]
    for moment in moments:
        with child(tmp_path) as worker:
            wait_until(tmp_path, worker, lambda log, moment=moment: len(log) >= moment)
            worker.kill()
    with child(tmp_path) as worker:
        # Who was killed last may have written its line, and no ack.
        wait_until(tmp_path, worker, lambda log: is_over(log) and all_done(tmp_path))
        worker.terminate()
        assert worker.wait(60) in (0, -signal.SIGTERM), "the latter when it has just been started"
    judge(lines(tmp_path))
    with Queue(tmp_path / "jobs") as queue:
        assert queue.check() == []


def all_done(directory: Path) -> bool:
    with Queue(directory / "jobs") as queue:
        stats = queue.stats()
    return (stats.ready, stats.delayed, stats.leased, stats.dead) == (0, 0, 0, 0)


def is_over(log: list[str]) -> bool:
    return f"link {LINKS - 1}" in log and sum(line.startswith("callback") for line in log) >= 2


def judge(log: list[str]) -> None:
    """The log of a whole round. A job that was killed may have written its line twice; it is the same job."""
    told = [line.split() for line in log]
    callbacks = {tuple(words[1:]) for words in told if words[0] == "callback"}
    assert sorted(name for name, *_ in callbacks) == ["finish", "success"]  # one job each
    members = [words[1] for words in told if words[0] == "member"]
    assert {(total, failed) for _, _, total, failed in callbacks} == {(str(len(set(members))), "0")}
    assert len(set(members)) >= MEMBERS + 4  # those that joined; more where a job was killed behind that
    kinds = [words[0] for words in told if words[0] != "link"]
    assert kinds == ["member"] * len(members) + ["callback"] * (len(kinds) - len(members))
    links = [int(words[1]) for words in told if words[0] == "link"]
    assert links == sorted(links)
    assert set(links) == set(range(LINKS))
