"""Jobs that run too long: told to stop, and given up when they do not."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from nobroker import App, BaseJob, Discard, JobState, JobTimeoutError, Retry, current_job
from nobroker.app import timeouts
from nobroker.clock import ManualClock
from tests.app.working import time_is_up, work, work_on

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


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads that compute give way after a tenth of a millisecond, not after five."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


# -- in threads


@needs_cpython
def test_python_code_is_stopped_and_the_rules_decide(app: App, clock: ManualClock) -> None:
    @app.job(name="job", timeout=LONG_S, retry=[Retry(TimeoutError, attempts=2, wait=0)])
    def job() -> None:
        seen.append(current_job().attempts)
        time_is_up("job")
        spin()

    handle = job.perform_later()
    began = time.monotonic()
    work_on(app, clock, 2)
    assert time.monotonic() - began < LONG_S
    assert (seen, handle.status()) == ([1, 2], JobState.DEAD)
    text = str(handle.job().last_error)
    assert text.startswith(f"JobTimeoutError: job ran longer than {LONG_S:g} s")
    assert "in job\n" in text, "where it was is in the traceback"


@needs_cpython
@pytest.mark.parametrize("rule", ["discard", "max_attempts"])
def test_a_timeout_is_an_error_like_others(app: App, rule: str) -> None:
    options: dict[str, Any] = (
        {"discard": [Discard(JobTimeoutError)]} if rule == "discard" else {"max_attempts": 1}
    )

    @app.register
    class Job(BaseJob):
        timeout = LONG_S
        job_name = "job"

        def perform(self) -> None:
            try:
                time_is_up("job")
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
    @app.job(name="job", timeout=LONG_S)
    def job() -> str:
        try:
            time_is_up("job")
            spin()
        except TimeoutError:
            return "what there is so far"
        return "all"

    handle = job.perform_later()
    work(app)
    assert handle.result() == "what there is so far"


@needs_cpython
def test_an_exception_never_comes_when_the_code_is_over(app: App, quick_switches: None) -> None:
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
            found = job.perform_now(0.0018 + (round_ % 40) * 0.00005)
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
    real = timeouts._take_back

    def raise_in(thread: int, kind: type[BaseException]) -> None:
        seen.append(kind)
        asked.set()

    def take_back(thread: int) -> None:
        real(thread)
        seen.append(thread)

    monkeypatch.setattr(timeouts, "_raise_in", raise_in)
    monkeypatch.setattr(timeouts, "_take_back", take_back)

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
    assert seen[1:] == [threading.get_ident()], "it was withdrawn before the code's caller went on"


TRACED_AFTERWARDS = """
import sys, threading
from nobroker.app import timeouts

def trace(frame, event, arg):
    return trace

def ends():
    return "ended"

timeouts._take_back(threading.get_ident())
sys.settrace(trace)
print(ends())
"""


@needs_cpython
def test_code_can_be_traced_after_an_exception_was_withdrawn() -> None:
    """Coverage and debuggers trace. Interpreters are known that go round in circles there."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED_AFTERWARDS], capture_output=True, text=True, timeout=LONG_S
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


@needs_cpython
def test_a_watchdog_that_can_not_act_tries_again(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    act = timeouts.Watchdog._act

    def fail_once(self: timeouts.Watchdog, watch: timeouts.Watch, now: float) -> None:
        seen.append(now)
        if len(seen) == 1:
            raise RuntimeError("can't start new thread")
        act(self, watch, now)

    monkeypatch.setattr(timeouts.Watchdog, "_act", fail_once)
    monkeypatch.setattr(timeouts, "_LOOK_S", 0.02)

    @app.job(timeout=SHORT)
    def job() -> None:
        spin()

    with pytest.raises(JobTimeoutError):
        job.perform_now()
    assert len(seen) > 1
    assert "event=watchdog.failed" in caplog.text


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
    handles = app.perform_all_later(
        [call for pair in zip(limiteds, [free.build()] * 100, strict=True) for call in pair]
    )
    stats = work(app, threads=3)
    assert (stats.succeeded, stats.failed) == (200, 0)
    assert [handle.result() for handle in handles[1::2]] == ["fine"] * 100
    for handle in handles[::2]:
        assert handle.result() == "in time" or "JobTimeoutError" in str(handle.discarded)


@needs_cpython
@pytest.mark.parametrize("first", ["outer", "inner"])
def test_a_job_inside_a_job_has_its_own_time_and_no_more_than_the_outer_one(app: App, first: str) -> None:
    @app.job(name="inner", timeout=LONG_S, discard=[Discard(TimeoutError)] if first == "outer" else [])
    def inner() -> None:
        time_is_up(first)
        spin()

    @app.job(name="outer", timeout=LONG_S, max_attempts=1)
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
    assert seen == [f"{first} ran longer than {LONG_S:g} s"], "rules of the inner one do not catch it"
    assert handle.status() == (JobState.DEAD if first == "outer" else JobState.DONE)


@needs_cpython
@pytest.mark.parametrize("order", [("outer", "inner"), ("inner", "outer")])
def test_when_both_times_are_up_before_python_runs_again_it_is_the_outer_one_that_counts(
    app: App, monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    acted = threading.Semaphore(0)
    real = timeouts.Watchdog._act

    def act(self: timeouts.Watchdog, watch: timeouts.Watch, now: float) -> None:
        real(self, watch, now)
        acted.release()

    monkeypatch.setattr(timeouts.Watchdog, "_act", act)
    begun, blocked = threading.Lock(), threading.Lock()
    begun.acquire()
    blocked.acquire()

    def let_both_times_be_up() -> None:
        assert begun.acquire(timeout=LONG_S)
        for name in order:
            time_is_up(name)
            assert acted.acquire(timeout=LONG_S)
        blocked.release()

    @app.job(name="inner", timeout=LONG_S)
    def inner() -> None:
        # One call in C: no Python runs here between the first and the end of the second.
        list(map(operator.call, [begun.release, partial(blocked.acquire, timeout=LONG_S)]))
        spin()

    @app.job(name="outer", timeout=LONG_S)
    def outer() -> None:
        inner.perform_now()

    ending = threading.Thread(target=let_both_times_be_up)
    ending.start()
    with pytest.raises(JobTimeoutError, match="outer ran longer"):
        outer.perform_now()
    ending.join(LONG_S)
    assert not ending.is_alive()
    assert not timeouts._watchdog._watches


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
