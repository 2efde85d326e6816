"""The block of a batch: what is collected in it, and what becomes of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    AbortEnqueue,
    Batch,
    JobHandle,
    JobNotFoundError,
    JobState,
    SerializationError,
    current_job,
)
from tests.app.trial import WATCH, Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    yield made
    made.end()


def test_an_exception_that_leaves_the_block_enqueues_nothing(trial: Trial) -> None:
    handles: list[JobHandle[Any]] = []
    block = trial.app.batch(**trial.callbacks())

    def leave_by_an_exception() -> None:
        with block:
            handles.append(trial.work.perform_later("a"))
            handles.extend(trial.app.perform_all_later([trial.work.build("b")]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave_by_an_exception()
    batch = block._batch
    assert len(trial.app.queue) == 0
    for handle in handles:
        assert not handle.created
        with pytest.raises(JobNotFoundError, match="left by ZeroDivisionError"):
            handle.id  # noqa: B018
    for look in (lambda: batch.status, lambda: batch.total, lambda: batch.description, batch.add):
        with pytest.raises(JobNotFoundError, match="no batch 'batch-"):
            look()


def test_a_block_is_written_as_a_whole_or_not_at_all(trial: Trial) -> None:
    made = []

    def block() -> None:
        with trial.app.batch():
            made.append(trial.work.perform_later("a"))
            trial.work.set(metadata="x" * 9_000_000).perform_later("b")  # found out at the write

    with pytest.raises(SerializationError):
        block()
    assert len(trial.app.queue) == 0
    with pytest.raises(JobNotFoundError, match="write of its batch failed: SerializationError"):
        made[0].id  # noqa: B018


def test_handles_have_no_id_until_the_block_ends(trial: Trial) -> None:
    with trial.app.batch("many", metadata={1, 2}) as batch:
        one = trial.work.perform_later("a")
        more = trial.app.perform_all_later([trial.work.build(name) for name in "bc"])
        with pytest.raises(JobNotFoundError, match="has not ended"):
            one.id  # noqa: B018
        with pytest.raises(JobNotFoundError, match="has not ended"):
            more[0].status()
        assert (batch.status, batch.total, batch.done, batch.progress) == ("open", 3, 0, 0.0)
        with pytest.raises(RuntimeError, match="has not ended"):
            batch.add()
        assert len(trial.app.queue) == 0
    assert [handle.job().payload["args"] for handle in (one, *more)] == [["a"], ["b"], ["c"]]
    assert one.created
    found = trial.app.find_batch(batch.id)
    assert (found.description, found.metadata, found.status, found.total) == ("many", {1, 2}, "running", 3)
    trial.run()
    assert (found.description, found.metadata, found.status) == ("many", {1, 2}, "succeeded")
    assert one.result() == "a"


def test_jobs_of_other_threads_and_applications_do_not_belong(trial: Trial, tmp_path: Path) -> None:
    other = Trial(tmp_path / "other")
    with trial.app.batch() as batch:
        thread = threading.Thread(target=trial.work.perform_later, args=("thread",))
        thread.start()
        thread.join()
        other.work.perform_later("other")
        trial.work.perform_later("a")
    trial.work.perform_later("behind")
    assert (batch.total, len(trial.app.queue), len(other.app.queue)) == (1, 4, 1)
    assert trial.run() == ["thread", "a", "behind"]
    other.app.close()


def test_jobs_of_tasks_belong_to_the_block_they_start_in(trial: Trial) -> None:
    ended = asyncio.Event()

    async def task(name: str) -> None:
        await asyncio.sleep(0)
        trial.work.perform_later(name)

    async def late() -> None:
        await ended.wait()
        trial.work.perform_later("late")

    async def main() -> tuple[Batch, Batch]:
        with trial.app.batch() as one:
            straggler = asyncio.create_task(late())
            await asyncio.gather(task("a"), task("b"), asyncio.to_thread(trial.work.perform_later, "c"))
        with trial.app.batch() as other:
            ended.set()
            await straggler  # it knows the first block only, which is over
        return one, other

    one, other = asyncio.run(main())
    assert (one.total, other.total) == (3, 0)
    assert sorted(trial.run()) == ["a", "b", "c", "late"]


def test_two_tasks_have_blocks_of_their_own(trial: Trial) -> None:
    async def block(*names: str) -> Batch:
        with trial.app.batch() as batch:
            for name in names:
                await asyncio.sleep(0)
                trial.work.perform_later(name)
        return batch

    async def main() -> list[Batch]:
        return await asyncio.gather(block("a", "b", "c"), block("d"))

    assert [batch.total for batch in asyncio.run(main())] == [3, 1]
    trial.run()


def test_the_inner_block_has_its_own_jobs(trial: Trial) -> None:
    with trial.app.batch() as outer:
        trial.work.perform_later("a")
        with trial.app.batch() as inner:
            trial.work.perform_later("b")
            trial.work.perform_later("c")
        assert inner.status == "running"
        trial.work.perform_later("d")
    assert (outer.total, inner.total) == (2, 2)
    trial.run()
    assert (outer.status, inner.status) == ("succeeded", "succeeded")


def test_a_block_is_entered_once(trial: Trial) -> None:
    block = trial.app.batch()
    with block:
        pass
    with pytest.raises(RuntimeError, match="entered once"), block:
        pass
    trial.run()


def test_known_jobs_do_not_join(trial: Trial) -> None:
    known = trial.work.set(job_id="known", wait=60).perform_later("known")
    with trial.app.batch(**trial.callbacks()) as batch:
        handles = [trial.work.set(job_id=job_id).perform_later(job_id) for job_id in ("x", "known", "x", "y")]
    assert [handle.created for handle in handles] == [True, False, False, True]
    assert [handle.id for handle in handles] == ["x", "known", "x", "y"]
    assert batch.total == 2
    assert trial.run() == ["x", "y", ("success", "succeeded", 2, 2, 0), ("finish", "succeeded", 2, 2, 0)]
    assert known.status() is JobState.READY


def test_enqueue_hooks_of_members(trial: Trial) -> None:
    told: list[Any] = []

    @trial.app.job
    def hooked(name: str) -> None: ...

    @hooked.before_enqueue
    def before(job: Any) -> None:
        told.append(("before", job.arguments.args[0]))
        if job.arguments.args[0] == "skipped":
            raise AbortEnqueue

    @hooked.after_enqueue
    def after(job: Any) -> None:
        told.append(("after", job.arguments.args[0], job.id))

    with trial.app.batch() as batch:
        one = hooked.perform_later("one")
        hooked.perform_later("skipped")
        assert told == [("before", "one"), ("before", "skipped")]
    assert told[2:] == [("after", "one", one.id)]
    assert batch.total == 1
    trial.run()


def test_what_is_refused(trial: Trial, tmp_path: Path) -> None:
    other = Trial(tmp_path / "other")
    with pytest.raises(TypeError, match="on_success must be what build"):
        trial.app.batch(on_success=trial.tell)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="another App"):
        trial.app.batch(on_finish=other.tell.build("x"))
    with pytest.raises(TypeError, match="description must be a str"):
        trial.app.batch(trial.work)  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="metadata of the batch"):
        trial.app.batch(metadata=object())
    with pytest.raises(TypeError, match="batch_id"):
        trial.app.find_batch(7)  # type: ignore[arg-type]
    with pytest.raises(JobNotFoundError, match="no batch 'nothing'"):
        trial.app.find_batch("nothing")
    job = trial.work.set(job_id="a-job").perform_later("a")
    with pytest.raises(JobNotFoundError, match="no batch 'a-job'"):
        trial.app.find_batch(job.id)
    with pytest.raises(ValueError, match="this library keeps records"):
        trial.work.set(queue=WATCH)
    trial.run()


def test_only_members_have_a_batch(trial: Trial) -> None:
    seen: list[Any] = []

    @trial.app.job
    def see() -> None:
        seen.append(current_job().batch)

    see.perform_later()
    with trial.app.batch() as batch:
        see.perform_later()
        see.perform_now()
    trial.run()
    assert [found and found.id for found in seen] == [None, None, batch.id]
