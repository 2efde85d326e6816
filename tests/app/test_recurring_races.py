"""Several schedulers at once, and schedulers that are killed: each tick is enqueued exactly once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, JobNotFoundError, Queue
from nobroker.app.scheduler import Scheduler
from nobroker.app.ticks import Board, pause
from nobroker.clock import ManualClock
from tests.app.dying import Death, DyingQueue

START = 1_800_000_000


def begin(directory: Path, clock: ManualClock, **options: Any) -> tuple[App, Scheduler]:
    app = App(directory, fsync=False, clock=clock, **options)

    @app.job(name="job")
    def job() -> None: ...

    app.recurring("every minute", job, name="a", missed="all")
    app.recurring("every 3 minutes", job, name="b", missed="all")
    return app, Scheduler(app)


def enqueued(queue: Queue) -> dict[str, list[int]]:
    """Minutes after the start of all ticks of each task, in the order of their jobs."""
    found: dict[str, list[int]] = {"a": [], "b": []}
    for job in sorted(queue.list_jobs("ready", lane="default"), key=lambda job: job.seq):
        found[job.metadata["recurring"]].append(round(job.metadata["tick"].timestamp() - START) // 60)
    return found


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_of_its_writes(tmp_path: Path, after: bool) -> None:
    clock = ManualClock(START)
    app, _ = begin(tmp_path, clock)
    for writes in range(14):
        _, scheduler = begin(tmp_path, clock)
        scheduler._queue = DyingQueue(app.queue, writes, after=after)  # type: ignore[assignment]
        try:
            for _ in range(3):
                scheduler.look()
                clock.advance(60)
        except Death:
            clock.advance(20)
        scheduler._app.close()
    _, last = begin(tmp_path, clock)
    last.look()
    last.look()
    minutes = round(clock.wall_us() / 1e6 - START) // 60
    found = enqueued(app.queue)
    assert found["a"] == list(range(found["a"][0], minutes + 1))
    assert found["b"] == list(range(found["b"][0], minutes + 1, 3))
    assert found["a"][0] in (1, 2)
    assert found["b"][0] in (3, 6)
    assert len(Board(app.queue).stale) == 0
    assert app.queue.stats(lane="nobroker.recurring").delayed <= 4  # two places of each task
    assert app.queue.check() == []
    last._app.close()
    app.close()


class Overtaken:
    """A queue whose first write comes after something else."""

    def __init__(self, queue: Queue, before: Callable[[], None]) -> None:
        self._queue = queue
        self._before: Callable[[], None] | None = before

    def __getattr__(self, name: str) -> Any:
        if name == "enqueue_all" and self._before is not None:
            before, self._before = self._before, None
            before()
        return getattr(self._queue, name)


def test_one_that_looked_long_ago_writes_nothing(tmp_path: Path) -> None:
    clock = ManualClock(START)
    (app, first), (other, second) = begin(tmp_path, clock), begin(tmp_path, clock)
    first.look()

    def work_of_the_other() -> None:
        for _ in range(4):
            second.look()
            clock.advance(60)
        second.look()

    first._queue = Overtaken(app.queue, work_of_the_other)  # type: ignore[assignment]
    clock.advance(60)
    first.look()
    assert enqueued(app.queue) == {"a": [1, 2, 3, 4, 5], "b": [3]}
    assert app.queue.check() == []
    app.close()
    other.close()


def test_nothing_is_enqueued_after_a_pause(tmp_path: Path) -> None:
    """Also by one that had looked before."""
    clock = ManualClock(START)
    app, scheduler = begin(tmp_path, clock)
    scheduler.look()
    clock.advance(60)
    scheduler._queue = Overtaken(app.queue, lambda: app.pause_recurring("a"))  # type: ignore[assignment]
    scheduler.look()
    clock.advance(120)
    scheduler.look()
    assert enqueued(app.queue) == {"a": [], "b": [3]}
    app.resume_recurring("a")
    clock.advance(60)
    scheduler.look()
    assert enqueued(app.queue) == {"a": [4], "b": [3]}
    assert app.queue.check() == []
    app.close()


def test_a_pause_that_is_overtaken_comes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(START)
    app, scheduler = begin(tmp_path, clock)
    scheduler.look()
    clock.advance(60)
    overtaken = Overtaken(app.queue, lambda: scheduler.look())
    pause(overtaken, "a", clock.wall_us() / 1e6)  # type: ignore[arg-type]
    assert app.paused_recurring_tasks() == ["a"]
    clock.advance(60)
    scheduler.look()
    assert enqueued(app.queue) == {"a": [1], "b": []}
    app.close()


def test_places_that_were_taken_away_by_hand(tmp_path: Path) -> None:
    """Their ids stay known, and nobody stands there."""
    clock = ManualClock(START)
    app, scheduler = begin(tmp_path, clock)
    for _ in range(3):
        scheduler.look()
        clock.advance(60)
    for job in app.queue.list_jobs("ready", lane="nobroker.recurring"):
        app.queue.cancel(job.id)
    _, other = begin(tmp_path, clock)
    for one in (scheduler, other, scheduler, other):
        one.look()
        clock.advance(60)
    one.look()
    assert enqueued(app.queue) == {"a": [1, 2, 4, 5, 6, 7], "b": [6]}
    assert app.queue.check() == []
    other._app.close()
    app.close()


def test_the_place_alone_holds_off_what_was_done_and_forgotten(tmp_path: Path) -> None:
    clock = ManualClock(START)
    (app, first), (other, second) = (begin(tmp_path, clock, keep_done=0) for _ in range(2))
    first.look()
    done: list[str] = []

    def work_off() -> None:
        while jobs := other.queue.lease(10, lanes=["default"]):
            done.extend(job.id for job in jobs)
            other.queue.ack_many(jobs)

    def work_of_the_other() -> None:
        second.look()
        work_off()
        clock.advance(0.01)
        other.queue.compact()
        with pytest.raises(JobNotFoundError):  # so its id would hold nothing off
            other.queue.get(done[0])

    for minute in range(1, 7):
        clock.advance(60)
        first._queue = Overtaken(app.queue, work_of_the_other)  # type: ignore[assignment]
        first.look()
        work_off()
        assert len(done) == len(set(done)) == minute + minute // 3
    assert app.queue.check() == []
    app.close()
    other.close()


def test_threads_that_look_at_once(tmp_path: Path) -> None:
    clock = ManualClock(START)
    running = [begin(tmp_path, clock) for _ in range(3)]
    gate = threading.Barrier(4)

    def look(scheduler: Scheduler) -> None:
        for _ in range(20):
            gate.wait(30)
            scheduler.look()

    threads = [threading.Thread(target=look, args=(scheduler,)) for _, scheduler in running]
    for thread in threads:
        thread.start()
    for _ in range(20):
        gate.wait(30)
        clock.advance(30)
    for thread in threads:
        thread.join(30)
    running[0][1].look()
    found = enqueued(running[0][0].queue)
    assert found["a"] == list(range(1, 11))
    assert found["b"] == [3, 6, 9]
    assert running[0][0].queue.check() == []
    for app, _ in running:
        app.close()


CHILD = """
import itertools, sys
from nobroker import App
from nobroker.app.scheduler import Scheduler

start, minutes, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
app = App(path, fsync=False)

@app.job(name="job")
def job(): ...

app.recurring("every minute", job, name="a", missed="all")
app.recurring("every 3 minutes", job, name="b", missed="all")
scheduler = Scheduler(app)
moment = start
app._now = lambda: moment
for moment in range(start, start + 60 * minutes + 1, 20):
    scheduler.look()
    print(moment, flush=True)
"""


@pytest.mark.processes
def test_processes_that_are_killed(tmp_path: Path) -> None:
    script, directory = tmp_path / "child.py", tmp_path / "jobs"
    script.write_text(CHILD)
    rng = random.Random(5)

    def run(start: int, minutes: int, path: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(start), str(minutes), path]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    reached = START
    with run(START, 0, str(directory)) as first:
        first.communicate(timeout=60)
    for _ in range(2):
        pair = [run(reached, 60, str(directory)) for _ in range(2)]
        for child in pair:
            assert child.stdout is not None
            for _ in range(rng.randrange(5, 40)):
                reached = max(reached, int(child.stdout.readline()))
            child.kill()
        for child in pair:
            with child:
                rest = child.stdout.read().split() if child.stdout is not None else []
            reached = max([reached, *map(int, rest)])
    with run(reached, 2, str(directory)) as last:
        last.communicate(timeout=60)
    assert last.returncode == 0
    minutes = (reached - START) // 60 + 2
    with Queue(directory, fsync=False) as queue:
        found = enqueued(queue)
        assert found["a"] == list(range(1, len(found["a"]) + 1))
        assert len(found["a"]) >= minutes
        assert found["b"] == list(range(3, found["a"][-1] + 1, 3))
        assert queue.check() == []
