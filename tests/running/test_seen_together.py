"""A supervisor and its workers, as others see them; and what they record of jobs when they are told to."""

from __future__ import annotations

import csv
import os
import signal
import sys

import pytest

from nobroker.running.info import ProcessInfo
from nobroker.running.registry import registered
from tests.running.trial import Trial

from .conftest import until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


def test_from_the_first_sign_of_life_to_a_recording(trial: Trial) -> None:
    (trial.home / "metrics").mkdir()
    running = trial.run(
        "--processes", "2", "--heartbeat-interval", "50ms", "--metrics-dir", "metrics", "--no-scheduler"
    )
    workers = set(running.workers(2))

    def seen() -> dict[int, ProcessInfo]:
        with trial.queue() as queue:
            return {one.pid: one for one in registered(queue)}

    found = until(lambda: (now := seen()).keys() == workers | {running.pid} and now)
    boss = found[running.pid]
    assert (boss.kind, boss.supervisor) == ("supervisor", None)
    assert {(found[pid].kind, found[pid].supervisor) for pid in workers} == {("worker", boss.id)}
    (victim, *_) = workers
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in seen())
    until(lambda: len(seen()) == 3)
    running.workers(2)

    running.tell(signal.SIGUSR2)
    pids = {pid for pid in seen() if pid != running.pid}
    names = until(
        lambda: len(found := [path.name for path in (trial.home / "metrics").iterdir()]) == 2 and found
    )
    assert {int(name.split("-")[1]) for name in names} == pids
    running.says("event=metrics.started", 2)
    trial.later("quick", count=4)
    trial.until("quick", 4)
    assert running.end() == 0
    rows = [
        row
        for path in (trial.home / "metrics").iterdir()
        for row in csv.DictReader(path.read_text().splitlines())
    ]
    assert {(row["class"], row["outcome"]) for row in rows} == {("quick", "done")}
    assert len(rows) == 4
    assert seen() == {}
