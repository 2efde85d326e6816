"""A process is killed at each of its system calls, once; and whoever repairs is killed, too."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import Queue
from tests.faults import strace
from tests.faults.account import account_of
from tests.faults.book import SEGMENT
from tests.faults.kill_child import SCENARIOS, Children
from tests.faults.trial import Trial

TWICE = 6
"""In an ordinary run one point in so many gets a second kill."""


class Killer(Children):
    """Kills children at their system calls."""

    def calls(self, scenario: str, directory: Path) -> list[tuple[str, int]]:
        """All that there are."""
        return strace.calls_of(self, self.begin(scenario, directory), directory / "trace")

    def kill(self, scenario: str, directory: Path, call: tuple[str, int]) -> bool:
        """False when the child ended without that call."""
        pid = self.begin(scenario, directory)
        status = strace.with_fault(self, pid, f"{call[0]}:signal=KILL:when={call[1]}")
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return True
        assert status == 0, f"{scenario} ended with status {status}"
        return False


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    strace.needed()
    found = Killer()
    yield found
    found.close()


def look(directory: Path) -> None:
    """What had returned is there once, what had not once or not at all; the queue works on."""
    account = account_of(directory / "notes")
    for _ in range(2):
        with Queue(directory / "jobs", segment_size=SEGMENT) as queue:
            account.compare(queue)
            assert [finding for finding in queue.check() if finding.severity != "note"] == []
            key = f"after-{len(account.there)}"
            job = queue.enqueue({"key": key}, priority=9)
            account.there.add(key)
            assert queue.lease(1)[0].id == job.id
            queue.ack(job.id)
            account.done.add(key)


def kill_everywhere(scenario: str, trial: Trial, killer: Killer, directory: Path) -> None:
    """At each system call once; some of those who repair are killed, too."""
    where = directory / "traced"
    where.mkdir()
    calls = killer.calls(scenario, where)
    repair = killer.calls("recover", where)
    for number, point, rng in trial.points(len(calls), again=True):
        where = directory / str(number)
        where.mkdir()
        if killer.kill(scenario, where, calls[point]):
            trial.count("kills")
            if trial.long or trial.options.only is not None or number % TWICE == 0:
                trial.count("kills of the next one", killer.kill("recover", where, rng.choice(repair)))
        look(where)
        shutil.rmtree(where)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_every_system_call(
    scenario: str, trial: Trial, killer: Killer, quick_directory: Path
) -> None:
    kill_everywhere(scenario, trial, killer, quick_directory)
    assert trial.figures["kills"] > 15 or trial.options.only is not None
    print(f"{scenario}: {dict(trial.figures)}")
