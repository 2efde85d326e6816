"""Chains, and jobs that wait for others: what runs when, and what becomes of it when something goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    JobExistsError,
    JobFailedError,
    JobNotFoundError,
    JobState,
    SerializationError,
    after,
    chain,
    current_job,
)
from nobroker.app import watching
from nobroker.app.serving import Service
from nobroker.app.watching import Usher
from tests.app.dying import Death, DyingQueue
from tests.app.trial import Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    yield made
    made.end()


def builds(trial: Trial, *names: str) -> list[Any]:
    return [trial.work.build(name) for name in names]


# -- chains


def test_each_runs_when_the_one_before_is_done(trial: Trial) -> None:
    handles = chain(*builds(trial, "a", "b", "c"))
    assert len({handle.id for handle in handles}) == 3
    assert [handle.status() for handle in handles] == [JobState.READY] * 3
    assert trial.run(threads=3) == ["a", "b", "c"]
    assert [handle.result() for handle in handles] == ["a", "b", "c"]


def test_a_chain_of_one(trial: Trial) -> None:
    [handle] = chain(trial.work.build("a"))
    assert trial.run() == ["a"]
    assert handle.result() == "a"


def test_a_long_chain(trial: Trial) -> None:
    names = [str(number) for number in range(100)]
    chain(*builds(trial, *names))
    assert trial.run() == names


def test_options_of_held_jobs(trial: Trial) -> None:
    """What waits counts from the end of the job before; a queue, a priority and an id are the job's own."""
    when = datetime.fromtimestamp(trial.clock.wall_us() / 1e6 + 1000, UTC)
    handles = chain(
        trial.work.build("a"),
        trial.work.set(wait=60, queue="slow", priority=3, job_id="mine").build("b"),
        trial.work.set(wait_until=when).build("c"),
    )
    assert handles[1].id == "mine"
    assert trial.run() == ["a"]
    job = handles[1].job()
    assert (job.lane, job.priority, job.available_at - job.enqueued_at) == ("slow", 3, 60)
    trial.clock.advance(59)
    assert trial.run() == []
    trial.clock.advance(1)
    assert trial.run() == ["b"]
    trial.clock.advance(939)
    assert trial.run() == []
    trial.clock.advance(1)
    assert trial.run() == ["c"]


def test_the_rest_of_a_chain_waits_for_the_dead(trial: Trial) -> None:
    handles = chain(*builds(trial, "a", "bad", "c"))
    assert trial.run() == ["a", "bad"]
    trial.clock.advance(86400)
    assert trial.run() == []
    assert handles[2].status() is JobState.READY
    trial.fail.clear()
    trial.app.queue.requeue_dead(handles[1].id)
    assert trial.run() == ["bad", "c"]


def test_a_failure_that_is_retried_holds_the_rest(trial: Trial) -> None:
    @trial.app.job
    def flaky() -> None:
        trial.log.append("flaky")
        if current_job().attempts == 1:
            raise ConnectionError

    chain(flaky.build(), trial.work.build("b"))
    assert trial.run() == ["flaky"]
    trial.clock.advance(600)
    assert trial.run() == ["flaky", "b"]


def test_a_discarded_job_is_done(trial: Trial) -> None:
    chain(*builds(trial, "discarded", "b"))
    assert trial.run() == ["discarded", "b"]


@pytest.mark.parametrize("way", ["cancel", "drop", "purge"])
def test_what_waits_for_a_lost_job_is_dead_and_says_so(trial: Trial, way: str) -> None:
    handles = chain(trial.work.set(queue="first").build("bad"), *builds(trial, "b", "c"))
    first = handles[0].id
    queue = trial.app.queue
    if way == "cancel":
        handles[0].cancel()
    elif way == "drop":
        trial.run()
        queue.drop_dead(first)
    else:
        queue.purge(lane="first")
    trial.log.clear()
    assert trial.run() == []
    reason = "was cancelled" if way == "cancel" else "dropped, purged"
    with pytest.raises(JobFailedError, match=f"held until others are done.*job {first} .*{reason}"):
        handles[1].result()
    assert handles[2].status() is JobState.READY  # it waits for the dead one

    queue.requeue_dead(handles[1].id)  # somebody says: all the same
    assert trial.run() == ["b", "c"]


def test_a_job_that_is_lost_is_told_of_like_a_dead_one(trial: Trial) -> None:
    told: list[Any] = []
    trial.app.on_job_error(lambda job, error: told.append(("error", job.id, str(error))))

    @trial.app.job
    def last() -> None: ...

    @last.after_dead
    def dead(job: Any, error: BaseException) -> None:
        told.append(("dead", job.id, str(error)))

    first, handle = chain(trial.work.build("a"), last.build())
    first.cancel()
    trial.run()
    assert [(what, job_id) for what, job_id, _ in told] == [("error", handle.id), ("dead", handle.id)]
    assert all("was cancelled" in text for _, _, text in told)


def test_a_held_job_can_be_cancelled(trial: Trial) -> None:
    handles = chain(*builds(trial, "a", "b", "c"))
    handles[1].cancel()
    assert trial.run() == ["a"]
    assert handles[2].status() is JobState.DEAD
    trial.app.queue.drop_dead()


def test_a_held_job_expires_like_any_other(trial: Trial) -> None:
    handles = chain(trial.work.set(wait=100).build("a"), trial.work.set(expires_in=60).build("b"))
    trial.clock.advance(100)
    assert trial.run() == ["a"]
    assert handles[1].job().last_error == "expired"


def test_a_job_done_and_forgotten_after_its_successor_was_let_go(tmp_path: Path) -> None:
    trial = Trial(tmp_path, keep_done=0.0)
    chain(trial.work.build("a"), trial.work.set(wait=60).build("b"), trial.work.build("c"))
    assert trial.run() == ["a"]
    trial.app.queue.compact()
    trial.clock.advance(60)
    assert trial.run() == ["b", "c"]
    trial.end()


def test_nothing_is_enqueued_when_something_is_wrong(trial: Trial, tmp_path: Path) -> None:
    other = Trial(tmp_path / "other")
    one = trial.work.build("a")
    known = trial.work.set(job_id="known").perform_later("known")
    with pytest.raises(JobExistsError, match="known"):
        chain(one, trial.work.set(job_id="known").build("b"))
    twice = trial.work.set(job_id="twice").build("b")
    with pytest.raises(JobExistsError, match="twice"):
        chain(twice, twice)
    with pytest.raises(SerializationError):
        chain(one, trial.work.build(object()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one job"):
        chain()
    with pytest.raises(TypeError, match="chain takes what build"):
        chain(one, trial.work)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="belongs to another one"):
        chain(one, other.work.build("b"))
    with pytest.raises(ValueError, match="at least one job to wait for"):
        after(run=one)
    with pytest.raises(TypeError, match="after takes handles or ids"):
        after(7, run=one)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="after takes what build"):
        after(known, run=trial.work)  # type: ignore[arg-type]
    with pytest.raises(JobNotFoundError):
        after("nothing", run=one)
    assert len(trial.app.queue) == 1
    assert trial.run() == ["known"]
    other.end()


# -- after


def test_a_job_runs_after_several(trial: Trial) -> None:
    one = trial.work.perform_later("one")
    two = trial.work.set(wait=60).perform_later("two")
    three = after(one, two.id, one, run=trial.work.build("three"))
    four = after(three, run=trial.work.set(wait=5).build("four"))
    assert trial.run() == ["one"]
    trial.clock.advance(60)
    assert trial.run() == ["two", "three"]
    trial.clock.advance(5)
    assert trial.run() == ["four"]
    assert four.result() == "four"


def test_after_jobs_that_are_done(trial: Trial) -> None:
    one = trial.work.perform_later("one")
    trial.run()
    after(one, run=trial.work.build("two"))
    assert trial.standing() == 0
    assert trial.run() == ["two"]


def test_after_a_dead_job_and_a_cancelled_one(trial: Trial) -> None:
    bad = trial.work.perform_later("bad")
    off = trial.work.perform_later("off")
    off.cancel()
    trial.run()
    waiting = after(bad, run=trial.work.build("waiting"))
    lost = after(bad, off, run=trial.work.build("lost"))
    assert trial.run() == []
    assert (waiting.status(), lost.status()) == (JobState.READY, JobState.DEAD)
    trial.app.queue.drop_dead(bad.id)
    trial.run()
    assert waiting.status() is JobState.DEAD


def test_after_with_a_known_id_enqueues_nothing(trial: Trial) -> None:
    one = trial.work.set(wait=60).perform_later("one")
    run = trial.work.set(job_id="mine").build("two")
    assert after(one, run=run).created
    again = after(one, run=run)
    assert (again.created, again.id) == (False, "mine")
    trial.clock.advance(60)
    assert trial.run() == ["one", "two"]


# -- chains in batches


def test_a_chain_in_a_batch(trial: Trial) -> None:
    before = trial.work.set(wait=60).perform_later("before")
    with trial.app.batch(**trial.callbacks()) as batch:
        handles = chain(*builds(trial, "a", "b", "c"))
        last = after(before, run=trial.work.build("last"))
        with pytest.raises(JobNotFoundError, match="has not ended"):
            handles[0].id  # noqa: B018
    assert batch.total == 4
    assert trial.run() == ["a", "b", "c"]
    assert batch.counts() == (4, 3, 0)
    trial.clock.advance(60)
    assert trial.run() == [
        "before",
        "last",
        ("success", "succeeded", 4, 4, 0),
        ("finish", "succeeded", 4, 4, 0),
    ]
    assert last.result() == "last"


def test_a_chain_in_a_block_that_fails(trial: Trial) -> None:
    trial.work.set(job_id="known").perform_later("known")
    block = trial.app.batch()

    def twice() -> None:
        with block:
            trial.work.perform_later("a")
            chain(trial.work.build("b"), trial.work.set(job_id="known").build("c"))

    with pytest.raises(JobExistsError, match="known"):
        twice()
    assert len(trial.app.queue) == 1
    assert trial.run() == ["known"]


# -- whoever looks after them


@pytest.mark.parametrize("after_it", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("lost", [False, True], ids=["done", "lost"])
def test_whoever_lets_a_job_go_may_die_anywhere(tmp_path: Path, lost: bool, after_it: bool) -> None:
    """At each write, with two who die there in turn. Each job runs once; or is dead, and says why."""
    died = 0
    for writes in range(5):
        trial = Trial(tmp_path / str(writes))
        queue = trial.app.queue
        first, second = chain(*builds(trial, "a", "b"))
        if lost:
            first.cancel()
        else:
            job = queue.lease_one()
            assert job is not None
            queue.ack(job, result=trial.app.runner(job))
        try:
            for _ in range(2):
                Usher(DyingQueue(queue, writes, after=after_it)).look()  # type: ignore[arg-type]
        except Death:
            died += 1
        trial.run()
        assert trial.log == ([] if lost else ["a", "b"]), writes
        assert second.status() is (JobState.DEAD if lost else JobState.DONE)
        assert lost == ("was cancelled" in str(second.job().last_error))
        trial.end()
    assert died == (3 if lost else 2)  # (why it is lost,) its new time, the record put away


def test_many_ushers_at_once(trial: Trial) -> None:
    for number in range(30):
        first, *_ = chain(trial.work.set(wait=1).build(f"{number}-a"), *builds(trial, f"{number}-b", "c"))
        after(first, run=trial.work.build("d"))
    ushers = [Usher(trial.app.queue) for _ in range(4)]
    stop = threading.Event()

    def look(usher: Usher) -> None:
        while not stop.is_set():
            usher.look()

    threads = [threading.Thread(target=look, args=(usher,)) for usher in ushers]
    for thread in threads:
        thread.start()
    trial.clock.advance(1)
    while trial.standing():
        trial.run()
    stop.set()
    for thread in threads:
        thread.join()
    trial.run()  # what one of them let go last
    expected = ["c", "d"] * 30 + [f"{number}-{name}" for number in range(30) for name in "ab"]
    assert sorted(trial.log) == sorted(expected)


def test_held_jobs_go_on_beside_a_worker(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a chain, and those that were made to wait for a job that runs already: because the job's end
    was noticed, not because everything is looked at now and then.
    """
    monkeypatch.setattr(watching, "EVERY_S", 3600.0)
    going, told = threading.Event(), threading.Event()
    begun = threading.Event()

    @trial.app.job
    def first() -> None:
        begun.set()
        assert going.wait(20)

    @trial.app.job
    def last() -> None:
        told.set()

    running = Service(trial.app, handle_signals=False)
    thread = threading.Thread(target=running.run)
    handle = first.perform_later()
    after(handle, run=last.build())
    thread.start()
    assert begun.wait(20)
    running.usher.look()  # from here on it knows who waits for the job that runs
    going.set()
    assert told.wait(20)
    told.clear()
    after(trial.work.perform_later("one"), run=last.build())
    assert told.wait(20)
    told.clear()
    chain(*builds(trial, "a", "b"), last.build())
    assert told.wait(20)
    running.stop()
    thread.join()
    trial.run()
