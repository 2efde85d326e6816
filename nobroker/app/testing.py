"""Tests of code that enqueues: `App.testing`. What runs the jobs is in `stage`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nobroker.app import envelope, records
from nobroker.app.rules import seconds_of
from nobroker.app.stage import MOST_RUNS, Stage
from nobroker.errors import NobrokerError
from nobroker.job import Job
from nobroker.queue import Queue
from nobroker.worker import WorkerStats

if TYPE_CHECKING:
    from nobroker.app.application import App

MODES: Final = ("hold", "inline")


class EnqueuedJob(NamedTuple):
    """A job that the tested code enqueued.

    Attributes:
        name: of the job.
        args, kwargs: as it gets them: packed and unpacked once.
        queue: the queue it goes through.
        wait: seconds until it is due.
        held: whether it waits for other jobs: as one of a chain.
        priority, metadata: as said for it.
        job_id: its id.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    queue: str
    wait: float
    held: bool
    priority: int
    metadata: Any
    job_id: str

    def __str__(self) -> str:
        given = [repr(value) for value in self.args]
        given += [f"{key}={value!r}" for key, value in self.kwargs.items()]
        when = ", after others" if self.held else f", in {self.wait:g} s" if self.wait else ""
        return f"{self.name}({', '.join(given)}) on {self.queue!r}{when}"


class AppTesting:
    """A context manager: within, the application has a queue of its own, and nothing touches the real one.

    One at a time for an application; one that begins inside it has a queue of its own again. Calls from other
    threads belong to it while it lasts. Other processes know nothing of it.

    Args:
        app: the application.
        mode: ``"hold"``: jobs wait for `drain`. ``"inline"``: each runs where it is enqueued, in that thread,
            with its retries, for which the clock is moved; what no rule of the job deals with is raised
            there, after this one try, and the job is dead. One that a limit holds back, because of the job
            that enqueues it, runs when that one has ended; for rates, the clock is moved.

    Attributes:
        app: as given.

    Raises:
        ValueError: there is no such mode.
    """

    def __init__(self, app: App, mode: str = "hold") -> None:
        if mode not in MODES:
            raise ValueError(f'mode must be "hold" or "inline", not {mode!r}')
        self.app = app
        self._inline = mode == "inline"
        self._stage: Stage | None = None

    def __repr__(self) -> str:
        return f"<testing {self.app!r}, {'inline' if self._inline else 'hold'}>"

    def __enter__(self) -> AppTesting:
        if self._stage is not None:
            raise RuntimeError("this block of app.testing() has begun; for another one, call it again")
        app = self.app
        self._stage = Stage(app)
        self._outer = app._testing, app._clock
        app._testing, app._clock = self, self._stage.clock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stage = self._within()
        if self.app._testing is not self:
            raise RuntimeError("blocks of app.testing() must end in the reverse order of their beginning")
        self.app._testing, self.app._clock = self._outer
        self._stage = None
        if self.app._testing is None and self.app._opened is not None:
            self.app._limit_queues(self.app._opened)  # what was said of queues meanwhile
        stage.close()

    @property
    def queue(self) -> Queue:
        """What the application uses meanwhile."""
        return self._within().queue

    def _within(self) -> Stage:
        if self._stage is None:
            raise RuntimeError("not within its block: write `with app.testing() as testing:`")
        return self._stage

    # -- modes

    @contextmanager
    def inline(self) -> Iterator[AppTesting]:
        """Within: jobs run where they are enqueued. What was held before stays held."""
        with self._switched(True):
            yield self

    @contextmanager
    def hold(self) -> Iterator[AppTesting]:
        """Within: jobs wait for `drain`."""
        with self._switched(False):
            yield self

    @contextmanager
    def _switched(self, inline: bool) -> Iterator[None]:
        before, self._inline = self._inline, inline
        try:
            yield
        finally:
            self._inline = before

    # -- looking

    @property
    def jobs(self) -> list[EnqueuedJob]:
        """The jobs that wait, in the order in which they were enqueued; ``wait`` counts from now."""
        stage = self._within()
        with stage.lock:
            now = stage.now()
            return [self._described(job, now) for job in stage.waiting()]

    @property
    def enqueued(self) -> list[EnqueuedJob]:
        """All jobs that were enqueued since the beginning, or since `clear`, whatever became of them."""
        stage = self._within()
        with stage.lock:
            return [self._described(job, job.enqueued_at) for job in stage.enqueued]

    def assert_enqueued(
        self,
        job: Any,
        *,
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        queue: str | None = None,
        times: int | None = None,
    ) -> list[EnqueuedJob]:
        """Fail unless such a job is among `enqueued`.

        Args:
            job: a job function, a job class, or a name.
            args, kwargs, queue: exactly these; None: any.
            times: so often exactly; None: at least once.

        Returns:
            Those that fit.

        Raises:
            AssertionError: with what was enqueued instead.
            TypeError: not a job, or one of another application.
        """
        __tracebackhide__ = True
        name = self._name_of(job)
        enqueued = self.enqueued
        found = [
            one
            for one in enqueued
            if one.name == name
            and (args is None or one.args == tuple(args))
            and (kwargs is None or one.kwargs == kwargs)
            and (queue is None or one.queue == queue)
        ]
        if found if times is None else len(found) == times:
            return found
        terms = {"args": args, "kwargs": kwargs, "queue": queue}
        wanted = ", ".join([name, *(f"{key}={value!r}" for key, value in terms.items() if value is not None)])
        often = "and was not" if times is None else f"{times} times, and was {len(found)}"
        unknown = "" if name in self.app.jobs else "\nno job of this name is registered"
        raise AssertionError(f"expected to be enqueued {often}: {wanted}{unknown}\n{_listed(enqueued)}")

    def assert_nothing_enqueued(self) -> None:
        """Fail if anything is among `enqueued`.

        Raises:
            AssertionError: with what was enqueued.
        """
        __tracebackhide__ = True
        enqueued = self.enqueued
        if enqueued:
            raise AssertionError(f"expected nothing to be enqueued\n{_listed(enqueued)}")

    def clear(self) -> None:
        """Forget what was enqueued, and drop what waits."""
        self._within().clear()

    # -- running

    def advance(self, seconds: float | timedelta) -> None:
        """Move the clock on. Nothing runs by that; what runs keeps its lease."""
        self._within().advance(seconds_of("seconds", seconds))

    def drain(
        self, *, advance: bool = False, raise_errors: bool = True, max_runs: int = MOST_RUNS
    ) -> WorkerStats:
        """Work off all that is due, and what that enqueues, in the order in which a worker would.

        Args:
            advance: also what is due later: the clock is moved to it.
            raise_errors: raise what no rule of its job deals with, and stop; that job waits for its next try,
                if it has one. False: go on, as a worker does.
            max_runs: give up after so many.

        Returns:
            The counts, as of a `Worker`.

        Raises:
            Exception: of a job.
            NobrokerError: there is still something to do after ``max_runs``.
        """
        stage = self._within()
        stats = WorkerStats()
        while (job := stage.next(advance=advance)) is not None:
            if stats.leased >= max_runs:
                stage.give_back(job)
                raise NobrokerError(
                    f"after {max_runs:,} runs there is still {envelope.name_in(job.payload)} {job.id} to do; "
                    "do jobs enqueue each other for ever? Else say drain(max_runs=...)"
                )
            stats.leased += 1
            error = stage.run(job, stats, once=False)
            if error is not None and (raise_errors or not isinstance(error, Exception)):
                raise error
        return stats

    def _enqueued(self) -> None:
        """Called by the application when a call of it has enqueued something, in that thread."""
        stage = self._within()
        fresh = stage.fresh()
        if not self._inline:
            return
        errors: list[BaseException] = []
        while True:
            runs = stage.runs
            held: list[Job] = []
            ready: list[Job] = []
            for job in fresh:
                (held if stage.is_held(job) else ready).append(job)
            for job in ready:
                error = stage.run_at_once(job)
                if error is not None:
                    errors.append(error)
            moved = stage.usher_moved()
            fresh = held + stage.fresh()
            if moved or stage.runs != runs:
                fresh += stage.blocked()
            if not ready and not moved:
                break
        if errors[1:]:
            errors[0].add_note(f"{len(errors) - 1} more of the jobs that were enqueued together failed")
        if errors:
            raise errors[0]

    # -- small things

    def _described(self, job: Job, now: float) -> EnqueuedJob:
        call = envelope.opened(self.app._serializers, job.payload)
        held = records.is_held(job)
        return EnqueuedJob(
            call.name,
            call.args,
            call.kwargs,
            job.lane,
            0.0 if held else round(max(0.0, job.available_at - now), 6),
            held,
            job.priority,
            self.app._serializers.unpack(job.metadata),
            job.id,
        )

    def _name_of(self, job: Any) -> str:
        if type(job) is str:
            return job
        definition = getattr(job, "definition", None)
        if definition is None:
            raise TypeError(f"expected a job function, a job class or a name, not {job!r:.100}")
        if definition.app is not self.app:
            raise TypeError(f"{definition.name} is a job of another application, {definition.app!r}")
        name: str = definition.name
        return name


def _listed(enqueued: list[EnqueuedJob]) -> str:
    if not enqueued:
        return "nothing was enqueued"
    return "\n".join(["these were enqueued:", *(f"  {job}" for job in enqueued)])
