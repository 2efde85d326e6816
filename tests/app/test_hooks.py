"""People's own code around jobs: hooks, middleware, events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from nobroker import (
    AbortEnqueue,
    App,
    BaseJob,
    JobContext,
    JobNotFoundError,
    JobState,
)
from tests.app.spying import around, hook, nothing_seen, seen  # noqa: F401 - a fixture
from tests.app.working import work

ALL = [
    "middleware 1 in", "middleware 2 in", "around in", "before", "before 2", "perform", "after",
    "around out", "middleware 2 out", "middleware 1 out",
]  # fmt: skip


@pytest.mark.parametrize("is_async", [False, True])
def test_the_order_around_a_run(app: App, is_async: bool) -> None:
    if is_async:

        @app.job
        async def job() -> None:
            await asyncio.sleep(0)
            seen.append("perform")
    else:

        @app.job
        def job() -> None:
            seen.append("perform")

    app.middleware(around("middleware 1"))
    app.middleware(around("middleware 2"))
    job.before_perform(hook("before"))
    job.before_perform(hook("before 2"))
    job.around_perform(around("around"))
    job.after_perform(hook("after"))
    job.perform_later()
    assert seen == []
    work(app)
    assert seen == ALL
    seen.clear()
    job.perform_now()
    assert seen == ALL, "the same in perform_now"


@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_of_a_class_are_its_methods(app: App, is_async: bool) -> None:
    class Hooks(BaseJob):
        def before_enqueue(self) -> None:
            seen.append(
                ("before_enqueue", self.id, self.attempts, self.arguments.args, self.priority, self.queue)
            )

        def around_enqueue(self) -> Iterator[None]:
            seen.append("around_enqueue in")
            yield
            seen.append("around_enqueue out")

        def after_enqueue(self) -> None:
            seen.append(("after_enqueue", self.id is not None))

        def before_perform(self) -> None:
            seen.append(("before_perform", self.attempts))

        @contextmanager
        def around_perform(self) -> Iterator[None]:
            seen.append("around_perform in")
            yield
            seen.append("around_perform out")

        def after_perform(self) -> None:
            seen.append("after_perform")

    if is_async:

        @app.register
        class Job(Hooks):
            async def perform(self, x: int) -> None:
                seen.append("perform")
    else:

        @app.register
        class Job(Hooks):  # type: ignore[no-redef]
            def perform(self, x: int) -> None:
                seen.append("perform")

    Job.set(priority=7, queue="q").perform_later(3)
    assert seen == [
        ("before_enqueue", None, 0, (3,), 7, "q"), "around_enqueue in", "around_enqueue out",
        ("after_enqueue", True),
    ]  # fmt: skip
    seen.clear()
    work(app)
    assert seen == [
        "around_perform in", ("before_perform", 1), "perform", "after_perform", "around_perform out"
    ]  # fmt: skip


def test_hooks_of_async_jobs_may_be_async(app: App) -> None:
    @app.register
    class Job(BaseJob):
        async def before_perform(self) -> None:
            await asyncio.sleep(0)
            seen.append("before")

        async def around_perform(self) -> AsyncIterator[None]:
            await asyncio.sleep(0)
            seen.append("in")
            yield
            await asyncio.sleep(0)
            seen.append("out")

        async def after_perform(self) -> None:
            await asyncio.sleep(0)
            seen.append("after")

        async def perform(self) -> None:
            seen.append("perform")

    @asynccontextmanager
    async def own(job: JobContext) -> AsyncIterator[None]:
        seen.append("own in")
        yield
        seen.append("own out")

    Job.definition.hooks.add("around_perform", own)  # type: ignore[union-attr]
    Job.perform_later()
    work(app)
    assert seen == ["in", "own in", "before", "perform", "after", "own out", "out"]


def test_an_async_hook_that_nothing_would_await_is_refused(app: App) -> None:
    async def hook(job: JobContext) -> None: ...

    async def generator(job: JobContext) -> AsyncIterator[None]:
        yield

    @app.job
    def plain() -> None: ...

    @app.job
    async def waiting() -> None: ...

    for add in (plain.before_perform, plain.after_perform, plain.around_perform, plain.after_dead):
        for one in (hook, generator):
            with pytest.raises(TypeError, match="nothing would await it"):
                add(one)
    for add in (waiting.before_enqueue, waiting.after_enqueue, waiting.after_discard, waiting.after_dead):
        with pytest.raises(TypeError, match="nothing would await it"):
            add(hook)
    with pytest.raises(TypeError, match="must be a function"):
        plain.before_perform(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has a yield"):
        plain.before_perform(around("x"))

    class Job(BaseJob):
        async def before_enqueue(self) -> None: ...

        async def perform(self) -> None: ...

    with pytest.raises(TypeError, match=r"before_enqueue of .*Job is async"):
        app.register(Job)
    for one in (hook, generator):
        with pytest.raises(TypeError, match="plain generator function"):
            app.middleware(one)
        with pytest.raises(TypeError, match="takes a plain function"):
            app.on_start(one)


def test_a_hook_that_returns_something_to_await_is_no_hook(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async def later() -> None: ...

    @app.job(max_attempts=1)
    def job() -> None: ...

    job.after_enqueue(lambda its: later())
    handle = job.perform_later()
    assert "which nothing would await here" in str(caplog.records[-1].exc_info)
    job.before_perform(lambda its: later())
    work(app)
    assert "TypeError: it returned coroutine, which nothing would await here" in str(handle.job().last_error)


# -- enqueueing


@pytest.mark.parametrize("where", ["before_enqueue", "around_enqueue"])
def test_abort_enqueue_skips_the_job(app: App, where: str) -> None:
    @app.job
    def job(x: int) -> None: ...

    def before(its: JobContext) -> None:
        if its.arguments.args == (13,):
            raise AbortEnqueue("unlucky")

    def around_(its: JobContext) -> Iterator[None]:
        before(its)
        yield

    getattr(job, where)(before if where == "before_enqueue" else around_)
    job.after_enqueue(hook("after"))
    skipped, enqueued = job.perform_later(13), job.perform_later(14)
    assert (skipped.created, enqueued.created, seen) == (False, True, ["after"])
    assert app.queue.stats().total == 1
    with pytest.raises(JobNotFoundError, match="raised AbortEnqueue"):
        skipped.result()


def test_what_an_enqueue_hook_raises_is_raised_with_its_name_and_nothing_is_enqueued(app: App) -> None:
    @app.job(name="job")
    def job() -> None: ...

    @job.before_enqueue
    def breaks(its: JobContext) -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x") as raised:
        job.perform_later()
    assert "the hook before_enqueue of job: " in raised.value.__notes__[0]
    assert "breaks" in raised.value.__notes__[0]
    assert app.queue.stats().total == 0


def test_what_after_enqueue_raises_is_told_and_the_job_is_enqueued(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(name="job")
    def job() -> None: ...

    @job.after_enqueue
    def breaks(its: JobContext) -> None:
        raise ValueError("x")

    job.after_enqueue(hook("second"))
    assert job.perform_later().status() == JobState.READY
    assert seen == ["second"]
    record = next(r for r in caplog.records if "hook.failed" in r.getMessage())
    assert "hook=after_enqueue" in record.getMessage()
    assert "breaks" in record.getMessage()
    assert record.exc_info


def test_bulk_enqueues_run_no_hooks_unless_asked(app: App) -> None:
    @app.job
    def job(x: int) -> None: ...

    @job.before_enqueue
    def before(its: JobContext) -> None:
        seen.append(its.arguments.args[0])
        if its.arguments.args[0] == 2:
            raise AbortEnqueue

    calls = [job.build(x) for x in range(1, 4)]
    assert len(app.perform_all_later(calls)) == 3
    assert (seen, app.queue.stats().total) == ([], 3)
    handles = app.perform_all_later(calls, hooks=True)
    assert seen == [1, 2, 3]
    assert [handle.created for handle in handles] == [True, False, True]
    assert app.queue.stats().total == 5
