"""Jobs in steps: how often they go on, under which code, and as async jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import JobState
from nobroker.app import BaseJob, JobHandle, StepError
from nobroker.app.steps import STEPS, Step
from nobroker.worker import RetryLater
from tests.app.step_world import Killed, World, counting


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "jobs")
    yield made
    assert made.app.queue.check() == []
    made.app.close()


# -- how often


def test_more_resumptions_than_allowed_make_the_job_dead_and_a_requeue_lets_it_go_on(world: World) -> None:
    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            world.did.append(step.cursor)
            step.advance()
            step.checkpoint(force=True)
            if step.cursor < 6:
                raise Killed

        self.step("work", work, start=0)

    handle = world.job(perform, max_resumptions=2, max_attempts=10).perform_later()
    for _ in range(3):
        world.run_and_kill()
    assert world.state(handle)["resumed"] == 2
    world.work()
    job = handle.job()
    assert job.state is JobState.DEAD
    assert "max_resumptions=2" in (job.last_error or "")
    assert world.did == [0, 1, 2]
    world.app.queue.requeue_dead(handle.id)
    for _ in range(2):  # it is counted anew
        world.run_and_kill()
    world.work()
    assert (world.did, handle.status()) == ([0, 1, 2, 3, 4, 5], JobState.DONE)


def test_a_stop_is_a_resumption_too(world: World) -> None:
    handle = world.run_and_stop(world.job(counting(world), max_resumptions=0))
    world.work()
    assert handle.status() is JobState.DEAD
    assert world.did == ["before", 0]


def test_a_run_that_is_killed_before_it_keeps_anything_counts_when_it_had_gone_on(world: World) -> None:
    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            world.did.append(step.cursor)
            if step.cursor == 0:
                step.set(1, force=True)
            raise Killed

        self.step("work", work, start=0)

    handle = world.job(perform, max_resumptions=2, max_attempts=10).perform_later()
    for _ in range(3):
        world.run_and_kill()
    world.work()
    assert (world.did, handle.status()) == ([0, 1, 1], JobState.DEAD)


def test_a_step_that_ended_is_not_done_again_though_nothing_was_kept_after_it(world: World) -> None:
    def perform(self: BaseJob) -> None:
        self.step("only", lambda step: world.did.append("only"))
        if self.attempts == 1:
            raise Killed

    handle = world.job(perform).perform_later()
    world.run_and_kill()
    world.work()
    assert (world.did, handle.status()) == (["only"], JobState.DONE)


def test_one_kill_is_one_resumption_and_an_error_is_none(world: World) -> None:
    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            world.did.append(step.cursor)
            step.advance()
            step.checkpoint(force=True)
            if step.cursor == 1:
                raise Killed
            if step.cursor < 4:
                raise RetryLater(0) if step.cursor == 2 else ValueError("again")

        self.step("work", work, start=0)

    handle = world.job(perform, max_resumptions=1).perform_later()
    world.run_and_kill()
    world.work()
    assert (world.did, handle.status()) == ([0, 1, 2, 3], JobState.DONE)


def test_a_kill_before_the_first_checkpoint_is_no_resumption(world: World) -> None:
    pending = [Killed()]

    def perform(self: BaseJob) -> None:
        def work(step: Step) -> None:
            if pending:
                raise pending.pop()

        self.step("work", work)

    handle = world.job(perform, max_resumptions=0).perform_later()
    world.run_and_kill()
    world.work()
    assert handle.status() is JobState.DONE


# -- code that changes between two runs


def changed(world: World, before: Callable[..., Any], after: Callable[..., Any]) -> JobHandle[Any]:
    """A job that was killed under one version of the code, and runs under another."""
    handle = world.job(before).perform_later()
    world.run_and_kill()
    world.app.jobs.clear()
    world.job(after, max_attempts=2)
    world.work()
    return handle


def killed_in(world: World, *names: str) -> Any:
    """A ``perform`` that does these steps, and is killed in the last."""

    def perform(self: BaseJob) -> None:
        for name in names[:-1]:
            self.step(name, lambda step: world.did.append(step.name))

        def last(step: Step) -> None:
            step.set("kept", force=True)
            raise Killed

        self.step(names[-1], last)

    return perform


def doing(world: World, *names: str) -> Any:
    def perform(self: BaseJob) -> None:
        for name in names:
            self.step(name, lambda step: world.did.append((step.name, step.cursor)))

    return perform


def test_a_completed_step_may_be_gone_and_new_ones_may_come_after(world: World) -> None:
    handle = changed(world, killed_in(world, "a", "b", "c"), doing(world, "b", "c", "d"))
    assert world.did == ["a", "b", ("c", "kept"), ("d", None)]
    assert handle.status() is JobState.DONE


@pytest.mark.parametrize("names", [("renamed",), ("a", "new", "c")])
def test_a_new_step_before_the_one_that_was_interrupted_is_an_error(
    world: World, names: tuple[str, ...]
) -> None:
    handle = changed(world, killed_in(world, "a", "c"), doing(world, *names))
    assert world.did == ["a"]
    assert handle.status() is JobState.DEAD
    assert "was interrupted in step 'c', but its code now begins with step" in (handle.job().last_error or "")


def test_the_step_after_one_that_failed_is_no_new_order(world: World) -> None:
    def perform(self: BaseJob) -> None:
        def try_it(step: Step) -> None:
            world.did.append("tried")
            raise ValueError

        def instead(step: Step) -> None:
            world.did.append(step.cursor)
            if step.cursor == 0:
                step.set(1, force=True)
                raise Killed

        try:
            self.step("try", try_it)
        except ValueError:
            self.step("instead", instead, start=0)

    handle = world.job(perform).perform_later()
    world.run_and_kill()
    world.work()
    assert world.did == ["tried", 0, "tried", 1]
    assert handle.status() is JobState.DONE


def test_what_is_kept_by_somebody_else_under_that_key_is_refused(world: World) -> None:
    handle = world.job(doing(world, "a")).perform_later()
    held = world.app.queue.lease_one()
    assert held is not None
    world.app.queue.nack(held, delay=0, state={STEPS: ["mine"]})
    world.work()
    assert handle.status() is JobState.DEAD
    assert "none of their making" in (handle.job().last_error or "")
    assert world.did == []


# -- async


def test_async_steps_are_awaited_and_go_on_after_a_kill(world: World) -> None:
    async def perform(self: BaseJob) -> None:
        async def work(step: Step) -> None:
            while step.cursor < 3:
                await asyncio.sleep(0)
                world.did.append(step.cursor)
                step.advance()
                step.checkpoint(force=True)
                if step.cursor == 2 and self.attempts == 1:
                    raise Killed

        await self.step_async("plain", lambda step: world.did.append("plain"))
        await self.step_async("work", work, start=0)
        self.step("last", lambda step: world.did.append("last"))

    handle = world.job(perform).perform_later()
    world.run_and_kill()
    world.work()
    assert world.did == ["plain", 0, 1, 2, "last"]
    assert handle.status() is JobState.DONE


async def nothing(step: Step) -> None:
    raise AssertionError("it was not to run")


def forgotten_at_the_end() -> Any:
    async def perform(self: BaseJob) -> None:
        self.step_async("one", nothing)

    return perform


def forgotten_before_another() -> Any:
    async def perform(self: BaseJob) -> None:
        self.step_async("one", nothing)
        await self.step_async("two", nothing)

    return perform


@pytest.mark.parametrize("made", [forgotten_at_the_end, forgotten_before_another])
def test_a_step_that_is_not_awaited_is_an_error(world: World, made: Callable[[], Any]) -> None:
    with pytest.raises(StepError, match="step 'one' of Import was not awaited, so it did not run"):
        world.job(made()).perform_now()


def test_async_work_in_a_plain_step_is_an_error_and_leaves_no_coroutine(world: World) -> None:
    def direct(self: BaseJob) -> None:
        self.step("one", nothing)

    def hidden(self: BaseJob) -> None:
        self.step("one", lambda step: nothing(step))

    def elsewhere(self: BaseJob) -> None:
        self.step_async("one", nothing)

    for perform, text in [
        (direct, "step 'one' is async"),
        (hidden, "step 'one' returned coroutine"),
        (elsewhere, "is a plain function: use self.step"),
    ]:
        with pytest.raises(TypeError, match=text):
            world.job(perform).perform_now()
        world.app.jobs.clear()


@pytest.mark.parametrize("beside", [None, ValueError("beside")])
def test_an_interruption_in_a_group_of_tasks(world: World, beside: Exception | None) -> None:
    async def perform(self: BaseJob) -> None:
        async def fail() -> None:
            if beside is not None:
                raise beside

        async def work(step: Step) -> None:
            async with asyncio.TaskGroup() as group:
                world.at_first()
                for _ in range(2):
                    group.create_task(asyncio.to_thread(step.checkpoint))
                group.create_task(fail())

        await self.step_async("work", work)

    handle = world.run_and_stop(world.job(perform, max_attempts=1))
    assert handle.status() is (JobState.READY if beside is None else JobState.DEAD)
    assert handle.job().attempts == (0 if beside is None else 1)
