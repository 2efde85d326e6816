"""Jobs that run alone in their worker process."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, BaseJob, JobState, RetryLater
from nobroker.app.alone import Gate
from nobroker.app.serving import Service

PATIENCE_S = 30.0


class Watched:
    """What runs at a time, as the jobs themselves saw it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: set[str] = set()
        self.log: list[tuple[str, frozenset[str]]] = []

    def begin(self, name: str) -> None:
        with self.lock:
            self.now.add(name)
            self.log.append((name, frozenset(self.now)))

    def end(self, name: str) -> None:
        with self.lock:
            self.now.remove(name)

    def beside(self) -> dict[str, set[str]]:
        """Who ran beside whom."""
        found: dict[str, set[str]] = {}
        for name, now in self.log:
            for one in now:
                found.setdefault(one, set()).update(now - {one})
            found.setdefault(name, set())
        return found


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def app(tmp_path: Path) -> Any:
    app = App(tmp_path / "jobs", fsync=False)
    yield app
    assert app.queue.check() == []
    app.close()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", ["threads", "async", "both"])
def test_it_runs_alone_in_its_process(app: App, watched: Watched, kind: str, batch: int) -> None:
    """Twenty jobs in six threads, each fifth of them alone."""

    def run(name: str) -> None:
        watched.begin(name)
        time.sleep(0.004)
        watched.end(name)

    async def run_async(name: str) -> None:
        watched.begin(name)
        await asyncio.sleep(0.004)
        watched.end(name)

    plain = app.job(name="plain")(run_async if kind == "async" else run)
    alone = app.job(name="alone", exclusive=True)(run if kind == "threads" else run_async)
    for number in range(20):
        job, name = (alone, "alone") if number % 5 == 2 else (plain, "plain")
        job.perform_later(f"{name} {number}")
    stats = app.run(threads=6, batch=batch, once=True, handle_signals=False)
    assert stats.succeeded == 20
    beside = watched.beside()
    assert len(beside) == 20
    assert {name: others for name, others in beside.items() if name.startswith("alone") and others} == {}
    assert any(others for others in beside.values()), "the others ran beside each other"


def test_of_a_class(app: App, watched: Watched) -> None:
    @app.register
    class Alone(BaseJob):
        exclusive = True

        def perform(self, number: int) -> None:
            watched.begin(str(number))
            time.sleep(0.002)
            watched.end(str(number))

    app.perform_all_later([Alone.build(number) for number in range(6)])
    app.run(threads=3, once=True, handle_signals=False)
    assert all(not others for others in watched.beside().values())
    assert len(watched.log) == 6


class Stuck:
    """A worker with one job that runs until it is told to end, and one behind it that waits at the gate."""

    def __init__(self, app: App, *, first_alone: bool, second_alone: bool) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self.second_ran = threading.Event()

        @app.job(name="first", exclusive=first_alone)
        def first() -> str:
            self.began.set()
            assert self.go_on.wait(PATIENCE_S)
            return "first"

        @app.job(name="second", exclusive=second_alone)
        def second() -> str:
            self.second_ran.set()
            return "second"

        self.first = first.perform_later()
        self.second = second.perform_later()
        self.service = Service(app, threads=2, handle_signals=False, poll_interval=0.01)
        self.thread = threading.Thread(target=self.service.run)

    def __enter__(self) -> Stuck:
        self.thread.start()
        assert self.began.wait(PATIENCE_S)
        until(lambda: self.second.status() != JobState.READY)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.service.stop()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


def until(fact: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize(("first_alone", "second_alone"), [(True, False), (False, True), (True, True)])
def test_who_waits_keeps_its_lease_and_runs_then(
    tmp_path: Path, first_alone: bool, second_alone: bool
) -> None:
    app = App(tmp_path, fsync=False, visibility_timeout=1.5)
    with Stuck(app, first_alone=first_alone, second_alone=second_alone) as stuck:
        deadline = stuck.second.job().lease_deadline or 0.0
        until(lambda: (stuck.second.job().lease_deadline or 0.0) > deadline)
        assert not stuck.second_ran.is_set()
        assert stuck.second.job().attempts == 1
        stuck.go_on.set()
        assert stuck.second_ran.wait(PATIENCE_S)
        assert stuck.second.result(PATIENCE_S) == "second"
    assert stuck.second.job().attempts == 1
    assert app.queue.check() == []
    app.close()


def test_two_that_are_not_alone_do_not_wait(app: App) -> None:
    with Stuck(app, first_alone=False, second_alone=False) as stuck:
        assert stuck.second_ran.wait(PATIENCE_S)
        assert stuck.first.status() == JobState.LEASED


def test_on_a_stop_those_that_wait_are_given_back_without_an_attempt(app: App) -> None:
    with Stuck(app, first_alone=True, second_alone=False) as stuck:
        stuck.service.stop()
        until(lambda: stuck.second.status() == JobState.READY)
        found = stuck.second.job()
        assert (found.attempts, found.last_error) == (0, None)
        assert not stuck.second_ran.is_set()
        assert stuck.first.status() == JobState.LEASED
        stuck.go_on.set()
    assert stuck.first.result() == "first"
    app.run(once=True, handle_signals=False)
    assert stuck.second.result() == "second"


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_fails_lets_the_next_one_in(app: App, is_async: bool) -> None:
    ran: list[str] = []

    def fail(name: str) -> None:
        ran.append(name)
        raise ValueError(name)

    async def fail_async(name: str) -> None:
        fail(name)

    job = app.job(name="job", exclusive=True, max_attempts=1)(fail_async if is_async else fail)
    for number in range(4):
        job.perform_later(str(number))
    assert app.run(threads=2, once=True, handle_signals=False).dead == 4
    assert sorted(ran) == ["0", "1", "2", "3"]


def test_what_is_called_inside_is_a_part_of_it(app: App) -> None:
    inner = app.job(name="inner", exclusive=True)(lambda: "inner")

    @app.job(exclusive=True)
    def outer() -> str:
        return f"outer and {inner.perform_now()}"

    handle = outer.perform_later()
    app.run(once=True, handle_signals=False)
    assert handle.result() == "outer and inner"


# -- the gate


class Crowd:
    """Runs that wait at a gate, each until it is told to end."""

    def __init__(self) -> None:
        self.stopping = False
        self.gate = Gate(lambda: self.stopping)
        self.inside: set[str] = set()
        self.left: list[str] = []
        self._ends: dict[str, threading.Event] = {}
        self._threads: dict[str, threading.Thread] = {}

    def come(self, name: str, *, alone: bool = False) -> None:
        self._ends[name] = threading.Event()

        def run() -> None:
            self.inside.add(name)
            assert self._ends[name].wait(PATIENCE_S)
            self.inside.remove(name)

        def main() -> None:
            try:
                self.gate.passed(alone, run)
            except RetryLater as verdict:
                self.left.append(f"{name} for {verdict.delay:g} s")

        before = len(self.gate._line)
        thread = self._threads[name] = threading.Thread(target=main)
        thread.start()
        until(lambda: name in self.inside or len(self.gate._line) > before)

    def end(self, name: str) -> None:
        self._ends[name].set()
        self._threads[name].join(PATIENCE_S)
        assert not self._threads[name].is_alive()

    def settles(self, *names: str) -> None:
        """These come to be inside, and nobody else."""
        until(lambda: self.inside == set(names))
        line = len(self.gate._line)
        until(lambda: len(self.gate._line) == line)
        assert self.inside == set(names)


def test_they_begin_in_the_order_in_which_they_come() -> None:
    crowd = Crowd()
    crowd.come("a")
    crowd.come("b")
    crowd.settles("a", "b")
    crowd.come("alone 1", alone=True)
    crowd.come("c")
    crowd.come("d")
    crowd.come("alone 2", alone=True)
    crowd.come("e")
    crowd.settles("a", "b")
    crowd.end("a")
    crowd.settles("b")
    crowd.end("b")
    crowd.settles("alone 1")
    crowd.end("alone 1")
    crowd.settles("c", "d")
    crowd.end("d")
    crowd.end("c")
    crowd.settles("alone 2")
    crowd.end("alone 2")
    crowd.settles("e")
    crowd.end("e")
    crowd.settles()


def test_who_is_given_back_lets_others_pass() -> None:
    crowd = Crowd()
    crowd.come("a")
    crowd.come("alone", alone=True)
    crowd.come("b")
    crowd.stopping = True
    until(lambda: sorted(crowd.left) == ["alone for 0 s", "b for 0 s"])
    crowd.stopping = False
    crowd.come("c")
    crowd.settles("a", "c")
    crowd.end("a")
    crowd.end("c")


def test_a_coroutine_leaves_when_it_has_ended() -> None:
    crowd = Crowd()

    async def run() -> str:
        crowd.come("b")
        assert crowd.inside == set()
        return "ran"

    found = crowd.gate.passed(True, run)
    assert asyncio.run(found) == "ran"
    crowd.settles("b")
    crowd.end("b")
