"""Jobs that do not end when they are told to; async jobs."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, Discard, JobState, JobTimeoutError, Retry, current_job
from nobroker.app import timeouts
from nobroker.app.serving import Service
from nobroker.clock import ManualClock
from tests.app.test_timeouts import (  # noqa: F401 - a fixture
    LONG_S,
    SHORT,
    _nothing_seen,
    needs_cpython,
    seen,
    spin,
)
from tests.app.working import time_is_up, work, work_on


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "GRACE_S", 0.1)


# -- what can't be stopped


class Running:
    """A service in a thread, with jobs that hang until the test lets them go."""

    def __init__(self, app: App, **options: Any) -> None:
        self.hung = threading.Event()
        self.go_on = threading.Event()
        self.service = Service(app, handle_signals=False, poll_interval=0.01, **options)
        self.thread = threading.Thread(target=self.service.run)

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.service.stop()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()
        for thread in threading.enumerate():
            if thread.name.startswith("nobroker-worker") or thread.name == "nobroker-stuck":
                thread.join(LONG_S)

    def let_time_be_up(self, job: str) -> None:
        assert self.hung.wait(LONG_S)
        time_is_up(job)

    def wait_for_the_end(self) -> None:
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()


def test_code_that_cannot_be_stopped_is_marked_and_the_worker_recycles(app: App, short_grace: None) -> None:
    @app.on_job_error
    def told(job: Any, error: BaseException) -> None:
        seen.append((str(error), current_job() is job))

    @app.job(name="stuck", timeout=LONG_S, retry=[Retry(TimeoutError, attempts=3, wait=7)])
    def stuck() -> None:
        with contextlib.suppress(TimeoutError):  # whenever it comes
            running.hung.set()
            running.go_on.wait(LONG_S)  # one long wait in C
        running.go_on.wait(LONG_S)

    @app.job
    def beside() -> str:
        assert running.hung.wait(LONG_S)
        while running.service.recycling is None:
            running.go_on.wait(0.01)
        return "ended"

    handle, other = stuck.perform_later(), beside.perform_later()
    running = Running(app, threads=2)
    with running:
        running.let_time_be_up("stuck")
        running.wait_for_the_end()
        assert not running.go_on.is_set(), "nobody waited for it"
        found = handle.job()
        assert (found.state, found.lease_deadline, found.attempts) == (JobState.READY, None, 1)
        assert str(found.last_error).startswith(f"JobTimeoutError: stuck ran longer than {LONG_S:g} s")
        assert other.result() == "ended", "the others end in peace"
        assert (
            str(running.service.recycling) == f"stuck ran longer than {LONG_S:g} s, and could not be stopped"
        )
        later = [stuck.perform_later(), beside.perform_later()]
        assert [one.status() for one in later] == ["ready", "ready"]
    assert handle.job().attempts == 1, "what the thread says later is dropped"
    assert seen == [(f"stuck ran longer than {LONG_S:g} s", True)], "and told once"
    assert running.service.worker.stats.failed == 1
    assert app._timeouts is not None


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_what_it_does_later_changes_nothing(app: App, short_grace: None, ends: str) -> None:
    @app.job(name="stuck", timeout=LONG_S, discard=[Discard(TimeoutError)])
    def stuck() -> str:
        try:
            running.hung.set()
            running.go_on.wait(LONG_S)
        except JobTimeoutError:
            seen.append("caught")
        running.go_on.wait(LONG_S)
        if ends == "raises":
            raise ValueError("late")
        return "late"

    stuck.after_perform(lambda job: seen.append("after_perform"))
    stuck.after_discard(lambda job, error: seen.append("after_discard"))
    stuck.after_dead(lambda job, error: seen.append("after_dead"))
    handle = stuck.perform_later()
    running = Running(app)
    with running:
        running.let_time_be_up("stuck")
        running.wait_for_the_end()
        assert str(handle.discarded).startswith("JobTimeoutError"), "rules count"
    seen.remove("caught")
    assert seen == ["after_discard"]
    assert str(handle.discarded).startswith("JobTimeoutError")
    assert handle.job().attempts == 1


def test_code_that_ends_within_the_grace_is_not_given_up(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "GRACE_S", LONG_S)
    told = threading.Event()
    real = timeouts._raise_in

    def raise_in(thread: int, kind: type[BaseException] | None) -> None:
        real(thread, kind)
        told.set()

    monkeypatch.setattr(timeouts, "_raise_in", raise_in)

    @app.job(timeout=SHORT, discard=[Discard(TimeoutError)])
    def slow() -> None:
        assert told.wait(LONG_S)
        spin()

    handle = slow.perform_later()
    running = Running(app, once=True)
    with running:
        running.wait_for_the_end()
    assert running.service.recycling is None
    assert handle.discarded is not None


def test_a_stuck_job_beside_no_service_is_only_told(
    app: App, short_grace: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "_CAN_STOP", False)  # as in other Pythons than CPython

    @app.job(name="stuck", timeout=SHORT)
    def stuck() -> str:
        end = time.monotonic() + LONG_S
        while "event=job.stuck class=stuck id=None" not in caplog.text and time.monotonic() < end:
            threading.Event().wait(0.01)
        return "ended at last"

    assert stuck.perform_now() == "ended at last"
    assert "event=job.stuck class=stuck id=None" in caplog.text


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "nobroker-watchdog"]


def await_the_end_of_watchdogs() -> None:
    for thread in watchdogs():
        thread.join(LONG_S)
        assert not thread.is_alive()


def test_the_watchdog_is_one_thread_that_ends_with_the_service(app: App) -> None:
    timeouts._watchdog.rest()  # that of other tests
    await_the_end_of_watchdogs()

    @app.job(timeout=LONG_S)
    def job() -> None:
        seen.append(len(watchdogs()))

    for _ in range(6):
        job.perform_later()
    work(app, threads=3)
    assert seen == [1] * 6
    await_the_end_of_watchdogs()
    job.perform_now()
    assert seen[-1] == 1, "and comes again when it is needed"


def test_the_watchdog_knows_no_job(app: App) -> None:
    @app.job(timeout=LONG_S)
    def job() -> None: ...

    timeouts._watchdog.rest()
    await_the_end_of_watchdogs()
    real = timeouts.Watchdog._look

    def look(self: timeouts.Watchdog) -> float:
        try:
            seen.append(current_job())
        except LookupError:
            seen.append(None)
        return real(self)

    timeouts.Watchdog._look = look  # type: ignore[method-assign]
    try:
        job.perform_now()
        timeouts._watchdog.rest()
        await_the_end_of_watchdogs()
    finally:
        timeouts.Watchdog._look = real  # type: ignore[method-assign]
    assert set(seen) == {None}


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_child_watches_anew(tmp_path: Path) -> None:
    script = tmp_path / "forking.py"
    script.write_text(
        "import os, sys, time\n"
        "from nobroker import App, JobTimeoutError\n"
        "app = App(sys.argv[1])\n"
        "@app.job(timeout=0.05)\n"
        "def job():\n"
        "    while True: pass\n"
        "def run():\n"
        "    try:\n"
        "        job.perform_now()\n"
        "    except JobTimeoutError:\n"
        "        return 7\n"
        "assert run() == 7\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(run())\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "assert run() == 7\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, script, tmp_path / "jobs"], timeout=60, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# -- async jobs


def test_an_async_job_is_cancelled_and_the_rules_decide(app: App, clock: ManualClock) -> None:
    @app.job(name="job", timeout=SHORT, retry=[Retry(TimeoutError, attempts=2, wait=0)])
    async def job() -> None:
        seen.append(current_job().attempts)
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            seen.append("cleared up")
            raise

    handle = job.perform_later()
    work_on(app, clock, 2)
    assert (seen, handle.status()) == ([1, "cleared up", 2, "cleared up"], JobState.DEAD)
    assert str(handle.job().last_error).startswith(f"JobTimeoutError: job ran longer than {SHORT:g} s")


def test_a_timeout_error_of_the_jobs_own_is_not_ours(app: App) -> None:
    @app.job(timeout=LONG_S, max_attempts=1)
    async def own(kind: str) -> None:
        if kind == "raised":
            raise TimeoutError("the server did not answer")
        async with asyncio.timeout(0.01):
            await asyncio.sleep(LONG_S)

    handles = [own.perform_later("raised"), own.perform_later("inner")]
    work(app)
    for handle in handles:
        assert str(handle.job().last_error).startswith("TimeoutError:")


def test_an_async_job_that_catches_the_cancel_and_returns_has_a_result(app: App) -> None:
    @app.job(timeout=SHORT)
    async def job() -> str:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            return "what there is so far"
        return "all"

    handle = job.perform_later()
    work(app)
    assert handle.result() == "what there is so far"


def test_an_async_job_that_catches_the_cancel_and_goes_on_is_given_up(app: App, short_grace: None) -> None:
    @app.job(name="stubborn", timeout=SHORT, max_attempts=1)
    async def stubborn() -> None:
        while not running.go_on.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                seen.append("caught")

    @app.job
    async def beside() -> str:
        while running.service.recycling is None:
            await asyncio.sleep(0.01)
        return "ended"

    handle, other = stubborn.perform_later(), beside.perform_later()
    running = Running(app, threads=2)
    with running:
        running.wait_for_the_end()
        assert not running.go_on.is_set()
        assert (handle.status(), other.result()) == (JobState.DEAD, "ended")
        assert str(handle.job().last_error).startswith("JobTimeoutError: stubborn ran longer")
        assert "stubborn" in str(running.service.recycling)
    assert seen[0] == "caught"


def test_an_async_job_that_blocks_the_loop_is_given_up(app: App, short_grace: None) -> None:
    @app.job(name="blocking", timeout=SHORT, max_attempts=1)
    async def blocking() -> None:
        running.go_on.wait(LONG_S)

    handle = blocking.perform_later()
    running = Running(app)
    with running:
        running.wait_for_the_end()
        assert not running.go_on.is_set()
        assert handle.status() == JobState.DEAD
