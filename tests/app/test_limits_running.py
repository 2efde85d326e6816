"""Jobs with limits at work: each sentence that is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nobroker import App, BaseJob, Job, JobState, Queue, RetryLater, current_job
from nobroker.clock import ManualClock
from tests.app.working import work

log: list[Any] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    log.clear()


def leased(app: App) -> list[Job]:
    """All that may be leased now."""
    return app.queue.lease(100)


def called(jobs: list[Job]) -> list[Any]:
    """The first argument of each."""
    return [job.payload["args"][0] for job in jobs]


# -- concurrency


def test_at_most_so_many_of_a_key_across_all_queues(app: App) -> None:
    @app.job(concurrency_limit=2, concurrency_key=lambda tenant, number: tenant)
    def job(tenant: str, number: int) -> None: ...

    @app.job(
        name="other", concurrency_limit=2, concurrency_group="job", concurrency_key=lambda tenant: tenant
    )
    def other(tenant: str) -> None: ...

    for number in range(3):
        job.set(queue=f"queue {number}").perform_later("a", number)
        job.perform_later("b", number)
    assert sorted(called(leased(app))) == ["a", "a", "b", "b"]
    other.perform_later("a")
    assert called(leased(app)) == ["a"], "another group"


def test_jobs_of_several_classes_share_a_group(app: App) -> None:
    options: dict[str, Any] = {"concurrency_limit": 1, "concurrency_group": "account"}
    one = app.job(name="one", concurrency_key=lambda account: account, **options)(lambda account: None)
    other = app.job(name="other", concurrency_key=lambda name, account: account, **options)(
        lambda name, account: None
    )
    one.perform_later(7)
    other.perform_later("x", 7)
    other.perform_later("y", 8)
    first = leased(app)
    assert called(first) == [7, "y"]
    app.queue.ack(first[0])
    assert called(leased(app)) == ["x"]


def test_several_keys(app: App) -> None:
    @app.job(
        concurrency_limit=lambda key: 2 if key.startswith("tenant") else 1,
        concurrency_key=lambda tenant, thing: [f"tenant {tenant}", f"thing {thing}"],
    )
    def job(tenant: int, thing: int) -> None: ...

    for tenant, thing in [(1, 1), (2, 1), (1, 2), (1, 3), (2, 4)]:
        job.perform_later(tenant, thing)
    assert [tuple(one.payload["args"]) for one in leased(app)] == [(1, 1), (1, 2), (2, 4)]


def test_the_slot_is_the_lease(app: App, clock: ManualClock) -> None:
    """It is renewed with it, lapses with it, and there is no other time to set."""
    job = app.job(name="job", concurrency_limit=1)(lambda number: None)
    for number in range(3):
        job.perform_later(number)
    (held,) = leased(app)
    for _ in range(5):
        clock.advance(25)
        app.queue.extend(held, 30)
        assert leased(app) == [], "renewed with it"
    clock.advance(30)
    assert called(leased(app)) == [1], "lapsed with it"
    clock.advance(31)
    assert work(app).succeeded == 3


def test_a_job_that_waits_for_its_next_try_holds_no_slot(app: App) -> None:
    @app.job(concurrency_limit=1)
    def job(number: int) -> None:
        log.append(number)
        if log.count(0) == 1 and number == 0:
            raise RetryLater(60)

    job.perform_later(0)
    job.perform_later(1)
    work(app)
    assert log == [0, 1]


def test_who_waits_costs_nothing_and_goes_in_order(app: App) -> None:
    @app.job(concurrency_limit=1)
    def job(number: int) -> None:
        log.append(number)

    plain = app.job(name="plain")(lambda number: log.append(number))
    app.perform_all_later([job.build(number) for number in range(500)])
    plain.perform_later("free")
    assert called(leased(app)) == [0, "free"]
    assert app.queue.stats().ready == 499


# -- rates


def test_so_many_runs_in_a_rolling_time(app: App, clock: ManualClock) -> None:
    @app.job(rate_limit_max=2, rate_limit_duration=10, rate_limit_key=lambda site, number: site)
    def fetch(site: str, number: int) -> None:
        log.append((number, round(clock.wall_us() / 1e6 - start)))

    start = clock.wall_us() / 1e6
    for number in range(5):
        fetch.perform_later("a", number)
    for _ in range(26):
        work(app)
        clock.advance(1)
    assert log == [(0, 0), (1, 0), (2, 10), (3, 10), (4, 20)]
    log.clear()
    for number in range(4):
        fetch.perform_later("b", number)
        work(app)
        clock.advance(4)
    assert log == [(0, 26), (1, 30), (2, 38)], "the window rolls: the first run counts until 36"
    for _ in range(8):
        work(app)
        clock.advance(1)
    assert [number for number, _ in log] == [0, 1, 2, 3]
    times = [at for _, at in log]
    assert all(later - earlier >= 10 for earlier, later in zip(times, times[2:], strict=False))


def test_a_look_at_an_empty_or_throttled_queue_uses_up_nothing(app: App, clock: ManualClock) -> None:
    job = app.job(name="job", rate_limit_max=1, rate_limit_duration=10)(lambda number: log.append(number))
    for _ in range(3):
        assert work(app).leased == 0
    job.perform_later(0)
    job.perform_later(1)
    work(app)
    for _ in range(9):
        clock.advance(1)
        before = app.queue._store._session.log.position  # type: ignore[attr-defined]
        assert leased(app) == []
        assert app.queue._store._session.log.position == before, "and writes nothing"  # type: ignore[attr-defined]
    clock.advance(1)
    work(app)
    assert log == [0, 1]


def test_a_throttled_job_is_discarded(app: App, clock: ManualClock) -> None:
    job = app.job(name="job", rate_limit_max=1, rate_limit_duration=10, rate_limit_on_throttle="discard")(
        lambda number: log.append(number)
    )
    created = []
    for number in range(12):
        created.append(job.perform_later(number).created)
        work(app)
        clock.advance(1)
    assert created == [number in (0, 10) for number in range(12)]
    assert log == [0, 10]


def test_retries_count_too(app: App, clock: ManualClock) -> None:
    @app.job(rate_limit_max=1, rate_limit_duration=100, max_attempts=2)
    def job() -> None:
        log.append(current_job().attempts)
        raise ValueError

    job.perform_later()
    work(app)
    clock.advance(90)
    work(app)
    assert log == [1]
    clock.advance(10)
    work(app)
    assert log == [1, 2]


# -- queues


def test_the_limit_of_a_queue(app: App) -> None:
    app.queue_limit("reports", 2)
    report = app.job(name="report", queue="reports")(lambda number: None)
    mail = app.job(name="mail", queue="mails")(lambda number: None)
    for number in range(4):
        report.perform_later(number)
        mail.perform_later(f"mail {number}")
    held = leased(app)
    assert sorted(called(held), key=str) == [0, 1, "mail 0", "mail 1", "mail 2", "mail 3"]
    app.queue.ack(next(job for job in held if job.lane == "reports"))
    assert called(leased(app)) == [2]


# -- alone in the directory


def test_alone_in_the_directory(app: App, tmp_path: Path) -> None:
    plain = app.job(name="plain", queue="a")(lambda number: None)
    alone = app.job(name="alone", queue="b", exclusive="app")(lambda number: None)
    plain.perform_later(0)
    alone.perform_later(1)
    plain.perform_later(2)
    with Queue(app.path, fsync=False, clock=app._clock) as other:
        (first,) = other.lease(9)
        assert called([first]) == [0]
        assert leased(app) == [], "its turn has come: it waits for the first, the others for it"
        other.ack(first)
        (second,) = leased(app)
        assert called([second]) == [1]
        assert other.lease(9) == []
        app.queue.ack(second)
        assert called(other.lease(9)) == [2]


# -- fair shares


def test_one_tenants_flood_does_not_starve_the_rest(app: App) -> None:
    @app.job(fair_key=lambda tenant: tenant, fair_weight=lambda key: 2 if key == "big" else 1)
    def job(tenant: str) -> None:
        log.append(tenant)

    app.perform_all_later([job.build("flood")] * 60 + [job.build("small")] * 3 + [job.build("big")] * 6)
    work(app)
    assert log[:12].count("small") == 3
    assert log[:12].count("big") == 6
    assert log[:12].count("flood") == 3
    assert log[12:] == ["flood"] * 57, "and nobody is held back while only one has work"


def test_a_higher_priority_goes_first_whoever_brings_it(app: App) -> None:
    job = app.job(name="job", fair_key=lambda tenant: tenant)(lambda tenant: log.append(tenant))
    app.perform_all_later([job.set(priority=5).build("a")] * 3 + [job.build("b")] * 3 + [job.build("a")] * 2)
    work(app)
    assert log[:3] == ["a", "a", "a"]
    assert sorted(log[3:7]) == ["a", "a", "b", "b"]


def test_calls_without_a_key_of_their_own(app: App) -> None:
    job = app.job(name="job", fair_key=lambda tenant: tenant)(lambda tenant: log.append(tenant))
    handle = job.perform_later(None)
    assert handle.job().limits is None
    work(app)
    assert log == [None]


# -- expiry


def test_a_job_not_begun_in_time_is_dead(app: App, clock: ManualClock) -> None:
    job = app.job(name="job", expires_in=60, concurrency_limit=1)(lambda number: log.append(number))
    first, second = job.perform_later(0), job.perform_later(1)
    (held,) = leased(app)
    for _ in range(3):
        clock.advance(25)
        app.queue.extend(held, 30)
    assert second.status() == JobState.DEAD
    assert second.job().last_error == "expired"
    app.queue.ack(held)
    work(app)
    assert (log, first.status()) == ([], JobState.DONE)


# -- together


def test_all_limits_together(app: App, clock: ManualClock) -> None:
    app.queue_limit("q", 3)

    @app.register
    class Everything(BaseJob):
        queue = "q"
        concurrency_limit = 2
        rate_limit_max = 3
        rate_limit_duration = 100
        fair_weight = 2

        def concurrency_key(self, tenant: str, number: int) -> str:
            return tenant

        def fair_key(self, tenant: str, number: int) -> str:
            return tenant

        def perform(self, tenant: str, number: int) -> None:
            log.append((tenant, number))

    for number in range(4):
        for tenant in "ab":
            Everything.perform_later(tenant, number)
    held = leased(app)
    assert [tuple(job.payload["args"]) for job in held] == [("a", 0), ("b", 0), ("a", 1)]
    for job in held:
        app.queue.ack(job)
    assert leased(app) == [], "three in a hundred seconds"
    for _ in range(3):
        clock.advance(100)
        work(app)
    assert sorted(log) == [("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]
    assert app.queue.stats().done == 8
