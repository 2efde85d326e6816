"""Batches: what belongs to them, how they are counted, and when their callbacks run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    Batch,
    BatchFinishedError,
    JobNotFoundError,
)
from tests.app.trial import Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    yield made
    made.end()


def batch_of(trial: Trial, *names: str, **options: Any) -> Batch:
    with trial.app.batch(**{**trial.callbacks(), **options}) as batch:
        for name in names:
            trial.work.perform_later(name)
    return batch


# -- the end


def test_callbacks_run_when_all_are_done(trial: Trial) -> None:
    batch = batch_of(trial, "a", "b")
    assert trial.run() == ["a", "b", ("success", "succeeded", 2, 2, 0), ("finish", "succeeded", 2, 2, 0)]
    assert batch.status == "succeeded"
    assert trial.run() == []


def test_callbacks_of_failure_run_when_all_have_ended(trial: Trial) -> None:
    batch = batch_of(trial, "bad", "a")
    assert trial.run() == ["bad", "a", ("failure", "failed", 2, 1, 1), ("finish", "failed", 2, 1, 1)]
    assert (batch.status, batch.progress) == ("failed", 1.0)


def test_a_batch_needs_no_callbacks(trial: Trial) -> None:
    with trial.app.batch() as batch:
        trial.work.perform_later("a")
    assert trial.run() == ["a"]
    assert batch.status == "succeeded"


def test_an_empty_batch_ends_at_once(trial: Trial) -> None:
    batch = batch_of(trial)
    assert (batch.status, batch.total, batch.progress) == ("succeeded", 0, 1.0)
    assert trial.run() == [("success", "succeeded", 0, 0, 0), ("finish", "succeeded", 0, 0, 0)]


def test_discarded_and_cancelled_members_count_as_done(trial: Trial) -> None:
    with trial.app.batch(**trial.callbacks()):
        trial.work.perform_later("discarded")
        cancelled = trial.work.perform_later("cancelled")
    cancelled.cancel()
    assert trial.run()[-1] == ("finish", "succeeded", 2, 2, 0)


def test_a_member_that_waits_keeps_the_batch_running(trial: Trial) -> None:
    with trial.app.batch(**trial.callbacks()) as batch:
        trial.work.perform_later("a")
        trial.work.set(wait=60).perform_later("b")
    assert trial.run() == ["a"]
    assert (batch.status, batch.total, batch.done, batch.failed, batch.progress) == ("running", 2, 1, 0, 0.5)
    trial.clock.advance(60)
    assert trial.run()[:2] == ["b", ("success", "succeeded", 2, 2, 0)]


def test_a_dead_member_that_is_requeued_in_time_counts_anew(trial: Trial) -> None:
    with trial.app.batch(**trial.callbacks()) as batch:
        bad = trial.work.perform_later("bad")
        trial.work.set(wait=60).perform_later("b")
    assert trial.run() == ["bad"]
    assert (batch.done, batch.failed, batch.progress) == (0, 1, 0.5)
    trial.fail.clear()
    trial.app.queue.requeue_dead(bad.id)
    assert batch.counts() == (2, 0, 0)
    trial.clock.advance(60)
    assert trial.run()[-1] == ("finish", "succeeded", 2, 2, 0)


def test_a_dead_member_requeued_after_the_end_changes_nothing(trial: Trial) -> None:
    batch = batch_of(trial, "bad")
    trial.run()
    trial.fail.clear()
    trial.app.queue.requeue_dead()
    assert trial.run() == ["bad"]
    assert (batch.status, *batch.counts()) == ("failed", 1, 0, 1)


def test_callbacks_are_jobs_with_options(trial: Trial) -> None:
    with trial.app.batch(
        on_success=trial.tell.set(queue="slow", priority=7, wait=60, metadata=[1]).build("later"),
    ):
        trial.work.perform_later("a")
    assert trial.run() == ["a"]
    [job] = trial.app.queue.list_jobs("ready", lane="slow")
    assert (job.priority, job.metadata, job.available_at - job.enqueued_at) == (7, [1], 60)
    trial.clock.advance(60)
    assert trial.run() == [("later", "succeeded", 1, 1, 0)]


def test_a_callback_whose_id_is_known_is_not_enqueued_twice(trial: Trial) -> None:
    once = trial.tell.set(job_id="once")
    batch_of(trial, "a", on_success=once.build("one"), on_finish=once.build("two"))
    assert trial.run() == ["a", ("one", "succeeded", 1, 1, 0)]
    batch_of(trial, "b", on_success=once.build("three"))
    assert trial.run() == ["b", ("finish", "succeeded", 1, 1, 0)]


def test_a_callback_that_fails_is_a_failed_job(trial: Trial) -> None:
    batch_of(trial, "a", on_success=trial.work.build("bad"))
    assert trial.run()[:2] == ["a", "bad"]
    assert len(trial.app.queue.dlq()) == 1
    assert trial.run() == []


# -- joining


def test_a_member_adds_members(trial: Trial) -> None:
    batch = batch_of(trial, "adds", "b")
    assert trial.run(threads=2)[-2:] == [("success", "succeeded", 3, 3, 0), ("finish", "succeeded", 3, 3, 0)]
    assert batch.total == 3


def test_any_process_adds_members_while_the_batch_runs(trial: Trial) -> None:
    batch = batch_of(trial, "a")
    other = Trial(Path(trial.app.path), trial.clock)
    seen = other.app.find_batch(batch.id)
    for number in range(20):
        with seen.add():
            other.work.perform_later(f"{number}-1")
            other.work.perform_later(f"{number}-2")
        assert batch.total == seen.total == 1 + 2 * (number + 1)
    with seen.add():
        pass
    assert batch.total == 41
    assert trial.run()[41:] == [("success", "succeeded", 41, 41, 0), ("finish", "succeeded", 41, 41, 0)]
    assert (seen.status, seen.counts()) == ("succeeded", (41, 41, 0))
    other.app.close()


def test_dead_members_of_joins_are_counted(trial: Trial) -> None:
    batch = batch_of(trial, "bad")
    for _ in range(3):
        with batch.add():
            trial.work.perform_later("bad")
            trial.work.perform_later("good")
    assert trial.run()[-1] == ("finish", "failed", 7, 3, 4)


def test_nothing_joins_a_batch_that_is_over(trial: Trial) -> None:
    batch = batch_of(trial, "a")
    with batch.add():
        trial.work.perform_later("b")
    late = batch.add()
    trial.run()
    jobs = len(trial.app.queue)
    with pytest.raises(BatchFinishedError, match="nothing was enqueued"):
        batch.add()
    with pytest.raises(BatchFinishedError), late:
        handle = trial.work.perform_later("c")
    with pytest.raises(JobNotFoundError, match="BatchFinishedError"):
        handle.id  # noqa: B018
    assert len(trial.app.queue) == jobs


# -- afterwards


def test_the_outcome_is_known_for_keep_done(trial: Trial) -> None:
    batch = batch_of(trial, "a")
    trial.run()
    trial.clock.advance(3500)
    trial.app.queue.compact()
    assert trial.app.find_batch(batch.id).status == "succeeded"
    trial.clock.advance(3500)
    trial.app.queue.compact()
    with pytest.raises(JobNotFoundError, match="keep_done"):
        trial.app.find_batch(batch.id)
    again = Batch(trial.app, batch.id)
    with pytest.raises(JobNotFoundError, match="keep_done"):
        again.add()


def test_a_callback_knows_its_batch_when_nobody_else_does(tmp_path: Path) -> None:
    trial = Trial(tmp_path, keep_done=0.0)
    batch_of(trial, "a", on_finish=trial.tell.set(wait=9999).build("finish"))
    assert trial.run() == ["a", ("success", "succeeded", 1, 1, 0)]
    trial.clock.advance(9999)
    trial.app.queue.compact()
    assert trial.run() == [("finish", "succeeded", 1, 1, 0)]
    trial.end()


def test_members_that_are_forgotten_before_the_end_are_done(tmp_path: Path) -> None:
    trial = Trial(tmp_path, keep_done=0.0)
    with trial.app.batch(**trial.callbacks()) as batch:
        trial.work.perform_later("a")
        trial.work.set(wait=60).perform_later("b")
    trial.run()
    trial.app.queue.compact()
    trial.clock.advance(60)
    assert batch.counts() == (2, 1, 0)
    assert trial.run()[1:] == [("success", "succeeded", 2, 2, 0), ("finish", "succeeded", 2, 2, 0)]
    trial.end()


def test_purging_takes_the_batch_along(trial: Trial) -> None:
    batch = batch_of(trial, "a")
    trial.app.queue.purge()
    with pytest.raises(JobNotFoundError, match="purged"):
        batch.status  # noqa: B018
    assert trial.run() == []
