"""SIGKILL at random instants: of producers, of workers with threads and forks, of compactors.

Every enqueue that returned is there once, every ack that returned is final, tokens never repeat.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from nobroker import Job, Queue
from tests.faults.limited import Hold, exceeded, prepare
from tests.faults.stores import scratch
from tests.faults.storm import LIMITED_LEASE_S, SEGMENT
from tests.faults.trial import Trial

STORM = Path(__file__).with_name("storm.py")
COMPACTOR = ["-m", "nobroker"]
WATCH = "compact --watch"
KILLS = 60
PLACES = (("produce",), ("threads", "forks"), ("forks", "handlers"), ("compact", "produce", "threads"))
"""Which roles the processes that run at one time take, one after the other."""
KILLS_BESIDE_A_COMPACTOR = 10
PATIENCE_S = 60.0
USUAL_START_S = 0.4
PLACES_BESIDE_A_COMPACTOR = (*[("hoard",)] * 6, ("clear",), (WATCH,))
PLACES_WITH_LIMITS = (*[("limited",)] * 4, ("compact",))
KILLS_WITH_LIMITS = 6
KINDS = ("limits", "rates", "exclusive", "fair")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL"),
]


class Storm:
    """Processes that are killed, one after the other, each with another one in its place."""

    def __init__(self, directory: Path, places: Sequence[Sequence[str]]) -> None:
        self.directory = directory
        self.places = places
        self.turn = 0
        self.slowness = self._slowness()

    def start(self, place: int) -> subprocess.Popen[str]:
        self.turn += 1
        role = self.places[place][self.turn % len(self.places[place])]
        command = [sys.executable, str(STORM), role, str(self.directory), str(self.turn)]
        if role == WATCH:
            where = ["--dir", str(self.directory / "jobs")]
            command = [sys.executable, *COMPACTOR, *where, "compact", "--watch", "0.2"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def _slowness(self) -> float:
        """How much longer than usual a process takes to get under way: on a machine that has much to do,
        nobody would come to anything between two kills.
        """
        began = time.monotonic()
        subprocess.run([sys.executable, str(STORM), "come_and_go", str(self.directory), "0"], check=True)
        return max(1.0, (time.monotonic() - began) / USUAL_START_S)

    def rage(
        self, rng: Random, kills: int, pause: tuple[float, float], until_gone: Path | None = None
    ) -> None:
        """So many kills, with seconds from `pause` between them, once a file is gone."""
        running = [self.start(place) for place in range(len(self.places))]
        complaints: list[str] = []
        try:
            patience = time.monotonic() + PATIENCE_S
            while until_gone is not None and until_gone.exists():
                assert time.monotonic() < patience, f"{until_gone} stays"
                time.sleep(0.05)
            for _ in range(kills):
                time.sleep(self.slowness * rng.uniform(*pause))
                place = rng.randrange(len(self.places))
                complaints += kill(running[place])
                running[place] = self.start(place)
        finally:
            for process in running:
                complaints += kill(process)
        assert complaints == []


def kills_of(trial: Trial, storm: Storm, kills: int) -> int:
    """An ordinary run on a busy machine has fewer kills, not more time."""
    return kills if trial.long else max(3, round(kills / storm.slowness))


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Returns what the process had to complain about when it was dead already."""
    dead = process.poll()
    process.kill()
    _, said = process.communicate()
    return [] if dead is None else [f"exit {dead}: {said}"]


def test_every_role(trial: Trial, tmp_path: Path) -> None:
    for _, rng in trial.rounds(1, least=5):
        with scratch(tmp_path) as directory:
            storm = Storm(directory, PLACES)
            kills = kills_of(trial, storm, KILLS)
            storm.rage(rng, kills, (0.05, 0.6))
            made = read_made(directory)
            leased, acked = read_worked(directory)
            with Queue(directory / "jobs") as queue:
                assert [found for found in queue.check() if found.severity != "note"] == []
                jobs = queue.list_jobs()
                result = queue.compact()
                assert queue.check() == []
            there = Counter(job.payload for job in jobs)
            seen = there + Counter({serial: 1 for serial in leased.values() if serial not in there})
            assert [serial for serial in made if seen[serial] != 1] == [], "lost, or twice"
            judge(jobs, made)
            state = {job.seq: job.state for job in jobs}
            for seq in acked:
                assert state.get(seq, "done") == "done", "an acknowledged job came back"
            assert len(made) > 100
            assert len(acked) > 100
            trial.count("kills", kills)
            trial.count("jobs", len(made))
            print(f"{len(made):,} made, {len(acked):,} acknowledged; {result.describe()}")


def test_beside_a_compactor(trial: Trial, tmp_path: Path) -> None:
    """Nothing that was made is worked off, so all of it must be there, once, while `nobroker compact --watch`
    moves it on and on.
    """
    for _, rng in trial.rounds(1, least=10):
        with scratch(tmp_path) as directory:
            with Queue(directory / "jobs", segment_size=SEGMENT):
                pass
            first = directory / "jobs" / "default.000001.seg"
            storm = Storm(directory, PLACES_BESIDE_A_COMPACTOR)
            kills = kills_of(trial, storm, KILLS_BESIDE_A_COMPACTOR)
            storm.rage(rng, kills, (0.3, 1.0), until_gone=first)
            made = read_made(directory)
            with Queue(directory / "jobs") as queue:
                assert [found for found in queue.check() if found.severity != "note"] == []
                jobs = [job for job in queue.list_jobs() if job.payload is not None]
                assert queue.stats().total == len(queue.list_jobs())
                queue.compact()
                assert queue.check() == []
            there = Counter(job.payload for job in jobs)
            assert [serial for serial in made if there[serial] != 1] == [], "lost, or twice"
            judge(jobs, made)
            with Queue(directory / "jobs") as queue:
                again = Counter(job.payload for job in queue.list_jobs() if job.payload is not None)
            assert again == there
            assert len(made) > 100
            trial.count("kills", kills)
            trial.count("jobs", len(made))


def test_limits(trial: Trial, tmp_path: Path) -> None:
    """Whoever is killed with however many jobs in hand: no limit is passed at any moment."""
    for _, rng in trial.rounds(1, least=10):
        with scratch(tmp_path) as directory:
            with Queue(directory / "jobs", segment_size=SEGMENT) as queue:
                prepare(queue)
            storm = Storm(directory, PLACES_WITH_LIMITS)
            patience, kills, kinds = time.monotonic() + 3 * PATIENCE_S, 0, Counter[str]()
            while kills < KILLS_WITH_LIMITS or min(kinds[kind] for kind in KINDS) == 0:
                assert time.monotonic() < patience, kinds
                storm.rage(rng, KILLS_WITH_LIMITS, (0.3, 0.6))
                kills += KILLS_WITH_LIMITS
                holds = read_holds(directory)
                assert exceeded(holds) == []
                kinds = Counter(kind for hold in holds for kind in hold.limits)
            with Queue(directory / "jobs") as queue:
                assert [found for found in queue.check() if found.severity != "note"] == []
                queue.compact()
                assert queue.check() == []
            trial.count("kills", kills)
            trial.count("leases", len(holds))
            print(f"{len(holds):,} leases: {kinds}")


def read_holds(directory: Path) -> list[Hold]:
    """All leases that were noted, and for how long they surely held."""
    lines = [
        json.loads(line) for file in directory.glob("limited-*") for line in file.read_text().splitlines()
    ]
    ends = {token: line["t"][0] for line in lines for token in line.get("ending", ())}
    leases = [(line["t"][1], *job) for line in lines for job in line.get("leased", ())]
    ahead = max((deadline - LIMITED_LEASE_S - ended for ended, _, _, _, deadline, _ in leases), default=0.0)
    return [
        Hold(
            f"job {seq}, token {token}",
            lane,
            deadline - LIMITED_LEASE_S,
            min(deadline, ends[token] + ahead) if token in ends else deadline,
            limits or {},
        )
        for _, seq, token, lane, deadline, limits in leases
    ]


def judge(jobs: list[Job], made: dict[str, int]) -> None:
    """No job is there twice, each under the number that its maker was told, and no number is of two."""
    assert [seq for seq, times in Counter(made.values()).items() if times > 1] == [], "a number given twice"
    there = Counter(job.payload for job in jobs)
    assert [serial for serial, times in there.items() if times > 1] == [], "twice"
    assert [job.seq for job in jobs if made.get(job.payload, job.seq) != job.seq] == [], "another number"


def read_made(directory: Path) -> dict[str, int]:
    """The sequence number of each job whose enqueue returned."""
    lines = (line for file in directory.glob("made-*") for line in file.read_text().splitlines())
    return {serial: int(seq) for serial, seq in map(str.split, lines)}


def read_worked(directory: Path) -> tuple[dict[int, str], set[int]]:
    """What the leased jobs held, and which were acknowledged; tokens and acks are judged here."""
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
    return leased, set(acked)
