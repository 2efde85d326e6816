"""The end of a batch comes once, whoever tries to bring it about, and wherever they are cut short."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import Batch, BatchFinishedError, QueueFullError
from nobroker.app import watching
from nobroker.app.watching import Usher
from nobroker.clock import ManualClock
from tests.app.dying import Death, DyingQueue
from tests.app.trial import Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    yield made
    made.end()


def ended_batch(trial: Trial, joins: int) -> Batch:
    """A batch whose members are all done, and nobody has looked since."""
    with trial.app.batch(**trial.callbacks()) as batch:
        trial.work.perform_later("a")
    for _ in range(joins):
        with batch.add():
            trial.work.perform_later("b")
    work_off(trial)
    return batch


def work_off(trial: Trial) -> None:
    """Run what is due, without an usher."""
    for job in trial.app.queue.lease(1000):
        trial.app.queue.ack(job, result=trial.app.runner(job))


def callbacks(trial: Trial) -> list[Any]:
    return [job.payload["args"][0] for job in trial.app.queue.list_jobs() if job.payload.get("job") == "tell"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("keep_done", [3600.0, 0.0], ids=["kept", "forgotten"])
def test_whoever_ends_a_batch_may_die_anywhere(tmp_path: Path, keep_done: float, after: bool) -> None:
    """At each write of the end, with two who die there in turn; ids may be forgotten meanwhile."""
    died = 0
    for writes in range(8):
        trial = Trial(tmp_path / str(writes), keep_done=keep_done)
        batch = ended_batch(trial, joins=2)
        queue = trial.app.queue
        try:
            for _ in range(2):
                Usher(DyingQueue(queue, writes, after=after)).look()  # type: ignore[arg-type]
        except Death:
            died += 1
        queue.compact()
        Usher(queue).look()
        Usher(queue).look()
        assert callbacks(trial) == ["success", "finish"], writes
        queue.compact()
        assert trial.run()[-1] == ("finish", "succeeded", 3, 3, 0)
        if keep_done:
            assert batch.status == "succeeded"
        trial.end()
    assert died == 6  # the end, and putting away two joins, the batch, and the two records of its end


def test_many_ushers_at_once(trial: Trial) -> None:
    batches = [ended_batch(trial, joins=number % 3) for number in range(40)]
    ushers = [Usher(trial.app.queue) for _ in range(4)]
    barrier = threading.Barrier(len(ushers))

    def look(usher: Usher) -> None:
        barrier.wait()
        for _ in range(3):
            usher.look()

    threads = [threading.Thread(target=look, args=(usher,)) for usher in ushers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(callbacks(trial)) == ["finish"] * 40 + ["success"] * 40
    assert sum(usher.moved for usher in ushers) == 80
    assert {batch.status for batch in batches} == {"succeeded"}


def test_joining_and_ending_exclude_each_other(tmp_path: Path) -> None:
    """Jobs join from two threads while everything is worked off: each is counted, or refused."""
    for round_ in range(5):
        trial = Trial(tmp_path / str(round_))
        with trial.app.batch(**trial.callbacks()) as batch:
            trial.work.perform_later("a")
        accepted: list[int] = []

        def join(batch_id: str, trial: Trial, accepted: list[int]) -> None:
            while True:
                try:
                    with Batch(trial.app, batch_id).add():
                        trial.work.perform_later("b")
                except BatchFinishedError:
                    return
                accepted.append(1)
                if len(accepted) >= 100:
                    return

        threads = [threading.Thread(target=join, args=(batch.id, trial, accepted)) for _ in range(2)]
        for thread in threads:
            thread.start()
        usher = Usher(trial.app.queue)
        rng = random.Random(round_)
        while batch.status == "running":
            if rng.random() < 0.5:
                work_off(trial)
            usher.look()
        for thread in threads:
            thread.join()
        assert batch.counts() == (1 + len(accepted), 1 + len(accepted), 0)
        trial.run()
        told = [index for index, entry in enumerate(trial.log) if type(entry) is tuple]
        assert told == [1 + len(accepted), 2 + len(accepted)]  # once each, behind all members
        trial.end()


def test_a_dead_member_that_is_requeued_holds_up_the_end(trial: Trial) -> None:
    """Also where it was counted as dead already, and nothing but the others was waited for."""
    with trial.app.batch(**trial.callbacks()) as batch:
        trial.work.perform_later("bad")
    with batch.add():
        trial.work.set(wait=60).perform_later("b")
    [bad] = trial.app.queue.lease()
    trial.app.queue.nack(bad, dead=True)
    usher = Usher(trial.app.queue)
    usher.look()
    trial.app.queue.requeue_dead()
    trial.clock.advance(60)
    [bad, other] = trial.app.queue.lease(2)
    trial.app.queue.ack(other)
    usher.look()
    assert (batch.status, batch.counts()) == ("running", (2, 1, 0))
    trial.app.queue.ack(bad)
    usher.look()
    assert (batch.status, batch.counts()) == ("succeeded", (2, 2, 0))
    trial.run()


def test_looking_at_a_batch_with_many_joins_is_not_quadratic(trial: Trial) -> None:
    """Ending a batch takes a few calls for each join, and a look that ends nothing takes none for them."""
    calls = []
    for joins in (20, 40):
        with trial.app.batch() as batch:
            trial.work.set(wait=60).perform_later("a")
        for _ in range(joins):
            with batch.add():
                trial.work.perform_later("b")
        trial.app.queue.ack_many(trial.app.queue.lease(100))
        counting = DyingQueue(trial.app.queue, 10_000, after=False)
        usher = Usher(counting)  # type: ignore[arg-type]
        usher.look()
        assert counting.calls < 10
        for _ in range(100):
            usher.look()
        assert counting.calls < 500
        trial.clock.advance(60)
        trial.app.queue.ack_many(trial.app.queue.lease(100))
        counting.calls = 0
        while batch.status == "running" or trial.standing():
            usher.look()
        calls.append(counting.calls)
    assert calls[1] < 2.5 * calls[0]


# -- beside a worker


def service(trial: Trial, **options: Any) -> Any:
    from nobroker.app.serving import Service

    return Service(trial.app, handle_signals=False, **options)


def test_the_usher_stands_beside_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks run while the worker goes on, because it is noticed that members have run; the look at
    everything comes once in the test, at the start.
    """
    monkeypatch.setattr(watching, "EVERY_S", 3600.0)
    trial = Trial(tmp_path)
    told = threading.Event()

    @trial.app.job
    def last() -> None:
        told.set()

    running = service(trial, threads=2)
    thread = threading.Thread(target=running.run)
    thread.start()
    for _ in range(3):
        told.clear()
        with trial.app.batch(on_success=last.build()) as batch:
            trial.work.perform_later("a")
            trial.work.perform_later("b")
        assert told.wait(20)
        assert batch.status == "succeeded"
    told.clear()
    batch = ended_batch(trial, joins=1)  # maybe ended by somebody else
    running.stop()
    thread.join()
    assert "nobroker-usher" not in {thread.name for thread in threading.enumerate()}
    trial.run()
    assert batch.status == "succeeded"
    trial.end()


def test_an_usher_goes_on_after_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path)
    told = threading.Event()

    @trial.app.job
    def last() -> None:
        told.set()

    queue = trial.app.queue
    errors = [QueueFullError("no room"), RuntimeError("a mistake of ours")]
    enqueue_all, stats = queue.enqueue_all, queue.stats

    def failing_enqueue(*args: Any, **options: Any) -> Any:
        if len(errors) == 1:
            raise errors.pop()
        return enqueue_all(*args, **options)

    def failing_stats(**options: Any) -> Any:
        if len(errors) == 2 and "lane" in options:
            raise errors.pop()
        return stats(**options)

    with trial.app.batch(on_success=last.build()):
        trial.work.perform_later("a")
    monkeypatch.setattr(queue, "enqueue_all", failing_enqueue)
    monkeypatch.setattr(queue, "stats", failing_stats)
    running = service(trial)
    thread = threading.Thread(target=running.run)
    with caplog.at_level(logging.WARNING, "nobroker.app"):
        thread.start()
        assert told.wait(20)
        running.stop()
        thread.join()
    assert errors == []
    assert "no room" in caplog.text
    assert "a mistake of ours" in caplog.text
    monkeypatch.undo()
    trial.run()
    trial.end()


def test_a_record_that_is_not_understood_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = Trial(tmp_path)
    queue = trial.app.queue
    far = 36_000 * 86400.0
    odd = [{"watch": "batch"}, {"watch": "held", "links": 7}, {"watch": "lost"}, {"watch": "end"}]
    for number, payload in enumerate([*odd, {"watch": "of a later version"}, ["nothing of ours"]]):
        queue.enqueue(payload, lane="nobroker.watch", delay=far, job_id=f"odd-{number}")
    with trial.app.batch(**trial.callbacks()):
        trial.work.perform_later("a")
    with caplog.at_level(logging.ERROR, "nobroker.app"):
        assert trial.run()[-1] == ("finish", "succeeded", 1, 1, 0)
    for number in range(len(odd)):
        assert f"record=odd-{number}" in caplog.text
    assert trial.standing() == 6
    queue.purge(lane="nobroker.watch")
    trial.end()


def test_once_works_off_what_becomes_due_by_it(trial: Trial) -> None:
    """Batches whose callbacks make batches, to their end; no more than max_jobs in all."""
    made: list[Batch] = []

    @trial.app.job
    def again(left: int) -> None:
        trial.log.append(left)
        if left:
            with trial.app.batch(on_success=again.build(left - 1)) as batch:
                trial.work.perform_later("a")
            made.append(batch)

    again.perform_later(3)
    stats = service(trial, once=True, max_jobs=4).run()
    assert (stats.leased, stats.succeeded, trial.log) == (4, 4, [3, "a", 2, "a"])
    stats = service(trial, once=True).run()
    assert (stats.leased, trial.log) == (3, [3, "a", 2, "a", 1, "a", 0])
    assert [batch.status for batch in made] == ["succeeded"] * 3


def test_once_ends_when_it_is_stopped(trial: Trial) -> None:
    """Also where something becomes due by the last job; that is left to others."""
    running = service(trial, once=True)

    @trial.app.job
    def stopping() -> None:
        running.stop()

    with trial.app.batch(**trial.callbacks()):
        stopping.perform_later()
    assert running.run().leased == 1
    assert trial.log == []
    assert trial.run() == [("success", "succeeded", 1, 1, 0), ("finish", "succeeded", 1, 1, 0)]


def test_queues_that_are_not_served_are_looked_after(trial: Trial) -> None:
    with trial.app.batch(on_success=trial.tell.set(queue="other").build("success")) as batch:
        trial.work.set(queue="mine").perform_later("a")
    assert trial.run(queues=["mine"]) == ["a"]
    assert batch.status == "succeeded"
    assert trial.run() == [("success", "succeeded", 1, 1, 0)]


def test_time_of_the_wall_clock_does_not_matter(trial: Trial) -> None:
    """Records stand in the far future by the queue's own time."""
    assert isinstance(trial.clock, ManualClock)
    with trial.app.batch(**trial.callbacks()):
        trial.work.set(wait=60).perform_later("a")
    trial.clock.step_wall(200 * 366 * 86400.0)
    assert trial.run() == []
    trial.clock.advance(60)
    assert trial.run()[-1] == ("finish", "succeeded", 1, 1, 0)
