"""Jobs that run too long: told to stop, and given up when they do not."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, BaseJob, Discard, JobState, JobTimeoutError, Retry, current_job
from nobroker.app import timeouts
from nobroker.app.serving import Service
from nobroker.clock import ManualClock
from tests.app.working import work, work_on

seen: list[Any] = []
SHORT = 0.05
LONG_S = 20.0
"""Nothing here takes so long, unless it is broken."""

needs_cpython = pytest.mark.skipif(sys.implementation.name != "cpython", reason="only CPython stops threads")


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "GRACE_S", 0.1)


def spin(seconds: float = LONG_S) -> None:
    """Work in Python alone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


# -- in threads


@needs_cpython
def test_python_code_is_stopped_and_the_rules_decide(app: App, clock: ManualClock) -> None:
    @app.job(name="job", timeout=SHORT, retry=[Retry(TimeoutError, attempts=2, wait=0)])
    def job() -> None:
        seen.append(current_job().attempts)
        spin()

    handle = job.perform_later()
    began = time.monotonic()
    work_on(app, clock, 2)
    assert time.monotonic() - began < LONG_S
    assert (seen, handle.status()) == ([1, 2], JobState.DEAD)
    text = str(handle.job().last_error)
    assert text.startswith(f"JobTimeoutError: job ran longer than {SHORT:g} s")
    assert "in spin" in text, "where it was is in the traceback"


@needs_cpython
@pytest.mark.parametrize("rule", ["discard", "max_attempts"])
def test_a_timeout_is_an_error_like_others(app: App, rule: str) -> None:
    options: dict[str, Any] = {"discard": [Discard(JobTimeoutError)]} if rule == "discard" else {"max_attempts": 1}

    @app.register
    class Job(BaseJob):
        timeout = SHORT

        def perform(self) -> None:
            try:
                spin()
            finally:
                seen.append("cleared up")

        def after_dead(self, error: BaseException) -> None:
            seen.append(type(error).__name__)

    for name, value in options.items():
        setattr(Job, name, value)
    app.register(Job)
    handle = Job.perform_later()
    stats = work(app)
    assert (stats.succeeded, stats.dead) == ((1, 0) if rule == "discard" else (0, 1))
    assert seen == (["cleared up"] if rule == "discard" else ["cleared up", "JobTimeoutError"])
    assert (handle.discarded is not None) == (rule == "discard")


@needs_cpython
def test_perform_now_obeys_the_timeout(app: App) -> None:
    @app.job(timeout=SHORT)
    def plain() -> None:
        spin()

    @app.job(timeout=SHORT)
    async def waiting() -> None:
        await asyncio.sleep(LONG_S)

    for job in (plain, waiting):
        with pytest.raises(JobTimeoutError, match="ran longer than"):
            job.perform_now()
    assert not app._opened, "none of it needs the queue"


def test_a_job_that_ends_in_time_is_left_alone(app: App) -> None:
    @app.job(timeout=LONG_S)
    def job(x: int) -> int:
        return x

    handles = app.perform_all_later([job.build(x) for x in range(50)])
    work(app, threads=2)
    assert [handle.result() for handle in handles] == list(range(50))
    assert not timeouts._watchdog._watches, "nothing is kept of jobs that have ended"


@needs_cpython
def test_code_that_catches_the_error_decides_itself(app: App) -> None:
    @app.job(timeout=SHORT)
    def job() -> str:
        try:
            spin()
        except TimeoutError:
            return "what there is so far"
        return "all"

    handle = job.perform_later()
    work(app)
    assert handle.result() == "what there is so far"


@needs_cpython
def test_an_exception_never_comes_when_the_code_is_over(app: App) -> None:
    """Jobs that end just when their time is up: the error is theirs, or there is none."""
    @app.job(timeout=0.002)
    def job(seconds: float) -> str:
        spin(seconds)
        return "in time"

    @app.middleware
    def outside(job: Any) -> Iterator[None]:
        try:
            yield
        finally:
            seen.append("left")
            sum(range(2000))  # an error that comes late would come here, or in the checks below

    outcomes = {"in time": 0, "too late": 0}
    for round_ in range(400):
        try:
            found = job.perform_now(0.0018 + (round_ % 40) * 0.00001)
        except JobTimeoutError:
            found = "too late"
        outcomes[found] += 1
        sum(range(2000))
    assert sum(outcomes.values()) == len(seen) == 400
    assert outcomes["too late"] > 0
    assert not timeouts._watchdog._watches


@needs_cpython
def test_the_hand_shake_withdraws_what_was_asked_for_and_not_raised_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watchdog asks in the last moment of the code."""
    asked = threading.Event()
    real = timeouts._raise_in

    def raise_in(thread: int, kind: type[BaseException] | None) -> None:
        seen.append(kind)
        if kind is None:
            real(thread, kind)
        asked.set()

    monkeypatch.setattr(timeouts, "_raise_in", raise_in)

    class Context:
        job_class = "job"
        _held = None
        _abandoned = False

    def code(context: Any) -> str:
        assert asked.wait(LONG_S)
        return "returned"

    limits = timeouts.ThreadTimeouts(lambda watch: None)
    assert limits.call(code, Context(), 0.01) == "returned"  # type: ignore[arg-type]
    assert issubclass(seen[0], JobTimeoutError)
    assert seen[1:] == [None], "it was withdrawn before the code's caller went on"


@needs_cpython
def test_an_exception_never_comes_in_another_job(app: App) -> None:
    @app.job(timeout=0.002, discard=[Discard(TimeoutError)])
    def limited(seconds: float) -> str:
        spin(seconds)
        return "in time"

    @app.job(max_attempts=1)
    def free() -> str:
        spin(0.001)
        return "fine"

    limiteds = [limited.build(0.0015 + number * 0.00001) for number in range(100)]
    handles = app.perform_all_later([call for pair in zip(limiteds, [free.build()] * 100, strict=True) for call in pair])
    stats = work(app, threads=3)
    assert (stats.succeeded, stats.failed) == (200, 0)
    assert [handle.result() for handle in handles[1::2]] == ["fine"] * 100
    for handle in handles[::2]:
        assert handle.result() == "in time" or "JobTimeoutError" in str(handle.discarded)


@needs_cpython
@pytest.mark.parametrize("first", ["outer", "inner"])
def test_a_job_inside_a_job_has_its_own_time_and_no_more_than_the_outer_one(app: App, first: str) -> None:
    outer_s, inner_s = (SHORT, LONG_S) if first == "outer" else (LONG_S, SHORT)

    @app.job(name="inner", timeout=inner_s, discard=[Discard(TimeoutError)] if first == "outer" else [])
    def inner() -> None:
        spin()

    @app.job(name="outer", timeout=outer_s, max_attempts=1)
    def outer() -> str:
        try:
            inner.perform_now()
        except JobTimeoutError as error:
            seen.append(str(error))
            if first == "outer":
                raise
        return "went on"

    handle = outer.perform_later()
    work(app)
    assert len(seen) == 1, "rules of the inner job do not catch the outer one's timeout"
    assert f"{first} ran longer than {SHORT:g} s" in seen[0]
    assert handle.status() == (JobState.DEAD if first == "outer" else JobState.DONE)


@needs_cpython
def test_threads_side_by_side_are_stopped_each_by_its_own_limit(app: App) -> None:
    @app.job(timeout=SHORT, discard=[Discard(TimeoutError)])
    def slow() -> None:
        spin()

    @app.job
    def fast() -> str:
        spin(0.3)
        return "fine"

    slows, fasts = [slow.perform_later() for _ in range(3)], [fast.perform_later() for _ in range(3)]
    work(app, threads=6)
    assert all("JobTimeoutError" in str(handle.discarded) for handle in slows)
    assert [handle.result() for handle in fasts] == ["fine"] * 3


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

    def wait_for_the_end(self) -> None:
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()


def test_code_that_cannot_be_stopped_is_marked_and_the_worker_recycles(app: App, short_grace: None) -> None:
    @app.on_job_error
    def told(job: Any, error: BaseException) -> None:
        seen.append((str(error), current_job() is job))

    @app.job(name="stuck", timeout=SHORT, retry=[Retry(TimeoutError, attempts=3, wait=7)])
    def stuck() -> None:
        running.hung.set()
        running.go_on.wait(LONG_S)  # one long wait in C

    @app.job
    def beside() -> str:
        assert running.hung.wait(LONG_S)
        while running.service.recycling is None:
            time.sleep(0.01)
        return "ended"

    handle, other = stuck.perform_later(), beside.perform_later()
    with Running(app, threads=2) as running:
        running.wait_for_the_end()
        assert not running.go_on.is_set(), "nobody waited for it"
        found = handle.job()
        assert (found.state, found.lease_deadline, found.attempts) == (JobState.READY, None, 1)
        assert str(found.last_error).startswith(f"JobTimeoutError: stuck ran longer than {SHORT:g} s")
        assert other.result() == "ended", "the others end in peace"
        assert str(running.service.recycling) == f"stuck ran longer than {SHORT:g} s, and could not be stopped"
        later = [stuck.perform_later(), beside.perform_later()]
        assert [one.status() for one in later] == ["ready", "ready"]
    assert handle.job().attempts == 1, "what the thread says later is dropped"
    assert seen == [(f"stuck ran longer than {SHORT:g} s", True)], "and told once"
    assert running.service.worker.stats.failed == 1
    assert app._timeouts is not None


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_what_it_does_later_changes_nothing(app: App, short_grace: None, ends: str) -> None:
    @app.job(name="stuck", timeout=SHORT, discard=[Discard(TimeoutError)])
    def stuck() -> str:
        running.hung.set()
        try:
            running.go_on.wait(LONG_S)
        except JobTimeoutError:
            seen.append("caught")  # comes when the wait is over
        if ends == "raises":
            raise ValueError("late")
        return "late"

    stuck.after_perform(lambda job: seen.append("after_perform"))
    stuck.after_discard(lambda job, error: seen.append("after_discard"))
    stuck.after_dead(lambda job, error: seen.append("after_dead"))
    handle = stuck.perform_later()
    with Running(app) as running:
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
    with Running(app, once=True) as running:
        running.wait_for_the_end()
    assert running.service.recycling is None
    assert handle.discarded is not None


def test_a_stuck_job_beside_no_service_is_only_told(
    app: App, short_grace: None, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(name="stuck", timeout=SHORT)
    def stuck() -> str:
        end = time.monotonic() + LONG_S
        while "event=job.stuck class=stuck id=None" not in caplog.text and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                time.sleep(0.01)
        return "ended at last"

    assert stuck.perform_now() == "ended at last"
    assert "event=job.stuck class=stuck id=None" in caplog.text


def test_the_watchdog_is_one_thread_that_ends_with_the_service(app: App) -> None:
    def watchdogs() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "nobroker-watchdog"]

    @app.job(timeout=LONG_S)
    def job() -> None:
        seen.append(len(watchdogs()))

    for _ in range(6):
        job.perform_later()
    work(app, threads=3)
    assert seen == [1] * 6
    for thread in watchdogs():
        thread.join(LONG_S)
        assert not thread.is_alive()
    job.perform_now()
    assert seen[-1] == 1, "and comes again when it is needed"


def test_the_watchdog_knows_no_job(app: App) -> None:
    @app.job(timeout=LONG_S)
    def job() -> None: ...

    timeouts._watchdog.rest()
    for thread in threading.enumerate():
        if thread.name == "nobroker-watchdog":
            thread.join(LONG_S)
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
        for thread in threading.enumerate():
            if thread.name == "nobroker-watchdog":
                thread.join(LONG_S)
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
    with Running(app, threads=2) as running:
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
    with Running(app) as running:
        running.wait_for_the_end()
        assert not running.go_on.is_set()
        assert handle.status() == JobState.DEAD
