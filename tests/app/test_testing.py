"""`App.testing`: jobs are held, on a queue of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from nobroker import JobState, NobrokerError, Queue
from nobroker.app.testing import AppTesting
from nobroker.worker import Dead, RetryLater
from tests.app.testing_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "real")
    yield made
    assert not made.directory.exists()  # nothing ever touched the real queue


@pytest.fixture
def held(world: World) -> Iterator[AppTesting]:
    with world.app.testing() as testing:
        yield testing
        assert testing.queue.check() == []


# -- the block


def test_the_real_queue_is_untouched_before_within_and_after(tmp_path: Path) -> None:
    world = World(tmp_path / "real")
    before = world.send.perform_later("ann")
    files = {path: path.stat().st_mtime_ns for path in world.directory.iterdir()}
    with world.app.testing() as testing:
        assert testing.jobs == []
        handle = world.send.perform_later("bob")
        world.app.close()  # as the end of a web application does
        assert [job.args for job in testing.jobs] == [("bob",)]
        testing.drain()
        assert handle.result() == "bob"
        directory = testing.queue.dir
        assert directory.exists()
    assert not directory.exists()
    assert {path: path.stat().st_mtime_ns for path in world.directory.iterdir() if path in files} == files
    with Queue(world.directory) as queue:
        assert [job.id for job in queue.list_jobs()] == [before.id]
        assert queue.check() == []


def test_a_block_inside_another_has_a_queue_of_its_own(world: World, held: AppTesting) -> None:
    world.send.perform_later("outer")
    with world.app.testing() as inner:
        world.send.perform_later("inner")
        assert [job.args for job in inner.jobs] == [("inner",)]
    assert [job.args for job in held.jobs] == [("outer",)]


def test_misuse_is_said(world: World) -> None:
    with pytest.raises(ValueError, match='mode must be "hold" or "inline"'):
        world.app.testing("inlien")
    testing = world.app.testing()
    with pytest.raises(RuntimeError, match="not within its block"):
        testing.drain()
    with testing, pytest.raises(RuntimeError, match="has begun"):
        testing.__enter__()
    with testing, world.app.testing(), pytest.raises(RuntimeError, match="reverse order"):
        testing.__exit__(None, None, None)
    with testing:  # once more is all right
        assert testing.jobs == []


# -- held


def test_jobs_say_what_was_enqueued(world: World, held: AppTesting) -> None:
    world.send.set(wait=90, priority=4, metadata={"a": 1}, job_id="mine").perform_later((1, {2}), locale="de")
    world.report.perform_later(Decimal("1.5"))
    first, second = held.jobs
    assert first == ("send", ((1, {2}),), {"locale": "de"}, "mails", 90.0, False, 4, {"a": 1}, "mine")
    assert type(first.args[0]) is tuple
    assert (second.name, second.args, second.queue, second.wait) == (
        "Report",
        (Decimal("1.5"),),
        "default",
        0,
    )
    held.advance(timedelta(seconds=30))
    assert [job.wait for job in held.jobs] == [60.0, 0.0]
    assert [job.wait for job in held.enqueued] == [90.0, 0.0]
    assert world.did == []


def test_a_date_counts_from_the_real_time(world: World, held: AppTesting) -> None:
    world.send.set(wait_until=datetime.now(UTC) + timedelta(hours=1)).perform_later("ann")
    (job,) = held.jobs
    assert 3600 <= job.wait < 3700  # the clock of the test stands still


def test_drain_works_off_what_is_due_and_what_that_enqueues(world: World, held: AppTesting) -> None:
    world.report.perform_later("mon")
    world.later.perform_later(2)
    world.send.set(wait=5).perform_later("not due")
    stats = held.drain()
    assert world.did == ["mon", 2, ("mon", "en"), 1, 0]
    assert (stats.leased, stats.succeeded, stats.failed) == (5, 5, 0)
    assert [job.args for job in held.jobs] == [("not due",)]
    held.advance(5)
    held.drain()
    assert world.did[-1] == ("not due", "en")


def test_drain_moves_the_clock_to_what_is_due_later(world: World, held: AppTesting) -> None:
    world.send.set(wait=7200).perform_later("second")
    world.send.set(wait=3600).perform_later("first")
    world.errors = [ConnectionError("one"), ConnectionError("two")]
    handle = world.shaky.set(wait=1).perform_later()
    held.drain(advance=True)
    assert world.did == [1, 2, 3, ("first", "en"), ("second", "en")]
    assert handle.result() == "done"
    assert held.jobs == []


def test_drain_delivers_in_the_order_of_a_worker(world: World, held: AppTesting) -> None:
    world.send.perform_later(1)
    world.send.set(priority=9).perform_later(2)
    held.drain()
    assert world.did == [(2, "en"), (1, "en")]


def test_drain_leaves_raw_jobs_alone_as_a_worker_does(world: World, held: AppTesting) -> None:
    raw = world.app.queue.enqueue("raw", priority=9)
    world.send.perform_later("ann")
    assert held.drain().succeeded == 1
    assert world.app.queue.get(raw.id).state == "ready"


def test_drain_raises_what_no_rule_deals_with_and_the_job_waits_for_its_next_try(
    world: World, held: AppTesting
) -> None:
    world.errors = [ValueError("broken")]
    handle = world.shaky.perform_later()
    with pytest.raises(ValueError, match="broken"):
        held.drain()
    assert (handle.status(), handle.job().attempts, held.jobs[0].wait) == (JobState.READY, 1, 10.0)
    held.drain(advance=True)
    assert handle.result() == "done"


def test_drain_goes_on_as_a_worker_does_when_told_so(world: World, held: AppTesting) -> None:
    world.errors = [ValueError(str(number)) for number in range(5)]
    handle = world.shaky.perform_later()
    stats = held.drain(advance=True, raise_errors=False)
    assert (stats.leased, stats.failed, stats.dead) == (5, 5, 1)
    assert handle.status() is JobState.DEAD
    assert (handle.job().last_error or "").startswith("ValueError: 4\nTraceback")


def test_rules_are_applied_and_are_no_errors(world: World, held: AppTesting) -> None:
    world.errors = [KeyError("k")]
    rescued = world.shaky.perform_later()
    held.drain()
    assert rescued.result() == "rescued"
    world.errors = [RetryLater(30)]
    again = world.shaky.perform_later()
    held.drain()
    assert (again.job().attempts, held.jobs[0].wait) == (0, 30.0)
    held.drain(advance=True)
    assert again.result() == "done"
    world.errors = [Dead("no use")]
    dead = world.shaky.perform_later()
    with pytest.raises(Dead, match="no use"):
        held.drain()
    assert (dead.status(), dead.job().last_error) == (JobState.DEAD, "no use")


def test_exhausted_retries_are_raised(world: World, held: AppTesting) -> None:
    world.errors = [ConnectionError(str(number)) for number in range(3)]
    handle = world.shaky.perform_later()
    with pytest.raises(ConnectionError, match="2"):
        held.drain(advance=True)
    assert handle.status() is JobState.DEAD


def test_jobs_that_enqueue_each_other_for_ever_are_noticed(world: World, held: AppTesting) -> None:
    world.later.perform_later(50)
    with pytest.raises(NobrokerError, match=r"after 20 runs there is still later .*max_runs"):
        held.drain(max_runs=20)
    assert len(held.jobs) == 1
    assert held.drain(max_runs=31).succeeded == 31


def test_an_exit_in_a_job_is_raised_in_any_case(world: World, held: AppTesting) -> None:
    class Skip(BaseException):
        """As those of test frameworks."""

    world.errors = [Skip()]  # type: ignore[list-item]
    world.shaky.perform_later()
    with pytest.raises(Skip):
        held.drain(raise_errors=False)


def test_a_job_that_runs_keeps_its_lease_when_the_clock_moves(world: World, held: AppTesting) -> None:
    @world.app.job
    def slow() -> str:
        held.advance(100_000)
        return "mine"

    handle = slow.perform_later()
    stats = held.drain()
    assert (handle.result(), stats.leased, stats.lost_leases) == ("mine", 1, 0)


def test_a_job_may_purge_its_queue(world: World, held: AppTesting) -> None:
    @world.app.job
    def purge() -> None:
        world.app.queue.purge()

    purge.perform_later()
    held.drain()
    assert held.queue.list_jobs() == []


def test_the_layer_itself_goes_by_the_clock_of_the_test(world: World, held: AppTesting) -> None:
    world.send.perform_later("ann")
    del world.app.jobs["send"]
    with pytest.raises(Dead, match="UnknownJobError: job 'send' is not registered here; it waited 3600 s"):
        held.drain(advance=True)


# -- assertions


def test_assert_enqueued_finds_by_job_arguments_and_queue(world: World, held: AppTesting) -> None:
    world.app.perform_all_later([world.send.build("ann"), world.send.build("bob", locale="de")])
    world.report.perform_later("mon")
    held.drain()  # whatever became of them
    assert len(held.assert_enqueued(world.send)) == 3
    assert [job.args for job in held.assert_enqueued("send", kwargs={"locale": "de"})] == [("bob",)]
    held.assert_enqueued(world.report, args=("mon",), kwargs={}, queue="default", times=1)
    held.assert_enqueued(world.send, args=["mon"], times=1)
    held.assert_enqueued(world.later, times=0)


def test_assert_enqueued_says_what_there_was_instead(world: World, held: AppTesting) -> None:
    world.send.set(wait=60).perform_later("ann", locale="de")
    for call, lines in [
        (
            lambda: held.assert_enqueued(world.send, args=("bob",), queue="mails"),
            ["expected to be enqueued and was not: send, args=('bob',), queue='mails'"],
        ),
        (
            lambda: held.assert_enqueued(world.send, times=2),
            ["expected to be enqueued 2 times, and was 1: send"],
        ),
        (
            lambda: held.assert_enqueued("sned"),
            ["expected to be enqueued and was not: sned", "no job of this name is registered"],
        ),
        (held.assert_nothing_enqueued, ["expected nothing to be enqueued"]),
    ]:
        with pytest.raises(AssertionError) as caught:
            call()
        listed = ["these were enqueued:", "  send('ann', locale='de') on 'mails', in 60 s"]
        assert str(caught.value).splitlines() == [*lines, *listed]
    held.clear()
    held.assert_nothing_enqueued()
    assert held.jobs == []
    with pytest.raises(AssertionError, match="and was not: send\nnothing was enqueued"):
        held.assert_enqueued(world.send)


def test_what_is_no_job_of_the_application_is_refused(world: World, held: AppTesting, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected a job function, a job class or a name"):
        held.assert_enqueued(len)
    other = World(tmp_path / "other")
    with pytest.raises(TypeError, match="a job of another application"):
        held.assert_enqueued(other.send)


def test_an_id_that_is_known_is_not_enqueued_twice(world: World, held: AppTesting) -> None:
    for _ in range(2):
        world.send.set(job_id="once").perform_later("ann")
    held.assert_enqueued(world.send, times=1)
