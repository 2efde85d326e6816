"""SIGKILL at random instants: of producers, of workers with threads and forks, of compactors.

Every enqueue that returned is there once, every ack that returned is final, tokens never repeat.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from nobroker import Queue
from tests.faults.stores import scratch
from tests.faults.trial import Trial

STORM = Path(__file__).with_name("storm.py")
KILLS = 100
PLACES = (("produce",), ("threads", "forks"), ("forks", "handlers"), ("compact", "produce", "threads"))
"""Which roles the processes that run at one time take, one after the other."""
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL"),
]


def storm(directory: Path, rng: Random, kills: int) -> None:
    """Kill one process after the other, and start another in its place."""
    turn = 0

    def start(place: int) -> subprocess.Popen[str]:
        nonlocal turn
        turn += 1
        role = PLACES[place][turn % len(PLACES[place])]
        command = [sys.executable, str(STORM), role, str(directory), str(turn)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    running = [start(place) for place in range(len(PLACES))]
    complaints: list[str] = []
    try:
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, 0.6))
            place = rng.randrange(len(PLACES))
            complaints += kill(running[place])
            running[place] = start(place)
    finally:
        for process in running:
            complaints += kill(process)
    assert complaints == []


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Returns what the process had to complain about when it was dead already."""
    dead = process.poll()
    process.kill()
    _, said = process.communicate()
    return [] if dead is None else [f"exit {dead}: {said}"]


def test_every_role(trial: Trial, tmp_path: Path) -> None:
    for _, rng in trial.rounds(1):
        with scratch(tmp_path) as directory:
            storm(directory, rng, KILLS)
            made, leased, acked = read_notes(directory)
            with Queue(directory / "jobs") as queue:
                assert [found for found in queue.check() if found.severity != "note"] == []
                jobs = queue.list_jobs()
                state = {job.seq: job.state for job in jobs}
                there = Counter(job.payload for job in jobs)
                result = queue.compact()
                assert queue.check() == []
            seen = there + Counter({serial: 1 for serial in leased.values() if serial not in there})
            assert [serial for serial in made if seen[serial] != 1] == [], "lost, or twice"
            assert [serial for serial, times in there.items() if times > 1] == [], "twice"
            for seq in acked:
                assert state.get(seq, "done") == "done", "an acknowledged job came back"
            assert len(made) > 100
            assert len(acked) > 100
            trial.count("kills", KILLS)
            trial.count("jobs", len(made))
            print(f"{len(made):,} made, {len(acked):,} acknowledged; {result.describe()}")


def read_notes(directory: Path) -> tuple[list[str], dict[int, str], set[int]]:
    """What was made, what the leased jobs held, which were acknowledged; tokens and acks are judged here."""
    made = [line for file in directory.glob("made-*") for line in file.read_text().splitlines()]
    leased: dict[int, str] = {}
    tokens: Counter[str] = Counter()
    acked: dict[int, int] = {}
    leases: list[tuple[int, int]] = []
    for file in directory.glob("worked-*"):
        for line in file.read_text().splitlines():
            verb, seq, token, *payload = line.split(" ", 3)
            if verb == "leased":
                tokens[token] += 1
                leases.append((int(seq), int(token)))
                leased[int(seq)] = payload[0]
            elif verb == "acked":
                acked[int(seq)] = int(token)
            else:
                leases.append((int(seq), int(token)))
    assert [token for token, times in tokens.items() if times > 1] == [], "a token was given twice"
    again = [(seq, token) for seq, token in leases if seq in acked and token > acked[seq]]
    assert again == [], "delivered again after its ack had returned"
    return made, leased, set(acked)
