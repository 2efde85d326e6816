"""Recurring tasks: what is enqueued when, what becomes of what was missed, pauses, and what can be asked."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, BaseJob, Queue, RecurringError, current_job
from nobroker.app import scheduler as scheduling
from nobroker.app import ticks as ticks_of
from nobroker.app.scheduler import Scheduler
from nobroker.app.serving import Service
from nobroker.clock import ManualClock
from tests.app.working import work

START = 1_800_000_000  # 2027-01-15 08:00 UTC


def ticks(app: App, task: str = "task") -> list[int]:
    """Minutes after the start of the ticks that were enqueued, in their order."""
    jobs = sorted(app.queue.list_jobs("ready", lane="default"), key=lambda job: job.seq)
    mine = [job.metadata["tick"] for job in jobs if job.metadata["recurring"] == task]
    return [round((tick.timestamp() - START) / 60) for tick in mine]


def define(app: App, schedule: str = "*/10 * * * *", **said: Any) -> Any:
    return app.recurring(schedule, define_job(app, "job"), name="task", **said)


def define_job(app: App, name: str) -> Any:
    @app.job(name=name)
    def job(*args: Any, **kwargs: Any) -> Any:
        return [*args, kwargs, current_job().metadata]

    return job


def test_each_tick_once_and_with_its_arguments(app: App, clock: ManualClock) -> None:
    define(app, args=[7], kwargs={"day": "x"}, queue="reports", priority=3)
    scheduler = Scheduler(app)
    assert scheduler.look() == START + 600  # what was before nobody has missed
    clock.advance(599)
    assert scheduler.look() == START + 600
    assert app.queue.stats(lane="reports").total == 0
    clock.advance(1)
    assert scheduler.look() == START + 1200
    assert scheduler.look() == START + 1200
    (job,) = app.queue.list_jobs("ready", lane="reports")
    assert (job.id, job.priority) == ("task@2027-01-15T08:10:00Z", 3)
    work(app)
    moment = datetime(2027, 1, 15, 8, 10, tzinfo=UTC)
    assert app.handle(job.id).result() == [7, {"day": "x"}, {"recurring": "task", "tick": moment}]


def test_a_worker_enqueues_what_is_due(app: App, clock: ManualClock) -> None:
    ran: list[str] = []

    @app.recurring("every 10 minutes")
    @app.register
    class Report(BaseJob):
        job_name = "Report"

        def perform(self) -> None:
            ran.append(self.id or "")

    work(app)
    clock.advance(700)
    work(app, scheduler=False)
    assert ran == []
    work(app)
    work(app)
    assert ran == ["Report@2027-01-15T08:10:00Z"]


def test_the_thread_beside_a_worker_wakes_at_the_tick(app: App, clock: ManualClock) -> None:
    service, rang = Service(app, handle_signals=False, poll_interval=0.01), threading.Event()

    @app.recurring("every 10 minutes")
    @app.job
    def ring() -> None:
        rang.set()
        service.stop()

    Scheduler(app).look()
    clock.advance(599.9)
    thread = threading.Thread(target=service.run)
    thread.start()
    clock.advance(0.1)
    thread.join(30)
    assert rang.is_set()
    assert "nobroker-scheduler" not in {one.name for one in threading.enumerate()}


@pytest.mark.parametrize(
    "missed, grace, away, expected",
    [
        ("once", 60, 3630, [60]),  # the newest is 30 s late: on time; it stands for all
        ("once", 60, 3700, [60]),
        ("once", 1300, 3600, [40, 50, 60]),  # on time are three
        ("skip", 60, 3630, [60]),
        ("skip", 60, 3700, []),
        ("skip", 1300, 3701, [50, 60]),
        ("all", 60, 3700, [10, 20, 30, 40, 50, 60]),
        ("once", 60, 300, []),
    ],
)
def test_after_a_downtime(
    app: App, clock: ManualClock, missed: str, grace: float, away: float, expected: list[int]
) -> None:
    define(app, missed=missed, grace=grace)
    Scheduler(app).look()
    clock.advance(away)
    Scheduler(app).look()
    Scheduler(app).look()
    assert ticks(app) == expected
    clock.advance(600 - away % 600)
    Scheduler(app).look()
    assert ticks(app) == [*expected, away // 600 * 10 + 10]


def test_a_long_downtime_is_made_up_for_in_pieces(app: App, clock: ManualClock) -> None:
    define(app, "every minute", missed="all")
    Scheduler(app).look()
    clock.advance(333 * 60)
    Scheduler(app).look()
    assert ticks(app) == list(range(1, 334))


@pytest.mark.parametrize("back", [30, 3600, 3 * 86400])
def test_a_clock_that_is_set_back_fires_nothing_twice(tmp_path: Path, clock: ManualClock, back: int) -> None:
    app = App(tmp_path, fsync=False, clock=clock, keep_done=0)
    define(app, missed="all")
    scheduler = Scheduler(app)
    scheduler.look()
    seen: list[str] = []
    for step in range(12):
        clock.advance(600)
        if step == 6:
            clock.step_wall(-back)
        for one in (scheduler, Scheduler(app)):
            one.look()
        while jobs := app.queue.lease(5, lanes=["default"]):
            seen += [job.id for job in jobs]
            app.queue.ack_many(jobs)
        app.queue.compact()  # and forgotten: an id alone would hold nothing off
    assert len(seen) == len(set(seen))
    assert seen[:6] == [f"task@2027-01-15T{8 + n // 6:02}:{n % 6}0:00Z" for n in range(1, 7)]
    app.close()


def test_a_clock_that_is_set_forward_fires_what_it_passed(app: App, clock: ManualClock) -> None:
    define(app, missed="all")
    scheduler = Scheduler(app)
    scheduler.look()
    clock.step_wall(1800)
    scheduler.look()
    assert ticks(app) == [10, 20, 30]


def test_one_that_rests_sees_that_the_clock_was_set(
    app: App, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    resting, enqueued = threading.Event(), threading.Event()
    rest, move = Scheduler._rest_until, ticks_of.move

    def rest_until(self: Scheduler, due_at: float | None) -> None:
        resting.set()
        rest(self, due_at)

    def moved(queue: Queue, place: ticks_of.Place, due: Any = ()) -> Any:
        jobs = move(queue, place, due)
        if jobs:
            enqueued.set()
        return jobs

    monkeypatch.setattr(scheduling, "EVERY_S", 0.02)
    monkeypatch.setattr(Scheduler, "_rest_until", rest_until)
    monkeypatch.setattr(ticks_of, "move", moved)
    define(app)
    with Scheduler(app).beside():
        assert resting.wait(20)
        clock.step_wall(600)
        assert enqueued.wait(20), "it sleeps until the moment that it saw first"
    assert ticks(app) == [10]


def test_a_clock_that_once_stood_far_ahead_is_told(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    define(app)
    clock.step_wall(400 * 86400)
    Scheduler(app).look()
    clock.step_wall(-400 * 86400)
    with caplog.at_level(logging.WARNING):
        Scheduler(app).look()
    assert "event=recurring.ahead task=task until=2028-02-19" in caplog.text


def test_a_changed_schedule_has_missed_nothing(tmp_path: Path, clock: ManualClock) -> None:
    for schedule, expected in (("*/10 * * * *", []), ("*/5 * * * *", []), ("*/5 * * * *", [150])):
        app = App(tmp_path, fsync=False, clock=clock)
        define(app, schedule)
        Scheduler(app).look()
        assert ticks(app) == expected
        app.close()
        clock.advance(75 * 60)


def test_a_task_that_is_gone_stops(tmp_path: Path, clock: ManualClock) -> None:
    app = App(tmp_path, fsync=False, clock=clock)
    define(app)
    Scheduler(app).look()
    app.close()
    app = App(tmp_path, fsync=False, clock=clock)
    clock.advance(3600)
    assert Scheduler(app).look() is None
    assert app.queue.stats(lane="default").total == 0
    app.close()


def test_pauses_hold_in_all_processes_and_are_not_made_up_for(tmp_path: Path, clock: ManualClock) -> None:
    here, there = (App(tmp_path, fsync=False, clock=clock) for _ in range(2))
    for app in (here, there):
        define(app, missed="all")
        app.recurring("*/10 * * * *", define_job(app, "second"), name="other")
    scheduler = Scheduler(there)
    scheduler.look()
    here.pause_recurring("task")
    here.pause_recurring("task")
    assert there.paused_recurring_tasks() == ["task"]
    task = {one.name: one for one in there.recurring_tasks()}["task"]
    assert (task.paused, task.next_run) == (True, None)
    clock.advance(1800)
    assert scheduler.look() == START + 2400
    assert (ticks(here), ticks(here, "other")) == ([], [30])
    here.close()
    there.resume_recurring("task")
    there.resume_recurring("task")
    assert there.paused_recurring_tasks() == []
    scheduler.look()
    assert ticks(there) == []
    clock.advance(600)
    scheduler.look()
    assert ticks(there) == [40]
    there.close()


def test_next_and_last_runs(app: App, clock: ManualClock) -> None:
    define(app, "*/10 * * * *", timezone="Asia/Kolkata", queue="reports", grace="2m")
    scheduler = Scheduler(app)
    scheduler.look()
    (task,) = app.recurring_tasks()
    assert (task.name, task.job, task.schedule, task.timezone) == (
        "task",
        "job",
        "*/10 * * * *",
        "Asia/Kolkata",
    )
    assert (task.queue, task.missed, task.grace, task.paused) == ("reports", "once", 120, False)
    start = datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert (task.next_run, task.last_run, task.last_job) == (start + timedelta(minutes=10), None, None)
    clock.advance(650)
    scheduler.look()
    (task,) = app.recurring_tasks()
    assert task.last_run == start + timedelta(minutes=10)
    assert task.next_run == start + timedelta(minutes=20)
    assert app.handle(task.last_job or "").status() == "ready"
    upcoming = task.upcoming(start)
    assert [next(upcoming) - start for _ in range(2)] == [timedelta(minutes=10), timedelta(minutes=20)]
    app.pause_recurring("task")
    clock.advance(3600)
    scheduler.look()
    app.resume_recurring("task")
    assert app.recurring_tasks()[0].last_run == start + timedelta(minutes=10)


def test_run_now(app: App, clock: ManualClock) -> None:
    define(app, args=[1])
    app.pause_recurring("task")
    first, second = app.run_recurring_now("task"), app.run_recurring_now("task")
    assert first.id != second.id
    work(app)
    assert first.result() == [1, {}, None]
    assert app.recurring_tasks()[0].last_run is None


def test_unknown_tasks_are_refused_with_the_nearest(app: App) -> None:
    define(app)
    for verb in (app.pause_recurring, app.resume_recurring, app.run_recurring_now):
        with pytest.raises(RecurringError, match="did you mean task"):
            verb("tusk")
    assert app.paused_recurring_tasks() == []


@pytest.mark.parametrize(
    "said, key, why",
    [
        ({"timezone": "Europe/Berln"}, "timezone", "Europe/Berlin"),
        ({"missed": "never"}, "missed", "once, skip, all"),
        ({"grace": "5 parsecs"}, "grace", "'5m'"),
        ({"grace": 0}, "grace", "at least 1"),
        ({"queue": "a,b"}, "queue", "queue must"),
        ({"priority": "high"}, "priority", "priority must"),
        ({"args": [1, 2]}, "args", "positional"),
        ({"args": [object()]}, "args", "argument 0"),
        ({"kwargs": {"y": 2}}, "args", "unexpected"),
    ],
)
def test_refused_where_it_is_said(app: App, said: dict[str, Any], key: str, why: str) -> None:
    @app.job(name="one")
    def one(x: Any = None) -> None: ...

    with pytest.raises(RecurringError) as caught:
        app.recurring("@daily", one, name="mine", **said)
    assert (caught.value.task, caught.value.key) == ("mine", key)
    assert why in str(caught.value)
    assert app.recurring_tasks() == []


def test_what_is_no_job_or_not_its_own(app: App, tmp_path: Path) -> None:
    other = App(tmp_path / "other", fsync=False)

    @other.job
    def theirs() -> None: ...

    with pytest.raises(TypeError, match="another application"):
        app.recurring("@daily", theirs)
    with pytest.raises(TypeError, match="stands above"):
        app.recurring("@daily")(lambda: None)
    with pytest.raises(TypeError, match="did you mean timezone"):
        app.recurring("@daily", theirs, timezon="UTC")
    define(app)
    with pytest.raises(RecurringError, match="another one with name="):
        define(app, "@daily")
    define(app)  # the same once more: the module was loaded again
    assert len(app.recurring_tasks()) == 1
    with pytest.raises(ValueError, match=r"nobroker\.recurring"):
        app.job(queue="nobroker.recurring")(lambda: None)


def test_one_that_fails_stops_no_other(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"on": True}

    @app.job(name="bad", queue=lambda: "fine" if good["on"] else 1 / 0)
    def bad() -> None: ...

    app.recurring("*/10 * * * *", bad, name="a")
    define(app)
    scheduler = Scheduler(app)
    scheduler.look()
    good["on"] = False
    clock.advance(600)
    assert scheduler.look() == START + 610
    assert ticks(app) == [10]
    assert "event=recurring.failed task=a" in caplog.text
    good["on"] = True
    clock.advance(10)
    assert scheduler.look() == START + 1200
    assert app.queue.stats(lane="fine").ready == 1
