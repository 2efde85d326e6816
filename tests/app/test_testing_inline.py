"""`App.testing`: jobs run where they are enqueued; threads, batches and chains in either mode."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nobroker import JobState, NobrokerError
from nobroker.app import chain, stage
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


@pytest.fixture
def inline(world: World) -> Iterator[AppTesting]:
    with world.app.testing(mode="inline") as testing:
        yield testing
        assert testing.queue.check() == []


# -- inline


def test_inline_runs_at_once_with_what_travelled(world: World, inline: AppTesting) -> None:
    given = ["ann", (1, 2)]
    handle = world.send.perform_later(given)
    assert world.did == [(given, "en")]
    assert world.did[0][0] is not given
    assert handle.result() == given
    assert inline.jobs == []
    inline.assert_enqueued(world.send, times=1)


def test_inline_retries_with_the_clock_moved(world: World, inline: AppTesting) -> None:
    world.errors = [ConnectionError("one"), RetryLater(3600), ConnectionError("two")]
    handle = world.shaky.perform_later()
    assert world.did == [1, 2, 3, 4]
    assert handle.result() == "done"


def test_inline_raises_what_no_rule_deals_with_after_one_try(world: World, inline: AppTesting) -> None:
    world.errors = [ValueError("broken")]
    with pytest.raises(ValueError, match="broken"):
        world.shaky.set(job_id="mine").perform_later()
    assert world.did == [1]
    assert world.app.handle("mine").status() is JobState.DEAD
    assert inline.jobs == []


def test_inline_delays_are_not_waited_for(world: World, inline: AppTesting) -> None:
    world.send.set(wait=timedelta(days=3)).perform_later("ann")
    assert world.did == [("ann", "en")]


def test_inline_jobs_run_what_they_enqueue_themselves(world: World, inline: AppTesting) -> None:
    world.report.perform_later("mon")
    world.later.perform_later(2)
    assert world.did == ["mon", ("mon", "en"), 0, 1, 2]


def test_inline_under_an_event_loop(world: World, inline: AppTesting) -> None:
    async def main() -> Any:
        return world.later.perform_later(1).result()

    assert asyncio.run(main()) == 1
    assert world.did == [0, 1]


def test_inline_many_at_once_run_all_and_the_first_error_is_raised(world: World, inline: AppTesting) -> None:
    world.errors = [ValueError("first"), ValueError("second")]
    calls = [world.shaky.build(), world.shaky.build(), world.send.build("ann")]
    with pytest.raises(ValueError, match="first") as caught:
        world.app.perform_all_later(calls)
    assert world.did == [1, 1, ("ann", "en")]
    assert caught.value.__notes__ == ["1 more of the jobs that were enqueued together failed"]


def test_switching_the_mode_leaves_what_is_held(world: World, held: AppTesting) -> None:
    world.send.set(priority=9).perform_later("held")
    with held.inline():
        world.send.perform_later("inline")
        with held.hold():
            world.send.perform_later("held, too")
    assert world.did == [("inline", "en")]
    held.drain()
    assert world.did[1:] == [("held", "en"), ("held, too", "en")]


def test_a_job_that_asks_for_ever_more_runs_is_noticed(
    world: World, inline: AppTesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MOST_RUNS", 30)

    @world.app.job
    def never() -> None:
        raise RetryLater(1)

    with pytest.raises(NobrokerError, match=r"never .* ran 30 times and still wants to run again"):
        never.perform_later()


def test_inline_of_a_paused_queue_stays_where_it_is(world: World, inline: AppTesting) -> None:
    inline.queue.pause(lane="mails")
    world.send.perform_later("ann")
    assert world.did == []
    inline.queue.resume(lane="mails")
    inline.drain()
    assert world.did == [("ann", "en")]


# -- threads


@pytest.mark.parametrize("mode", ["hold", "inline"])
def test_other_threads_belong_to_it(world: World, mode: str) -> None:
    failures: list[BaseException] = []

    def request(number: int) -> None:
        try:
            for _ in range(5):
                world.send.perform_later(number)
            if mode == "inline" and number % 2:
                world.errors.append(ValueError(str(number)))
        except BaseException as error:  # looked at below
            failures.append(error)

    with world.app.testing(mode) as testing:
        threads = [threading.Thread(target=request, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        testing.drain()
        assert failures == []
        testing.assert_enqueued(world.send, times=40)
        assert sorted(to for to, _ in world.did) == sorted(list(range(8)) * 5)
        assert testing.queue.check() == []


def test_inline_errors_are_raised_in_the_thread_that_enqueued(world: World, inline: AppTesting) -> None:
    started = threading.Barrier(2)
    caught: dict[str, str] = {}

    @world.app.job
    def meet(name: str) -> None:
        started.wait(timeout=30)  # both run, at the same time
        raise ValueError(name)

    def request(name: str) -> None:
        try:
            meet.perform_later(name)
        except ValueError as error:
            caught[name] = str(error)

    threads = [threading.Thread(target=request, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == {"a": "a", "b": "b"}


# -- batches and chains


def test_a_batch_and_its_callback(world: World) -> None:
    for mode in ("hold", "inline"):
        world.did.clear()
        with world.app.testing(mode) as testing:
            with world.app.batch("import", on_success=world.send.build("over")) as batch:
                world.send.perform_later(1)
                world.later.perform_later(0)
                assert world.did == []
            if mode == "hold":
                assert [job.args for job in testing.jobs] == [(1,), (0,)]
                testing.drain()
            assert world.did == [(1, "en"), 0, ("over", "en")]
            assert batch.status == "succeeded"
            assert testing.jobs == []
            assert testing.queue.check() == []


def test_a_chain_runs_in_its_order_and_waits_behind_one_that_fails(world: World) -> None:
    for mode in ("hold", "inline"):
        world.did.clear()
        with world.app.testing(mode) as testing:
            chain(world.send.set(wait=5).build(1), world.shaky.build(), world.send.set(wait=60).build(3))
            if mode == "hold":
                assert [(job.wait, job.held) for job in testing.jobs] == [(5, False), (0, True), (0, True)]
                assert str(testing.jobs[1]) == "shaky() on 'default', after others"
                testing.drain(advance=True)
            assert world.did == [(1, "en"), 1, (3, "en")]
            world.did.clear()
            world.errors = [Dead("no")]
            with testing.hold():
                chain(world.shaky.build(), world.send.build("behind"))
            with pytest.raises(Dead, match="no"):
                testing.drain()
            testing.drain(advance=True)
            assert world.did == [1]
            assert [(job.args, job.held) for job in testing.jobs] == [(("behind",), True)]
            assert testing.queue.check() == []
