"""Jobs in steps: what was done is not done again, whatever ended the run before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import JobState, Queue, SerializationError
from nobroker.app import BaseJob, JobCancelledError, Retry, StepError
from nobroker.app.steps import STEPS, Step
from nobroker.worker import Dead, RetryLater
from tests.app.step_world import Killed, World, counting


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "jobs")
    yield made
    assert made.app.queue.check() == []
    made.app.close()


# -- one run


def test_steps_run_in_their_order_and_the_result_is_the_jobs(world: World) -> None:
    job = world.job(counting(world))
    handle = job.perform_later()
    world.work()
    assert world.did == ["before", 0, 1, 2, 3, "after"]
    assert handle.status() is JobState.DONE
    assert job.perform_now() is None
    assert world.did[6:] == world.did[:6]


def test_the_cursor_begins_at_start_and_moves_by_advance_and_set(world: World) -> None:
    seen: list[Any] = []

    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            seen.append((step.name, step.cursor))
            step.advance()
            seen.append(step.cursor)
            step.advance(to="z")
            seen.append(step.cursor)
            step.set({"page": (1, 2)})
            seen.append(step.cursor)

        self.step("one", work, start=7)
        self.step("two", lambda step: seen.append(step.cursor))

    world.job(perform).perform_now()
    assert seen == [("one", 7), 8, "z", {"page": (1, 2)}, None]


@pytest.mark.parametrize("start", [None, "a", 1.0, True])
def test_only_whole_numbers_advance_by_themselves(world: World, start: Any) -> None:
    def perform(self: BaseJob) -> None:
        self.step("one", lambda step: step.advance(), start=start)

    with pytest.raises(TypeError, match=r"has no next value; begin with start=0"):
        world.job(perform).perform_now()


def test_a_cursor_that_is_not_stored_is_refused_where_it_is_given(world: World) -> None:
    def at_start(self: BaseJob) -> None:
        self.step("one", lambda step: world.did.append(step), start=object())

    def later(self: BaseJob) -> None:
        self.step("one", lambda step: step.set(object()))

    for perform in (at_start, later):
        with pytest.raises(SerializationError, match="the cursor of step 'one' of Import"):
            world.job(perform).perform_now()
        world.app.jobs.clear()
    assert world.did == []


def test_names_and_order_are_checked(world: World) -> None:
    leaked: list[Step] = []

    def twice(self: BaseJob) -> None:
        self.step("one", lambda step: None)
        self.step("one", lambda step: None)

    def nested(self: BaseJob) -> None:
        self.step("one", lambda step: self.step("two", lambda step: None))

    def ended(self: BaseJob) -> None:
        self.step("one", leaked.append)
        leaked[0].checkpoint()

    def nameless(self: BaseJob) -> None:
        self.step("", lambda step: None)

    for perform, error, text in [
        (twice, StepError, "two steps of the name 'one'"),
        (nested, StepError, "step 'two' of Import begins inside step 'one'"),
        (ended, StepError, "step 'one' of Import has ended"),
        (nameless, TypeError, "a step needs a name"),
    ]:
        with pytest.raises(error, match=text):
            world.job(perform).perform_now()
        world.app.jobs.clear()


# -- interruptions


def test_a_killed_job_goes_on_at_its_last_checkpoint_and_completed_steps_are_skipped(world: World) -> None:
    def perform(self: BaseJob) -> None:
        self.step("before", lambda step: world.did.append("before"))

        def work(step: Step) -> None:
            world.did.append(step.cursor)
            if step.cursor == ("a", 0):
                step.set(("a", 1), force=True)
                step.advance(to=("a", 2))  # without a checkpoint
                raise Killed

        self.step("work", work, start=("a", 0))

    handle = world.job(perform).perform_later()
    world.run_and_kill()
    world.work()
    assert world.did == ["before", ("a", 0), ("a", 1)]
    job = handle.job()
    assert (job.state, job.attempts) == (JobState.DONE, 2)


def test_a_job_is_let_go_when_its_worker_stops_and_no_attempt_is_burnt(world: World) -> None:
    errors_told: list[BaseException] = []
    world.app.on_job_error(lambda job, error: errors_told.append(error))
    handle = world.run_and_stop(world.job(counting(world)))
    assert world.did == ["before", 0]
    job = handle.job()
    assert (job.state, job.attempts, job.last_error) == (JobState.READY, 0, None)
    assert job.available_at <= world.clock.wall_us() / 1e6
    world.work()
    assert world.did == ["before", 0, 1, 2, 3, "after"]
    assert (handle.status(), handle.job().attempts) == (JobState.DONE, 1)
    assert errors_told == []


def test_a_step_does_not_begin_in_a_worker_that_stops(world: World) -> None:
    def perform(self: BaseJob) -> None:
        def first(step: Step) -> None:
            world.did.append("first")
            world.at_first()

        self.step("first", first)
        self.step("second", lambda step: world.did.append("second"))

    handle = world.run_and_stop(world.job(perform))
    assert (world.did, handle.status()) == (["first"], JobState.READY)
    world.work()
    assert (world.did, handle.status()) == (["first", "second"], JobState.DONE)


def test_a_job_whose_last_step_ended_is_done_even_in_a_worker_that_stops(world: World) -> None:
    def perform(self: BaseJob) -> str:
        self.step("only", lambda step: world.at_first())
        return "result"

    handle = world.run_and_stop(world.job(perform))
    assert handle.result() == "result"


def test_a_job_that_is_cancelled_lets_go_at_a_checkpoint_and_is_done(world: World) -> None:
    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            world.did.append("begun")
            world.app.handle(self.id or "").cancel()
            step.checkpoint(force=True)
            world.did.append("went on")

        self.step("work", work)

    handle = world.job(perform).perform_later()
    world.work()
    assert world.did == ["begun"]
    assert handle.status() is JobState.DONE
    with pytest.raises(JobCancelledError):
        handle.result()


@pytest.mark.parametrize("how", ["lapsed", "purged"])
def test_a_job_whose_lease_is_lost_lets_go(world: World, how: str) -> None:
    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            world.did.append(step.cursor)
            if step.cursor == 0:
                if how == "purged":
                    world.app.queue.purge()
                else:
                    world.clock.advance(31)
                    world.app.queue.lease_one(visibility_timeout=0.001)  # somebody else
                    world.clock.advance(1)
                step.advance()
                step.checkpoint()
                world.did.append("went on")

        self.step("work", work, start=0)

    world.job(perform).perform_later()
    stats = world.app.run(once=True, handle_signals=False, max_jobs=1)
    assert world.did == [0]
    assert (stats.lost_leases, stats.failed) == (1 if how == "lapsed" else 0, 0)


def test_an_interruption_passes_by_code_that_catches_exceptions(world: World) -> None:
    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            while step.cursor < 3:
                try:
                    world.did.append(step.cursor)
                    world.at_first()
                    step.advance()
                    step.checkpoint()
                except Exception:
                    world.did.append("caught")

        self.step("work", work, start=0)

    world.run_and_stop(world.job(perform))
    assert world.did == [0]


# -- errors


def test_after_an_error_a_job_goes_on_at_its_last_checkpoint_though_it_was_not_written(
    world: World,
) -> None:
    handle = world.job(counting(world, error_at=3, error=ValueError("once"))).perform_later()
    world.work()
    assert world.did == ["before", 0, 1, 2, 3, "after"]
    assert (handle.status(), handle.job().attempts) == (JobState.DONE, 2)


@pytest.mark.parametrize("verdict", [RetryLater(0), ConnectionError("gone")])
def test_so_it_does_after_retries_by_rule_and_by_its_own_word(world: World, verdict: Exception) -> None:
    perform = counting(world, error_at=3, error=verdict)
    job = world.job(perform, retry=[Retry(ConnectionError, wait=0)], max_attempts=1)
    handle = job.perform_later()
    world.work()
    assert world.did == ["before", 0, 1, 2, 3, "after"]
    assert handle.status() is JobState.DONE


@pytest.mark.parametrize("error", [ValueError("broken"), Dead("broken")])
def test_a_dead_job_that_is_requeued_goes_on_at_its_last_checkpoint(world: World, error: Exception) -> None:
    handle = world.job(counting(world, error_at=2, error=error), max_attempts=1).perform_later()
    world.work()
    assert handle.status() is JobState.DEAD
    assert world.app.queue.requeue_dead(handle.id) == 1
    world.work()
    assert world.did == ["before", 0, 1, 2, 3, "after"]
    assert handle.status() is JobState.DONE


# -- how they are written


def test_checkpoints_in_a_tight_loop_are_not_all_written(world: World) -> None:
    writes: list[Any] = []

    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            begun = time.monotonic()
            for number in range(1000):
                step.set(number)
            took = time.monotonic() - begun
            written = world.app.queue.get(self.id or "").job_state[STEPS]["cursors"]["work"]
            step.checkpoint(force=True)
            forced = world.app.queue.get(self.id or "").job_state[STEPS]["cursors"]["work"]
            writes.append((took, written, forced))

        self.step("work", work)

    extend = Queue.extend
    count = [0]

    def counted(queue: Queue, *args: Any, **options: Any) -> Any:
        count[0] += 1
        return extend(queue, *args, **options)

    world.job(perform).perform_later()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "extend", counted)
        world.work()
    ((took, written, forced),) = writes
    assert forced == 999
    assert written < 999
    assert count[0] <= 3 + took / 0.1


def test_a_name_that_the_base_class_needs_is_refused(world: World) -> None:
    with pytest.raises(TypeError, match=r"Import\._keep: BaseJob has one of this name"):
        world.job(lambda self: None, _keep=lambda self: None)
