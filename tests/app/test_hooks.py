"""People's own code around jobs: hooks, middleware, events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import pytest

from nobroker import AbortEnqueue, App, BaseJob, Dead, Discard, JobContext, JobNotFoundError, JobState, Retry
from nobroker import current_job
from nobroker.clock import ManualClock
from tests.app.working import work, work_on

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def around(name: str) -> Callable[[JobContext], Iterator[None]]:
    def hook(job: JobContext) -> Iterator[None]:
        seen.append(f"{name} in")
        yield
        seen.append(f"{name} out")

    return hook


def hook(name: str) -> Callable[..., None]:
    def hook(job: JobContext, *args: Any) -> None:
        seen.append(name)

    return hook


ALL = ["middleware 1 in", "middleware 2 in", "around in", "before", "before 2", "perform", "after", "around out",
       "middleware 2 out", "middleware 1 out"]  # fmt: skip


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
            seen.append(("before_enqueue", self.id, self.attempts, self.arguments.args, self.priority, self.queue))

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
        ("before_enqueue", None, 0, (3,), 7, "q"), "around_enqueue in", "around_enqueue out", ("after_enqueue", True)
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

    with pytest.raises(TypeError, match="before_enqueue of .*Job is async"):
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


# -- runs that fail


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("where", ["before_perform", "around_perform", "leaving", "middleware"])
def test_what_a_hook_raises_counts_as_if_the_job_had_raised_it_and_names_the_hook(
    app: App, clock: ManualClock, where: str, is_async: bool
) -> None:
    def breaks(its: JobContext) -> None:
        raise OSError("from the hook")

    def breaks_around(its: JobContext) -> Iterator[None]:
        if where != "leaving":
            breaks(its)
        yield
        breaks(its)

    if is_async:

        @app.job(name="job", retry=[Retry(OSError, attempts=2)])
        async def job() -> None:
            seen.append("perform")
    else:

        @app.job(name="job", retry=[Retry(OSError, attempts=2)])
        def job() -> None:
            seen.append("perform")

    if where == "middleware":
        app.middleware(breaks_around)
    elif where == "before_perform":
        job.before_perform(breaks)
    else:
        job.around_perform(breaks_around)
    handle = job.perform_later()
    work_on(app, clock, 3)
    found = handle.job()
    assert (found.state, found.attempts) == (JobState.DEAD, 2)
    name = {"middleware": "the middleware", "leaving": "the hook around_perform of job"}.get(
        where, f"the hook {where} of job"
    )
    assert f"raised by {name}" in str(found.last_error)
    assert ("breaks" if where == "before_perform" else "breaks_around") in str(found.last_error)
    assert seen == (["perform"] * 2 if where == "leaving" else [])


def test_async_around_hooks_are_named_too(app: App) -> None:
    @app.job(name="job", max_attempts=1)
    async def job() -> None: ...

    @job.around_perform
    async def breaks_around(its: JobContext) -> AsyncIterator[None]:
        yield
        raise OSError("x")

    handle = job.perform_later()
    work(app)
    assert "raised by the hook around_perform of job: " in str(handle.job().last_error)


def test_an_error_of_the_job_passes_through_unnamed_and_may_be_dealt_with(app: App) -> None:
    @app.job(name="job", max_attempts=1)
    def job(kind: str) -> str:
        raise {"os": OSError, "key": KeyError}[kind](kind)

    @job.around_perform
    def swallows(its: JobContext) -> Iterator[None]:
        try:
            yield
        except OSError:
            seen.append("swallowed")

    job.after_perform(hook("after"))
    os, key = job.perform_later("os"), job.perform_later("key")
    work(app)
    assert (os.result(), seen) == (None, ["swallowed"])
    assert key.status() == JobState.DEAD
    assert "raised by" not in str(key.job().last_error)


def test_what_after_perform_raises_is_told_and_changes_nothing(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(its: JobContext) -> None:
        raise ValueError("x")

    async def breaks_later(its: JobContext) -> None:
        raise ValueError("x")

    @app.job
    def plain() -> int:
        return 1

    @app.job
    async def waiting() -> int:
        return 2

    plain.after_perform(breaks)
    waiting.after_perform(breaks_later)
    handles = [plain.perform_later(), waiting.perform_later()]
    work(app)
    assert [handle.result() for handle in handles] == [1, 2]
    told = [record.getMessage() for record in caplog.records if "hook=after_perform" in record.getMessage()]
    assert len(told) == 2
    assert "breaks_later" in told[1]


def test_after_discard_and_after_dead(app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    @app.register
    class Job(BaseJob):
        retry = Retry(ConnectionError, attempts=2, wait=0)
        discard = Discard(KeyError)
        max_attempts = 2

        def perform(self, kind: type[Exception]) -> None:
            raise kind("x")

        def after_discard(self, error: BaseException) -> None:
            seen.append(("discarded", type(error), self.attempts))
            raise RuntimeError("a hook that breaks changes nothing")

        def after_dead(self, error: BaseException) -> None:
            seen.append(("dead", type(error), self.attempts))
            raise RuntimeError("a hook that breaks changes nothing")

    kinds = {"key": KeyError, "connection": ConnectionError, "value": ValueError, "dead": Dead}
    app.serializer(type, encode=lambda kind: kind.__name__, decode=lambda name: {k.__name__: k for k in kinds.values()}[name])
    for kind, expected in (
        ("key", [("discarded", KeyError, 1)]),
        ("connection", [("dead", ConnectionError, 2)]),
        ("value", [("dead", ValueError, 2)]),
        ("dead", [("dead", Dead, 1)]),
    ):
        seen.clear()
        Job.perform_later(kinds[kind])
        work_on(app, clock, 3)
        assert seen == expected
    assert app.queue.stats().dead == 3
    assert sum("hook.failed" in record.getMessage() for record in caplog.records) == 4


def test_on_job_error_is_told_of_every_failing_run(app: App, clock: ManualClock) -> None:
    @app.on_job_error
    def told(job: JobContext, error: BaseException) -> None:
        seen.append((job.job_class, job.attempts, repr(error)))
        raise RuntimeError("and what it raises changes nothing")

    left: list[Exception] = [OSError("a"), ValueError("b"), Dead("c")]

    @app.job(name="job", retry=[Retry(OSError)])
    def job() -> None:
        raise left.pop(0)

    handle = job.perform_later()
    work_on(app, clock, 3)
    assert seen == [("job", 1, "OSError('a')"), ("job", 2, "ValueError('b')"), ("job", 3, "Dead('c')")]
    assert handle.status() == JobState.DEAD


# -- middleware


def test_middleware_sees_the_job_and_wraps_every_run(app: App) -> None:
    @app.middleware
    def measure(job: JobContext) -> Iterator[None]:
        assert current_job() is job
        seen.append((job.job_class, job.queue_name, job.arguments.args))
        try:
            yield
        finally:
            seen.append("measured")

    class Connection(AbstractContextManager[None]):
        def __exit__(self, *args: object) -> None:
            seen.append(("closed", args[0]))

    class Pool:
        def __call__(self, job: JobContext) -> Iterator[None]:
            seen.append("pool")
            yield

    app.middleware(lambda job: Connection())
    app.middleware(Pool())

    @app.job(name="job", max_attempts=1)
    def job(x: int) -> None:
        raise KeyError

    @app.job(name="waiting")
    async def waiting(x: int) -> None: ...

    job.perform_later(1)
    work(app)
    assert seen == [("job", "default", (1,)), "pool", ("closed", KeyError), "measured"]
    seen.clear()
    waiting.perform_later(2)
    work(app)
    assert seen == [("waiting", "default", (2,)), "pool", ("closed", None), "measured"]


def test_middleware_that_is_none_is_an_error_that_names_it(app: App) -> None:
    with pytest.raises(TypeError, match="must be a function"):
        app.middleware(3)  # type: ignore[type-var]

    @app.middleware
    def wrong(job: JobContext) -> int:
        return 5

    @app.job(max_attempts=1)
    def job() -> None: ...

    handle = job.perform_later()
    work(app)
    text = str(handle.job().last_error)
    assert "wrong must be a generator function with one yield, or give a context manager; it gave int" in text


def test_an_async_context_manager_around_a_plain_job_is_refused(app: App) -> None:
    @asynccontextmanager
    async def later() -> AsyncIterator[None]:
        yield

    app.middleware(lambda job: later())

    @app.job(name="plain", max_attempts=1)
    def plain() -> None: ...

    @app.job
    async def waiting() -> int:
        return 1

    handles = [plain.perform_later(), waiting.perform_later()]
    work(app)
    assert "an async context manager around plain, which is not async" in str(handles[0].job().last_error)
    assert handles[1].result() == 1


@pytest.mark.parametrize("yields", [0, 2])
def test_a_generator_with_no_or_two_yields_fails_the_job_by_name(app: App, yields: int) -> None:
    @app.middleware
    def wrong(job: JobContext) -> Iterator[None]:
        for _ in range(yields):
            yield

    @app.job(max_attempts=1)
    def job() -> None: ...

    handle = job.perform_later()
    work(app)
    assert "generator didn't" in str(handle.job().last_error)
    assert "raised by the middleware" in str(handle.job().last_error)


# -- events of the application


def test_events_of_a_run(app: App, caplog: pytest.LogCaptureFixture) -> None:
    events = ["on_start", "on_worker_start", "on_worker_stop", "on_stop", "on_shutdown"]
    for event in events:
        getattr(app, event)(lambda event=event: seen.append(event))

    @app.on_worker_start
    def breaks() -> None:
        raise ValueError("x")

    @app.job
    def job() -> None:
        seen.append("job")

    job.perform_later()
    work(app)
    assert seen == ["on_start", "on_worker_start", "job", "on_worker_stop", "on_stop", "on_shutdown"]
    told = next(record for record in caplog.records if record.levelno >= logging.ERROR)
    assert "hook=on_worker_start" in told.getMessage()
    assert "breaks" in told.getMessage()
    with pytest.raises(TypeError, match="on_stop takes a plain function"):
        app.on_stop(3)  # type: ignore[type-var]


def test_the_last_events_come_also_when_the_run_ends_by_an_error(app: App) -> None:
    app.on_worker_stop(lambda: seen.append("worker stop"))
    app.on_shutdown(lambda: seen.append("shutdown"))

    @app.job
    def job() -> None:
        raise KeyboardInterrupt

    job.perform_later()
    with pytest.raises(KeyboardInterrupt):
        work(app)
    assert seen == ["worker stop", "shutdown"]
