"""A process is killed at each of its system calls, once; and whoever repairs is killed, too."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobroker import Queue
from tests.faults.account import Account
from tests.faults.book import SEGMENT
from tests.faults.kill_child import SCENARIOS, Children
from tests.faults.trial import Trial

TWICE = 6
"""In an ordinary run one point in so many gets a second kill."""


class Killer(Children):
    """Kills children at their nth system call."""

    def run(self, scenario: str, directory: Path, point: int) -> bool:
        """True when the child was killed, False when it ended before."""
        pid = self.begin(scenario, directory)
        command = ["strace", "-o", os.devnull, "-e", f"inject=all:signal=KILL:when={point}", "-p", str(pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
        os.kill(pid, signal.SIGCONT)
        status = self.end()
        tracer.communicate()
        if "attached" not in said:
            pytest.skip(f"strace may not watch other processes here: {said.strip()}")
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return True
        assert status == 0, f"{scenario} ended with status {status}"
        return False


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    found = Killer()
    yield found
    found.close()


def account_of(notes: Path) -> Account:
    """What the children said before they were killed."""
    account = Account()
    begun: dict[str, set[str]] = {"+": set(), "-": set()}
    for line in notes.read_text().splitlines():
        what, *keys = line.split()
        if what.startswith("?"):
            begun[what[1]].update(keys)
        else:
            (account.there if what == "+" else account.done).update(keys)
    account.unknown = begun["+"] - account.there
    account.perhaps_done = begun["-"] - account.done
    return account


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
    only = trial.options.only
    for point in itertools.count(1) if only is None else (only,):
        trial.current = point
        rng = random.Random(f"{trial.options.seed}/{scenario}/{point}")
        where = directory / str(point)
        where.mkdir()
        killed = killer.run(scenario, where, point)
        if killed:
            trial.count("kills")
            if trial.long or only is not None or point % TWICE == 0:
                trial.count("kills of the next one", killer.run("recover", where, rng.randrange(1, 120)))
        look(where)
        shutil.rmtree(where)
        if not killed:
            break


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_every_system_call(
    scenario: str, trial: Trial, killer: Killer, quick_directory: Path
) -> None:
    kill_everywhere(scenario, trial, killer, quick_directory)
    assert trial.figures["kills"] > 5 or trial.options.only is not None
    print(f"{scenario}: {dict(trial.figures)}")
