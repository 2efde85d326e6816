"""`current_job()`: in functions that a job calls, in its tasks and in its threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

from nobroker import App, BaseJob, current_job
from nobroker.app import inheritance
from tests.app.working import work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def here() -> str | None:
    """The name of the job that runs here."""
    try:
        return current_job().job_class
    except LookupError:
        return None


def note() -> None:
    seen.append(here())


def test_outside_of_jobs_there_is_none(app: App) -> None:
    with pytest.raises(LookupError, match="no job is running here"):
        current_job()

    @app.job(name="job")
    def job() -> None:
        note()

    job.perform_later()
    work(app)
    job.perform_now()
    assert (seen, here()) == (["job", "job"], None)


def test_it_is_the_same_as_self(app: App) -> None:
    @app.register
    class Job(BaseJob):
        def perform(self) -> None:
            seen.append(current_job() is self)

    Job.perform_later()
    work(app)
    assert seen == [True]


def test_it_has_everything_that_self_has(app: App) -> None:
    @app.job(queue="mail", priority=4)
    def job(x: int, *, y: int = 0) -> None:
        it = current_job()
        seen.append((it.id, it.attempts, it.executions, it.queue_name, it.priority, it.enqueued_at))
        seen.append((it.arguments.args, it.arguments.kwargs, it.metadata, it.job_class, it.cancelled))

    handle = job.set(metadata=["m"]).perform_later(1, y=2)
    work(app)
    assert seen[0] == (handle.id, 1, 1, "mail", 4, handle.job().enqueued_at)
    assert seen[1] == ((1,), {"y": 2}, ["m"], job.definition.name, False)


def test_tasks_inherit_it(app: App) -> None:
    async def inner() -> None:
        await asyncio.sleep(0)
        note()

    def jobs(name: str) -> Any:
        @app.job(name=name)
        async def job() -> None:
            await asyncio.gather(inner(), asyncio.create_task(inner()))
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())
            await asyncio.to_thread(note)
            await asyncio.get_running_loop().run_in_executor(None, note)
            note()

        return job

    for name in ("a", "b"):
        jobs(name).perform_later()
    work(app, threads=2)
    assert sorted(seen) == ["a"] * 6 + ["b"] * 6


class Noting(threading.Thread):
    def run(self) -> None:
        note()


def test_threads_inherit_it(app: App) -> None:
    @app.job(name="job")
    def job() -> None:
        inner = threading.Thread(target=lambda: joined(threading.Thread(target=note)))
        for thread in (threading.Thread(target=note), Noting(), threading.Timer(0, note), inner):
            joined(thread)

    def joined(thread: threading.Thread) -> None:
        thread.start()
        thread.join()

    job.perform_later()
    work(app)
    assert seen == ["job"] * 4
    seen.clear()
    for thread in (threading.Thread(target=note), Noting()):
        joined(thread)
    assert seen == [None, None], "elsewhere nothing changes"


def test_a_pool_that_jobs_share_shows_each_call_its_own_job(app: App) -> None:
    with ThreadPoolExecutor(2) as pool:

        def jobs(name: str) -> Any:
            @app.job(name=name)
            def job() -> list[str | None]:
                return [*pool.map(lambda _: here(), range(5)), pool.submit(here).result()]

            return job

        handles = {name: jobs(name).perform_later() for name in "abcdef"}
        work(app, threads=3)
        for name, handle in handles.items():
            assert handle.result() == [name] * 6
        assert [pool.submit(here).result() for _ in range(4)] == [None] * 4, "the threads are nobody's"


def test_what_is_submitted_behaves_as_always(app: App) -> None:
    @app.job
    def job() -> list[Any]:
        with ThreadPoolExecutor(1) as pool:
            both = pool.submit(lambda *args, **kwargs: (list(args), kwargs), 1, fn=2, job=3, self=4).result()
            failed = pool.submit(int, "x").exception()
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(note)
        thread = threading.Thread(target=note)
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="only be started once"):
            thread.start()
        return [*both, type(failed).__name__]

    handle = job.perform_later()
    work(app)
    assert handle.result() == [[1], {"fn": 2, "job": 3, "self": 4}, "ValueError"]


def test_the_threads_of_multiprocessings_pools_are_nobodys(app: App) -> None:
    pools: list[ThreadPool] = []

    @app.job(name="job")
    def job() -> None:
        pools.append(ThreadPool(1))
        seen.append(pools[0].apply(here))

    job.perform_later()
    work(app)
    try:
        assert seen == [None], "they may be shared with other jobs"
    finally:
        pools[0].terminate()


def test_a_thread_does_not_hold_itself(app: App) -> None:
    import gc
    import weakref

    @app.job
    def job() -> None:
        thread = threading.Thread(target=note)
        seen.append(weakref.ref(thread))
        thread.start()
        thread.join()

    gc.disable()
    try:
        job.perform_now()
        assert seen[0]() is None
    finally:
        gc.enable()


def test_handing_on_begins_once_and_only_where_jobs_run(app: App) -> None:
    inheritance.hand_on()
    before = threading.Thread.start, ThreadPoolExecutor.submit
    inheritance.hand_on()
    assert before == (threading.Thread.start, ThreadPoolExecutor.submit)
    code = (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "import sys\nfrom nobroker import App\n"
        "before = threading.Thread.start, ThreadPoolExecutor.submit\n"
        "app = App(sys.argv[1], fsync=False)\n@app.job\ndef job(): ...\njob.perform_later()\n"
        "assert before == (threading.Thread.start, ThreadPoolExecutor.submit)\njob.perform_now()\n"
        "assert before != (threading.Thread.start, ThreadPoolExecutor.submit)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(app.path)], timeout=60, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
