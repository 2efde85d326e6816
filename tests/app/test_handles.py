"""What one keeps of a job: from any process, through all its retries."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    App,
    BaseJob,
    Discard,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    JobState,
    NotLeasedError,
    ResultTimeoutError,
    Retry,
    RetryLater,
    SerializationError,
    current_job,
)
from nobroker.app import Progress
from nobroker.clock import ManualClock
from tests.app.working import work, work_on

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def test_status_and_result_of_a_job_that_waits_runs_and_ends(app: App) -> None:
    @app.job
    def job(x: int) -> list[int]:
        seen.append(handle.status())
        with pytest.raises(ResultTimeoutError, match="it is leased"):
            handle.result()
        return [x]

    handle = job.perform_later(5)
    assert handle.status() == JobState.READY
    with pytest.raises(ResultTimeoutError, match="it is ready; it goes on"):
        handle.result(timeout=0.01)
    work(app)
    assert seen == [JobState.LEASED]
    assert (handle.status(), handle.result(), handle.result(timeout=None)) == (JobState.DONE, [5], [5])


def test_result_waits_for_the_end_of_the_job(app: App) -> None:
    asked = threading.Event()

    @app.job
    def job() -> str:
        assert asked.wait(10)
        return "done"

    handle = job.perform_later()
    got: list[str] = []
    waiting = threading.Thread(target=lambda: got.append(handle.result(timeout=timedelta(seconds=20))))
    waiting.start()
    asked.set()
    work(app)
    waiting.join(20)
    assert got == ["done"]


@pytest.mark.parametrize("wrong", [-1, "5", True, float("nan"), timedelta(seconds=-1)])
def test_a_timeout_that_is_none_is_refused(app: App, wrong: Any) -> None:
    @app.job
    def job() -> None: ...

    with pytest.raises((TypeError, ValueError), match="timeout"):
        job.perform_later().result(timeout=wrong)


def test_what_a_job_returns_keeps_its_type(app: App) -> None:
    @app.job
    def job(value: Any) -> Any:
        return value

    values = [(1, [2, {3}]), {"$": 1}, {"$": ["discarded", "x"]}, frozenset("ab"), b"x", None, 0, "", []]
    handles = app.perform_all_later([job.build(value) for value in values])
    work(app)
    for handle, value in zip(handles, values, strict=True):
        assert (handle.result(), type(handle.result())) == (value, type(value))
        assert handle.discarded is None


def test_a_result_that_cannot_be_stored_is_told_and_dropped_and_the_job_is_done(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        pass

    def refuse(value: Any) -> Any:
        raise OSError("no")

    app.serializer(Odd, encode=refuse, decode=refuse)

    @app.job(name="job")
    def job(what: str) -> Any:
        seen.append(what)
        endless: list[Any] = []
        endless.append(endless)
        results = {"object": object(), "endless": endless, "large": b"x" * 9_000_000, "odd": Odd()}
        return results[what]

    kinds = ["object", "endless", "large", "odd"]
    handles = [job.perform_later(kind) for kind in kinds]
    work(app)
    assert seen == kinds, "the work is done once"
    for handle in handles:
        assert (handle.status(), handle.result()) == (JobState.DONE, None)
    told = [r.getMessage() for r in caplog.records if "result" in r.getMessage()]
    assert len(told) == 4
    assert "the result of job is of type builtins.object" in told[0]


def test_the_result_of_a_dead_job_is_its_error(app: App) -> None:
    @app.job(max_attempts=1)
    def job() -> None:
        raise ValueError("first line\nsecond")

    handle = job.perform_later()
    work(app)
    with pytest.raises(JobFailedError, match=rf"job {handle.id} is dead: ValueError: first line$") as failed:
        handle.result()
    assert failed.value.job_id == handle.id
    assert "Traceback" in str(failed.value.error)
    assert "second" in str(failed.value.error)


def test_a_retried_job_keeps_its_id(app: App, clock: ManualClock) -> None:
    @app.job(retry=[Retry(OSError, attempts=3)])
    def job() -> str:
        its = current_job()
        seen.append((its.id, its.attempts))
        if its.attempts < 3:
            raise OSError
        return "third"

    handle = job.perform_later()
    work_on(app, clock, 3)
    assert seen == [(handle.id, 1), (handle.id, 2), (handle.id, 3)]
    assert handle.result() == "third"


def test_progress_is_seen_while_the_job_runs(app: App) -> None:
    @app.job
    def job() -> None:
        its = current_job()
        seen.append(handle.progress())
        its.progress(0.25, "a quarter")
        seen.append(handle.progress())
        its.progress(1)
        seen.append(app.handle(handle.id).progress())
        for wrong in (-0.1, 1.1, float("nan")):
            with pytest.raises(ValueError, match="from 0 to 1"):
                its.progress(wrong)
        for wrong in ("1", True, None):
            with pytest.raises(TypeError, match="from 0 to 1"):
                its.progress(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="note must be a str"):
            its.progress(0.5, 3)  # type: ignore[arg-type]

    handle = job.perform_later()
    work(app)
    assert handle.status() == JobState.DONE
    assert seen == [None, Progress(0.25, "a quarter"), Progress(1.0, "")]


def test_progress_of_a_job_that_is_not_ours_any_more_says_so(app: App) -> None:
    @app.job
    def job() -> None:
        app.queue.purge()
        try:
            current_job().progress(0.5)
        except Exception as error:
            seen.append(type(error))
        seen.append(current_job().cancelled)

    job.perform_later()
    work(app)
    assert issubclass(seen[0], (NotLeasedError, JobNotFoundError))
    assert seen[1] is True


def test_a_job_that_waits_is_cancelled_at_once(app: App) -> None:
    @app.job
    def job() -> None:
        seen.append(1)

    handles = [job.perform_later(), job.set(wait=60).perform_later()]
    for handle in handles:
        handle.cancel()
    work(app)
    assert seen == []
    for handle in handles:
        assert handle.status() == JobState.DONE
        with pytest.raises(JobCancelledError, match="was cancelled"):
            handle.result()


def test_a_running_job_sees_that_it_is_cancelled(app: App) -> None:
    @app.job
    def polite() -> str:
        handles[0].cancel()
        return "stopped" if current_job().cancelled else "went on"

    @app.job
    def reporting() -> str:
        seen.append(current_job().cancelled)
        handles[1].cancel()
        current_job().progress(0.5)
        return "stopped" if current_job().cancelled else "went on"

    @app.job
    def failing() -> None:
        handles[2].cancel()
        raise ValueError

    handles: list[Any] = [job.perform_later() for job in (polite, reporting, failing)]
    work(app)
    assert seen == [False]
    assert handles[0].result() == handles[1].result() == "stopped"
    with pytest.raises(JobCancelledError):
        handles[2].result()


def test_a_job_that_gives_back_after_a_cancel_is_cancelled(app: App) -> None:
    @app.job
    def job() -> None:
        handle.cancel()
        raise RetryLater(0)

    handle = job.perform_later()
    work(app)
    with pytest.raises(JobCancelledError):
        handle.result()


def test_discarded_says_why(app: App) -> None:
    @app.job(discard=[Discard(KeyError)])
    def job(fails: bool) -> str:
        if fails:
            raise KeyError("gone")
        return "fine"

    gone, fine = job.perform_later(True), job.perform_later(False)
    work(app)
    assert (gone.discarded, fine.discarded) == ("KeyError: 'gone'", None)
    assert (gone.status(), gone.result()) == (JobState.DONE, None)


def test_a_handle_from_its_id(app: App) -> None:
    @app.job
    def job() -> str:
        return "x"

    handle = app.handle(job.perform_later().id)
    work(app)
    assert handle.result() == "x"
    assert handle.id in repr(handle)
    with pytest.raises(TypeError, match="must be a str"):
        app.handle(5)  # type: ignore[arg-type]
    nothing = app.handle("nothing")
    for ask in (nothing.status, nothing.result, nothing.progress, nothing.cancel, lambda: nothing.discarded):
        with pytest.raises(JobNotFoundError):
            ask()


ANOTHER = """
import sys
from nobroker import App, current_job
app = App(sys.argv[1], fsync=False)

@app.job(name="job")
def job(x):
    current_job().progress(0.5, "from there")
    return (x, {x})

if sys.argv[2] == "run":
    app.run(once=True)
else:
    handle = app.handle(sys.argv[3])
    print(repr((handle.status().value, handle.progress(), handle.result())))
"""


@pytest.fixture
def other_app(tmp_path: Path) -> Iterator[App]:
    app = App(tmp_path / "there", fsync=False)
    yield app
    assert app.queue.check() == []
    app.close()


def test_from_another_process(other_app: App, tmp_path: Path) -> None:
    @other_app.job(name="job")
    def job(x: int) -> Any: ...

    handle = job.perform_later(3)
    script = tmp_path / "another.py"
    script.write_text(ANOTHER, encoding="utf-8")
    for command in ("run", "look"):
        done = subprocess.run(
            [sys.executable, str(script), str(other_app.path), command, handle.id],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "('done', Progress(fraction=0.5, note='from there'), (3, {3}))"
    assert (handle.result(), handle.progress()) == ((3, {3}), Progress(0.5, "from there"))


def test_a_handle_knows_when_there_is_no_job(app: App) -> None:
    @app.register
    class Job(BaseJob):
        def around_enqueue(self) -> Iterator[None]:
            try:
                yield
            except SerializationError:
                seen.append("swallowed")

        def perform(self, x: Any) -> None: ...

    handle = Job.perform_later(object())
    assert (seen, handle.created) == (["swallowed"], False)
    with pytest.raises(JobNotFoundError, match="swallowed an error"):
        handle.status()
    assert "not enqueued" in repr(handle)
