"""Verdicts: a handler that says itself what becomes of its job."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nobroker import Dead, Failed, Job, JobState, RetryLater, SerializationError, Verdict, Worker, WorkerStats
from nobroker.errors import LockTimeoutError
from tests.unit.fake_queue import FakeQueue


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


@pytest.fixture(params=["def", "async def"])
def raising(request: pytest.FixtureRequest) -> Callable[[Callable[[Job], BaseException | None]], Any]:
    """A handler, plain or a coroutine, that raises what a function makes of its job."""

    def of(make: Callable[[Job], BaseException | None]) -> Any:
        def handler(job: Job) -> str:
            if (error := make(job)) is not None:
                raise error
            return "fine"

        async def coroutine(job: Job) -> str:
            return handler(job)

        return coroutine if request.param == "async def" else handler

    return of


def work(queue: FakeQueue, handler: Any, **options: Any) -> WorkerStats:
    return Worker(queue, handler, **{"idle_timeout": 0.0, "handle_signals": False, **options}).run()


class TestRetryLater:
    def test_gives_the_job_back(self, queue: FakeQueue, raising: Any) -> None:
        queue.enqueue(1)
        stats = work(queue, raising(lambda job: RetryLater(1000, state="seen")))
        assert stats == WorkerStats(leased=1)
        job = queue.jobs["job-0"]
        assert (job.state, job.attempts, job.last_error, job.job_state) == ("ready", 0, None, "seen")

    def test_until_the_job_is_done(self, queue: FakeQueue, raising: Any) -> None:
        queue.enqueue(1)
        make = lambda job: RetryLater(0, state=(job.job_state or 0) + 1) if job.job_state != 7 else None  # noqa: E731
        assert work(queue, raising(make)) == WorkerStats(leased=8, succeeded=1)
        assert queue.jobs["job-0"].attempts == 1

    def test_in_words(self, queue: FakeQueue, raising: Any, caplog: pytest.LogCaptureFixture) -> None:
        queue.enqueue(1)
        with caplog.at_level(logging.INFO, "nobroker.worker"):
            work(queue, raising(lambda job: RetryLater(timedelta(minutes=2))))
        lines = [record.getMessage() for record in caplog.records]
        assert "event=job_given_back id=job-0 attempt=1 delay_s=120.0 state=ready" in lines
        assert not any(line.startswith("event=job_failed") for line in lines)


class TestDead:
    def test_is_the_end(self, queue: FakeQueue, raising: Any) -> None:
        queue.enqueue(1)
        assert work(queue, raising(lambda job: Dead("no use", state=[1]))) == WorkerStats(
            leased=1, failed=1, dead=1
        )
        job = queue.jobs["job-0"]
        assert (job.state, job.attempts, job.last_error, job.job_state) == ("dead", 1, "no use", [1])

    def test_for_an_exception(self, queue: FakeQueue, raising: Any) -> None:
        queue.enqueue(1)
        work(queue, raising(lambda job: Dead(KeyError("k"))))
        assert queue.jobs["job-0"].last_error == "KeyError: 'k'\nKeyError: 'k'"


class TestFailed:
    def test_as_the_queue_would(self, queue: FakeQueue, raising: Any) -> None:
        queue.max_attempts = 2
        queue.enqueue(1)
        assert work(queue, raising(lambda job: Failed("bad luck"))) == WorkerStats(leased=2, failed=2, dead=1)
        assert queue.jobs["job-0"].last_error == "bad luck"

    def test_with_a_delay_and_an_end_of_its_own(self, queue: FakeQueue, raising: Any) -> None:
        queue.max_attempts = 1
        queue.retry_delay = 1000

        def make(job: Job) -> Failed:
            tried = (job.job_state or 0) + 1
            return Failed(f"try {tried}", delay=0, dead=tried == 5, state=tried)

        queue.enqueue(1)
        assert work(queue, raising(make)) == WorkerStats(leased=5, failed=5, dead=1)
        assert queue.jobs["job-0"].last_error == "try 5"

    def test_keeps_the_traceback_of_an_error_that_was_caught(self, queue: FakeQueue) -> None:
        def handler(job: Job) -> None:
            try:
                raise ValueError("deep inside")
            except ValueError as error:
                raise Failed(error, dead=True) from error

        queue.enqueue(1)
        work(queue, handler)
        text = queue.jobs["job-0"].last_error or ""
        assert text.startswith("ValueError: deep inside\nTraceback")
        assert 'raise ValueError("deep inside")' in text


@pytest.mark.parametrize("batch", [1, 4])
def test_each_job_of_a_batch_has_its_own(queue: FakeQueue, raising: Any, batch: int) -> None:
    verdicts = {1: RetryLater(1000), 2: Dead("d"), 4: Failed("f", delay=1000), 6: RetryLater(1000)}
    for number in range(8):
        queue.enqueue(number)
    stats = work(queue, raising(lambda job: verdicts.get(job.payload)), batch=batch)
    assert stats == WorkerStats(leased=8, succeeded=4, failed=2, dead=1)
    assert queue.states() == {"done": 4, "ready": 3, "dead": 1}
    assert [job.last_error for job in queue.jobs.values()] == [None, None, "d", None, "f", None, None, None]


def test_of_a_subclass(queue: FakeQueue, raising: Any) -> None:
    class Throttled(RetryLater):
        def __init__(self) -> None:
            super().__init__(1000, state="throttled")

    queue.enqueue(1)
    assert work(queue, raising(lambda job: Throttled())) == WorkerStats(leased=1)
    assert queue.jobs["job-0"].job_state == "throttled"


def test_one_that_was_not_made_properly_is_a_failure(queue: FakeQueue, raising: Any) -> None:
    class Hasty(RetryLater):
        def __init__(self) -> None:
            pass

    queue.enqueue(1)
    assert work(queue, raising(lambda job: Hasty()), max_jobs=1) == WorkerStats(leased=1, failed=1)
    assert (queue.jobs["job-0"].last_error or "").startswith("AttributeError: ")


def test_one_whose_state_was_changed_to_something_else_is_a_failure(queue: FakeQueue, raising: Any) -> None:
    def make(job: Job) -> Dead:
        verdict = Dead("no use")
        verdict.state = object()
        return verdict

    queue.enqueue(1)
    assert work(queue, raising(make), max_jobs=1) == WorkerStats(leased=1, failed=1)
    assert "state" in (queue.jobs["job-0"].last_error or "")


def test_the_base_itself_and_one_in_a_group_are_failures(queue: FakeQueue, raising: Any) -> None:
    queue.max_attempts = 1
    for number in range(2):
        queue.enqueue(number)
    stats = work(
        queue,
        raising(lambda job: ExceptionGroup("g", [Dead("d")]) if job.payload else Verdict("plain")),
    )
    assert stats == WorkerStats(leased=2, failed=2, dead=2)
    told = [job.last_error or "" for job in queue.jobs.values()]
    assert told[0].startswith("Verdict: plain\n")
    assert told[1].startswith("ExceptionGroup: g")


@pytest.mark.parametrize(("verb", "verdict"), [("release", RetryLater(0)), ("nack", Dead("d"))])
def test_a_busy_lock_is_waited_for(queue: FakeQueue, raising: Any, verb: str, verdict: Verdict) -> None:
    queue.enqueue(1)
    queue.troubles[verb] = [LockTimeoutError("busy")]
    work(queue, raising(lambda job: verdict), max_jobs=1)
    assert queue.called(verb) == [["job-0"]] * 2
    assert queue.jobs["job-0"].state is not JobState.LEASED


@pytest.mark.parametrize("verdict", [RetryLater(0), Dead("d"), Failed("f")])
def test_of_a_job_that_somebody_else_has_by_now(
    queue: FakeQueue, raising: Any, verdict: Verdict, caplog: pytest.LogCaptureFixture
) -> None:
    queue.enqueue(1)

    def make(job: Job) -> Verdict:
        queue.steal(job)
        return verdict

    assert work(queue, raising(make), max_jobs=1) == WorkerStats(leased=1, lost_leases=1)
    assert queue.states() == {"leased": 1}


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), timedelta(seconds=-1), 1e12])
def test_delays_outside_their_range(wrong: Any) -> None:
    for make in (RetryLater, lambda delay: Failed("e", delay=delay)):
        with pytest.raises(ValueError, match="delay"):
            make(wrong)


@pytest.mark.parametrize("wrong", [True, "5", b"5", [1]])
def test_delays_that_are_none(wrong: Any) -> None:
    for make in (RetryLater, lambda delay: Failed("e", delay=delay)):
        with pytest.raises(TypeError, match="delay"):
            make(wrong)


def test_other_arguments_of_wrong_types() -> None:
    wrong: Any
    for wrong in (None, 5, b"x", ["x"]):
        with pytest.raises(TypeError, match="reason"):
            Dead(wrong)
        with pytest.raises(TypeError, match="error"):
            Failed(wrong)
    for wrong in (0, 1, "yes"):
        with pytest.raises(TypeError, match="dead"):
            Failed("e", dead=wrong)
    with pytest.raises(TypeError):
        RetryLater()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        RetryLater(None)  # type: ignore[arg-type]


def test_a_state_that_cannot_be_stored_is_refused_where_it_is_given() -> None:
    for make in (lambda state: RetryLater(1, state=state), lambda state: Dead("d", state=state),
                 lambda state: Failed("e", state=state)):  # fmt: skip
        with pytest.raises(SerializationError, match=r"state\['a'\]"):
            make({"a": {1}})


def test_they_say_what_was_given_and_survive_a_copy() -> None:
    for verdict, text in ((RetryLater(2.5, state=1), "2.5"), (Dead("d"), "d"), (Failed("f", dead=True), "f")):
        again = copy.copy(verdict)
        assert type(again) is type(verdict)
        assert (str(again), vars(again)) == (text, vars(verdict))
    assert RetryLater(timedelta(seconds=3)).delay == 3.0


class TestStopping:
    def test_seen_by_a_handler(self, queue: FakeQueue) -> None:
        seen: list[bool] = []

        def handler(job: Job) -> None:
            seen.append(worker.stopping)
            worker.stop()
            seen.append(worker.stopping)

        worker = Worker(queue, handler, handle_signals=False)
        assert not worker.stopping
        queue.enqueue(1)
        worker.run()
        assert seen == [False, True]
        assert worker.stopping

    def test_before_the_run_and_in_the_next_one(self, queue: FakeQueue) -> None:
        seen: list[bool] = []
        worker = Worker(queue, lambda job: seen.append(worker.stopping), handle_signals=False, max_jobs=1)
        worker.stop()
        assert worker.stopping
        worker.run()
        assert worker.stopping
        queue.enqueue(1)
        worker.run()
        assert seen == [False]
        assert not worker.stopping

    def test_asked_by_a_failure(self, queue: FakeQueue) -> None:
        def handler(job: Job) -> None:
            raise SystemExit

        queue.enqueue(1)
        worker = Worker(queue, handler, handle_signals=False)
        with pytest.raises(SystemExit):
            worker.run()
        assert worker.stopping
