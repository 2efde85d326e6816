"""Limits, and what jobs have to do with each other: batches, chains, recurring tasks, tests."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from nobroker import App, JobState, LimitError, RecurringTask, after, chain, current_job
from nobroker.app.scheduler import Scheduler
from nobroker.clock import ManualClock
from tests.app.working import work

log: list[Any] = []
ONCE: dict[str, Any] = {"concurrency_limit": 1, "concurrency_on_conflict": "discard"}


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    log.clear()


def keyed(app: App, name: str = "job", **options: Any) -> Any:
    """A job whose key is its argument; not more than one of each at a time."""

    @app.job(name=name, **{**ONCE, "concurrency_key": lambda key: key, **options})
    def job(key: str) -> str:
        log.append(key)
        return key

    return job


def telling(app: App, **options: Any) -> Any:
    @app.job(name="tell", **options)
    def tell() -> None:
        batch = current_job().batch
        assert batch is not None
        log.append((batch.status, *batch.counts()))

    return tell


# -- batches


def test_members_that_are_discarded_do_not_count(app: App) -> None:
    job = keyed(app)
    tell = telling(app)
    with app.batch(on_finish=tell.build()) as batch:
        handles = [job.perform_later(key) for key in "aabbac"]
    others = [job.perform_later(key) for key in "dd"]
    assert [handle.created for handle in handles] == [True, False, True, False, False, True]
    assert all("a limit" in str(handle.discarded) for handle in handles if not handle.created)
    assert [handle.created for handle in others] == [True, False]
    assert batch.counts() == (3, 0, 0)
    work(app)
    assert batch.status == "succeeded"
    assert log == ["a", "b", "c", "d", ("succeeded", 3, 3, 0)]


def test_a_batch_whose_members_are_all_discarded_is_over(app: App) -> None:
    job = keyed(app)
    first = job.perform_later("a")
    with app.batch(on_success=telling(app).build()) as batch:
        handles = [job.perform_later("a"), *app.perform_all_later([job.build("a")] * 3)]
    assert not any(handle.created for handle in handles)
    assert batch.status == "succeeded"
    assert batch.total == 0
    work(app)
    assert log == ["a", ("succeeded", 0, 0, 0)]
    assert first.result() == "a"


def test_members_that_join(app: App) -> None:
    job, tell = keyed(app), telling(app)
    with app.batch(on_success=tell.build()) as batch:
        job.perform_later("a")
    with batch.add():
        handles = [job.perform_later(key) for key in "aab"]
    assert [handle.created for handle in handles] == [False, False, True]
    with batch.add():
        none = job.perform_later("b")
    assert not none.created
    assert batch.total == 2
    work(app)
    assert log == ["a", "b", ("succeeded", 2, 2, 0)]


def test_members_with_ids_that_are_known_and_members_that_are_discarded(app: App) -> None:
    job = keyed(app)
    job.set(job_id="known").perform_later("x")
    with app.batch() as batch:
        handles = [job.set(job_id=job_id).perform_later(key) for job_id, key in
                   [("known", "b"), ("new", "a"), ("twice", "a"), ("new", "c"), ("last", "d")]]  # fmt: skip
    assert [handle.created for handle in handles] == [False, True, False, False, True]
    assert [handle.discarded is not None for handle in handles[2:3]] == [True]
    assert handles[0].id == "known"
    assert batch.total == 2
    work(app)
    assert batch.counts() == (2, 2, 0)


def test_hooks_are_told_of_those_that_are_there(app: App) -> None:
    job = keyed(app)
    job.after_enqueue(lambda context: log.append(context.id))
    with app.batch():
        handles = [job.perform_later("a"), job.perform_later("a")]
    assert log == [handles[0].id]


def test_callbacks_wait_where_others_are_discarded(app: App) -> None:
    tell = telling(app, **ONCE, rate_limit_max=5, rate_limit_duration=60, rate_limit_on_throttle="discard")
    with app.batch(on_success=tell.build(), on_finish=tell.build()):
        keyed(app).perform_later("a")
    work(app)
    assert log == ["a", ("succeeded", 1, 1, 0), ("succeeded", 1, 1, 0)]


def test_members_that_wait_for_each_other(app: App, clock: ManualClock) -> None:
    job = keyed(app, concurrency_on_conflict="wait", rate_limit_max=2, rate_limit_duration=60)
    with app.batch(on_success=telling(app).build()) as batch:
        for _ in range(5):
            job.perform_later("a")
    for _ in range(2):
        work(app)
        assert batch.status == "running"
        clock.advance(60)
    work(app)
    assert log == ["a"] * 5 + [("succeeded", 5, 5, 0)]


# -- chains


def test_a_chain_is_enqueued_whole_or_not_at_all(app: App) -> None:
    job = keyed(app)
    plain = keyed(app, "plain", concurrency_limit=9)
    before = job.perform_later("a")
    handles = chain(plain.build("1"), job.build("a"), plain.build("2"))
    assert [handle.created for handle in handles] == [False] * 3
    assert all("a limit" in str(handle.discarded) for handle in handles)
    work(app)
    assert (log, before.result()) == (["a"], "a")
    handles = chain(plain.build("1"), job.build("a"), plain.build("2"))
    for _ in range(3):
        work(app)
    assert log == ["a", "1", "a", "2"]
    assert app.queue.stats().total == 5, "of the first one nothing was left"


def test_a_chain_in_a_batch(app: App) -> None:
    job, plain = keyed(app), keyed(app, "plain", concurrency_limit=9)
    job.perform_later("a")
    with app.batch(on_finish=telling(app).build()) as batch:
        out = chain(plain.build("1"), job.build("a"), plain.build("2"))
        into = chain(plain.build("3"), job.build("b"))
        single = plain.perform_later("4")
    assert [handle.created for handle in (*out, *into, single)] == [False] * 3 + [True] * 3
    assert batch.total == 3
    for _ in range(3):
        work(app)
    assert sorted(log[:-1]) == ["3", "4", "a", "b"]
    assert log[-1] == ("succeeded", 3, 3, 0)


def test_a_job_that_is_held_until_another_is_done(app: App) -> None:
    job = keyed(app)
    first = job.perform_later("a")
    assert after(first, run=job.build("a")).discarded is not None
    held = after(first, run=job.build("b"))
    assert held.created
    assert not job.perform_later("b").created, "what is held counts as waiting"
    work(app)
    assert log == ["a", "b"]
    done = after(first, run=job.build("c"))
    assert after(first, run=job.build("c")).discarded is not None
    work(app)
    assert done.result() == "c"


def test_a_chain_whose_jobs_wait_for_a_limit(app: App) -> None:
    job = keyed(app, concurrency_on_conflict="wait")
    handles = chain(job.build("a"), job.build("a"), job.build("a"))
    work(app)
    assert log == ["a"] * 3
    assert [handle.status() for handle in handles] == [JobState.DONE] * 3


# -- recurring tasks


class Ticking:
    """Each minute a tick of one task, whose jobs have one key; nobody works them off by himself."""

    def __init__(self, app: App, clock: ManualClock, **options: Any) -> None:
        pytest.importorskip("cronsim")
        self.app, self.clock = app, clock
        self.start = clock.wall_us() / 1e6
        app.recurring("* * * * *", keyed(app, queue="slow", **options), name="task", args=["a"], missed="all")
        self.scheduler = Scheduler(app)
        self.scheduler.look()

    def pass_by(self, minutes: int) -> None:
        self.clock.advance(60 * minutes)
        self.scheduler.look()

    def minute(self, moment: datetime | None) -> float | None:
        return None if moment is None else (moment.timestamp() - self.start) / 60

    @property
    def task(self) -> RecurringTask:
        (task,) = self.app.recurring_tasks()
        return task

    @property
    def waiting(self) -> int:
        return self.app.queue.stats(lane="slow").ready


def test_ticks_that_are_discarded(app: App, clock: ManualClock) -> None:
    ticking = Ticking(app, clock)
    for minute in range(1, 5):
        ticking.pass_by(1)
        assert ticking.waiting == 1, "the others would have to wait for it"
        assert ticking.minute(ticking.task.next_run) == minute + 1
        assert ticking.minute(ticking.task.last_run) == 1, "the last that was enqueued"
    last = app.handle(ticking.task.last_job or "")
    assert last.status() == JobState.READY
    app.run(once=True, scheduler=False, handle_signals=False)
    assert last.result() == "a"
    ticking.pass_by(1)
    assert (ticking.waiting, ticking.minute(ticking.task.last_run)) == (1, 5)


def test_of_many_ticks_some_are_discarded(app: App, clock: ManualClock) -> None:
    ticking = Ticking(app, clock, concurrency_limit=3)
    ticking.pass_by(10)
    assert (ticking.waiting, ticking.minute(ticking.task.last_run)) == (3, 3)
    assert ticking.minute(ticking.task.next_run) == 11


def test_ticks_that_wait(app: App, clock: ManualClock) -> None:
    ticking = Ticking(app, clock, concurrency_on_conflict="wait")
    ticking.pass_by(5)
    assert (ticking.waiting, len(app.queue.lease(9))) == (5, 1)


def test_a_task_run_by_hand(app: App, clock: ManualClock) -> None:
    Ticking(app, clock)
    assert app.run_recurring_now("task").created
    assert app.run_recurring_now("task").discarded is not None


def test_a_key_that_raises_at_a_tick(app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    ticking = Ticking(app, clock, concurrency_key=lambda key: 1 / 0)
    ticking.pass_by(1)
    assert "event=recurring.failed task=task error=LimitError: concurrency_key of job raised" in caplog.text
    assert ticking.waiting == 0


# -- called and tested


def test_called_where_it_stands_no_limit_counts(app: App) -> None:
    job = keyed(app, exclusive="app", rate_limit_max=1, rate_limit_duration=60, fair_key=lambda key: 1 / 0)
    assert [job.perform_now("a"), job.perform_now("a")] == ["a", "a"]


def test_a_queue_of_tests_has_the_limits_of_queues(app: App) -> None:
    app.queue_limit("slow", 1)
    with app.testing() as testing:
        assert testing.queue.lane_limits == {"slow": 1}
        app.queue_limit("slow", 2)
        app.queue_limit("other", 3)
        assert testing.queue.lane_limits == {"slow": 2, "other": 3}
    assert app.queue.lane_limits == {"slow": 2, "other": 3}
    with app.testing():
        app.queue_limit("other", None)
    assert app.queue.lane_limits == {"slow": 2}, "also where it was open meanwhile"


def test_held_jobs_of_tests_have_their_limits(app: App) -> None:
    job = keyed(app)
    with app.testing() as testing:
        assert [job.perform_later("a").created for _ in range(2)] == [True, False]
        assert [one.args for one in testing.enqueued] == [("a",)]
        testing.drain()
        assert job.perform_later("a").created
        assert testing.queue.check() == []


def test_drain_moves_the_clock_for_rates_where_it_may(app: App) -> None:
    moments: list[float] = []

    @app.job(rate_limit_max=2, rate_limit_duration=60)
    def job() -> None:
        moments.append(round(app._now() - start, 3))

    with app.testing() as testing:
        start = app._now()
        for _ in range(5):
            job.perform_later()
        assert testing.drain().leased == 2
        assert len(testing.jobs) == 3
        assert testing.drain(advance=True).leased == 3
        assert moments == [0, 0, 60, 60, 120]


def test_inline_the_clock_is_moved_for_rates(app: App) -> None:
    moments: list[float] = []

    @app.job(rate_limit_max=1, rate_limit_duration=60)
    def job() -> None:
        moments.append(round(app._now() - start, 3))

    with app.testing(mode="inline") as testing:
        start = app._now()
        for _ in range(3):
            job.perform_later()
        assert moments == [0, 60, 120]
        with testing.hold():
            job.perform_later()
            job.perform_later()
        job.perform_later()
        assert len(moments) == 4
        assert len(testing.jobs) == 2, "those that were held are still"
        assert testing.queue.check() == []


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency_limit": 1, "concurrency_key": lambda depth: "k"},
        {"exclusive": "app"},
        {"queue": "slow"},
    ],
    ids=["key", "alone", "queue"],
)
def test_inline_a_job_that_the_one_around_it_holds_back_runs_behind_it(
    app: App, options: dict[str, Any]
) -> None:
    app.queue_limit("slow", 1)

    @app.job(name="job", **options)
    def job(depth: int) -> None:
        log.append(("begin", depth))
        if depth:
            job.perform_later(depth - 1)
            job.perform_later(0)
        log.append(("end", depth))

    with app.testing(mode="inline") as testing:
        job.perform_later(2)
        assert log == [(word, depth) for depth in (2, 1, 0, 0, 0) for word in ("begin", "end")]
        assert testing.jobs == []


def test_inline_what_stays_held_back_waits(app: App) -> None:
    job = keyed(app, concurrency_on_conflict="wait")
    with app.testing(mode="inline") as testing:
        with testing.hold():
            job.perform_later("a")
        held = testing.queue.lease_one()
        assert held is not None
        job.perform_later("a")
        assert log == []
        testing.queue.ack(held)
        keyed(app, "other").perform_later("b")
        assert log == ["b", "a"]


def test_in_tests_a_debounced_job_shows_its_newest_arguments(app: App) -> None:
    job = keyed(app, concurrency_limit=None, concurrency_key=None, concurrency_on_conflict=None)
    with app.testing() as testing:
        for key in "abc":
            job.set(job_id="x", debounce=5).perform_later(key)
        assert [one.args for one in testing.assert_enqueued(job, times=1)] == [("c",)]
        assert testing.drain().leased == 0
        testing.drain(advance=True)
    assert log == ["c"]
    with app.testing(mode="inline"):
        for key in "de":
            job.set(job_id="x", debounce=5).perform_later(key)
    assert log == ["c", "d", "e"]


def test_tests_of_jobs_with_a_key_that_raises(app: App) -> None:
    job = keyed(app, concurrency_key=lambda key: 1 / 0)
    with app.testing() as testing:
        with pytest.raises(LimitError):
            job.perform_later("a")
        testing.assert_nothing_enqueued()
