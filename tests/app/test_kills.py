"""Workers that are killed, and classes of jobs that a worker does not know."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    App,
    BaseJob,
    Discard,
    JobState,
    Retry,
)
from nobroker.clock import ManualClock
from tests.app.working import raising, work, work_on

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


KILLED = """
import os, signal, sys
from nobroker import App, Retry
from nobroker.clock import ManualClock

clock = ManualClock()
clock.advance(100 * int(sys.argv[2]))  # the leases of those before are over, and none ends meanwhile
app = App(sys.argv[1], fsync=False, visibility_timeout=30, clock=clock)

@app.job(name="job", retry=[Retry(ConnectionError, attempts=20, wait=0)], max_attempts=3)
def job(path, kill_in):
    with open(path, "a") as file:
        file.write("x")
    runs = os.path.getsize(path)
    if runs in kill_in:
        os.kill(os.getpid(), signal.SIGKILL)
    if runs < 15:
        raise ConnectionError
    return runs

app.run(once=True)
"""


def run_killed(app: App, clock: ManualClock, directory: Path, kill_in: list[int]) -> tuple[Any, int]:
    """Work a job off in processes that are killed in some runs; its handle, and how many runs it had."""
    script = directory / "killed.py"
    script.write_text(KILLED, encoding="utf-8")

    @app.job(name="job", retry=[Retry(ConnectionError, attempts=20)], max_attempts=3)
    def job(path: str, kill_in: list[int]) -> int: ...

    handle: Any = job.perform_later(str(directory / "runs"), kill_in)
    exits = []
    for number in range(1, len(kill_in) + 2):
        clock.advance(100)
        done = subprocess.run([sys.executable, script, str(app.path), str(number)], timeout=60, check=False)
        exits.append(done.returncode)
        if done.returncode == 0:
            break
    assert exits == [-signal.SIGKILL] * (len(exits) - 1) + [0]
    return handle, os.path.getsize(directory / "runs")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_kill_in_a_late_retry_does_not_make_the_job_dead(
    app: App, clock: ManualClock, tmp_path: Path
) -> None:
    handle, runs = run_killed(app, clock, tmp_path, [7, 13])
    assert (handle.status(), runs, handle.result()) == (JobState.DONE, 15, 15)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_job_that_kills_its_worker_is_dead_after_max_attempts_whatever_its_retries(
    app: App, clock: ManualClock, tmp_path: Path
) -> None:
    handle, runs = run_killed(app, clock, tmp_path, [2, 3, 4, 5, 6, 7, 8])
    assert (handle.status(), runs) == (JobState.DEAD, 4), "one retry, and three kills"
    assert "its worker ended under it" in str(handle.job().last_error)


# -- classes that nobody knows


def test_a_class_that_is_not_known_here_waits_for_a_worker_that_knows_it(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    handle = raising(app, seen).perform_later()
    known = app.jobs.pop("job")
    work(app)
    found = handle.job()
    assert (found.state, found.attempts, found.last_error) == (JobState.READY, 0, None)
    assert found.available_at == clock.wall_us() / 1e6 + 15
    warning = caplog.records[-1]
    assert warning.levelno == logging.WARNING
    assert f"event=job.unknown id={handle.id}" in warning.getMessage()
    assert "job 'job' is not registered here" in warning.getMessage()
    clock.advance(3000)
    work(app)
    assert handle.status() == JobState.READY, "an hour is not over"
    app.jobs["job"] = known
    clock.advance(15)
    work(app)
    assert (seen, handle.result()) == ([(1, 1)], "returned")


def test_after_the_grace_it_is_dead_and_a_requeue_works_when_it_is_known(
    app: App, clock: ManualClock
) -> None:
    handle = raising(app, seen).perform_later()
    known = app.jobs.pop("job")
    work(app)
    clock.advance(3601)
    assert work(app).dead == 1
    assert handle.status() == JobState.DEAD
    assert "UnknownJobError: job 'job' is not registered here; it waited 3601 s" in str(
        handle.job().last_error
    )
    app.queue.requeue_dead(handle.id)
    work(app)
    assert handle.status() == JobState.READY, "requeued, it waits anew"
    app.jobs["job"] = known
    clock.advance(15)
    work(app)
    assert handle.result() == "returned"


def test_the_grace_begins_when_a_worker_first_sees_it(app: App, clock: ManualClock) -> None:
    handle = raising(app, seen).set(wait=timedelta(days=2)).perform_later()
    app.jobs.clear()
    clock.advance(2 * 86400)
    work(app)
    assert handle.status() == JobState.READY
    clock.advance(3600)
    work(app)
    assert handle.status() == JobState.DEAD


def test_what_the_job_keeps_is_kept_while_it_is_unknown(app: App, clock: ManualClock) -> None:
    job = raising(app, seen, *[OSError()] * 9, retry=[Retry(OSError, attempts=3)])
    handle = job.perform_later()
    work_on(app, clock, 2)
    known = app.jobs.pop("job")
    work_on(app, clock, 1)
    app.jobs["job"] = known
    work_on(app, clock, 2)
    assert (len(seen), handle.status()) == (3, JobState.DEAD)


@pytest.mark.parametrize("payload", [5, {"job": "x"}, {"job": 5, "args": []}, {"args": []}, ["job"], None])
def test_a_payload_that_is_no_call_is_treated_alike(app: App, clock: ManualClock, payload: Any) -> None:
    job = app.queue.enqueue(payload, lane="default")
    work(app)
    assert app.queue.get(job.id).state == JobState.READY
    clock.advance(3600)
    work(app)
    found = app.queue.get(job.id)
    assert found.state == JobState.DEAD
    assert "a payload that no application made" in str(found.last_error)


def test_a_grace_of_nothing(tmp_path: Path) -> None:
    app = App(tmp_path, unknown_job_grace=0, fsync=False)
    job = app.queue.enqueue({"job": "x", "args": []}, lane="default")
    work(app)
    assert app.queue.get(job.id).state == JobState.DEAD
    assert app.queue.check() == []
    app.close()


def test_rules_of_classes(app: App, clock: ManualClock) -> None:
    @app.register
    class Job(BaseJob):
        retry = Retry(OSError, attempts=2)
        discard = (Discard(KeyError),)
        max_attempts = 1

        def perform(self, error: str) -> None:
            seen.append(error)
            raise {"os": OSError, "key": KeyError, "value": ValueError}[error]

    handles = [Job.perform_later(error) for error in ("os", "key", "value")]
    work_on(app, clock, 3)
    assert sorted(seen) == ["key", "os", "os", "value"]
    assert [handle.status() for handle in handles] == ["dead", "done", "dead"]
