"""A long job in steps: what it has done is kept with it, and after an interruption it goes on from there.

What is kept, in the job's state under ``steps``: ``{"done": [names], "cursors": {name: packed}, "resumed":
how often, "running": whether a run is about that has not ended by itself}``. It travels with the extension of
the lease, or with what the runner says of a run that ends.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nobroker.app.context import JobContext
from nobroker.app.errors import JobInterrupted, StepError
from nobroker.errors import JobNotFoundError, NotLeasedError, SerializationError
from nobroker.worker import Dead

if TYPE_CHECKING:
    from nobroker.app.definition import Definition

STEPS: Final = "steps"
WRITE_EVERY_S: Final = 0.1
"""Checkpoints that follow each other sooner are not all written."""
_NEXT: Final = object()


class Step:
    """One step that runs.

    Attributes:
        name: of the step.
        cursor: how far it is: what ``start`` said at first; what the last checkpoint kept, when the job was
            interrupted. Any value that may be an argument.
    """

    def __init__(self, book: _Book, name: str, cursor: Any) -> None:
        self._book = book
        self.name = name
        self.cursor = cursor

    def __repr__(self) -> str:
        return f"<step {self.name!r} at {self.cursor!r:.100}>"

    def advance(self, to: Any = _NEXT) -> None:
        """Move the cursor: to the next whole number, or to a value. Nothing is kept yet.

        Raises:
            TypeError: no value was given, and the cursor is no whole number.
        """
        if to is _NEXT:
            if type(self.cursor) is not int:
                raise TypeError(
                    f"the cursor of step {self.name!r} is {self.cursor!r:.100}, which has no next value; "
                    "begin with start=0, or say advance(to=...)"
                )
            to = self.cursor + 1
        self.cursor = to

    def checkpoint(self, *, force: bool = False) -> None:
        """Keep the cursor; and let go of the job, if it is to stop here.

        It is written at most every 100 ms, so that it may stand in a tight loop: a job whose worker was
        killed goes on from its last checkpoint, or from where it was less than 100 ms before that. After an
        error, or an interruption in good order, it is always the last. The write renews the lease, and is
        not synced: a crash of the machine may take the job further back.

        Args:
            force: write it now, whatever was written when.

        Raises:
            JobInterrupted: the worker stops, the job is cancelled, or its lease is lost.
            SerializationError: the cursor is no value that may be an argument.
            StepError: the step has ended.
        """
        self._book.checkpoint(self, force)

    def set(self, cursor: Any, *, force: bool = False) -> None:
        """Move the cursor and keep it: `advance`, then `checkpoint`."""
        self.cursor = cursor
        self.checkpoint(force=force)


Work = Callable[[Step], Any]


class Steps(JobContext):
    """What a `BaseJob` can do in steps."""

    definition: ClassVar[Definition | None] = None
    _book: _Book | None = None

    def step(self, name: str, work: Work, start: Any = None) -> None:
        """Do a part of the job, unless an earlier run of it has completed this part.

        Steps are known by their names: each may stand once in a run, and none inside another. One that was
        completed is skipped, and may be gone from the code. One that was begun must still be there, and come
        before those that are new, as long as jobs are about that were interrupted in it.

        Args:
            name: of the step.
            work: called with the `Step`; what it returns is not kept.
            start: the cursor at first.

        Raises:
            JobInterrupted: as `Step.checkpoint`, also before the step begins.
            StepError: as said above.
            TypeError: the work is async: that is for `step_async`.
            Dead: the job was interrupted more often than ``max_resumptions`` allows.
        """
        if inspect.iscoroutinefunction(work):
            raise TypeError(f"step {name!r} is async, and nothing would await it: await self.step_async(...)")
        book = self._opened_book()
        step = book.begin(name, start)
        if step is None:
            return
        with book.open(name):
            found = work(step)
            if inspect.isawaitable(found):
                if inspect.iscoroutine(found):
                    found.close()
                raise TypeError(
                    f"step {name!r} returned {type(found).__name__}, which nothing would await: "
                    "await self.step_async(...)"
                )

    def step_async(self, name: str, work: Work, start: Any = None) -> Awaitable[None]:
        """As `step`, for async jobs: to be awaited. The work may be async or a plain function.

        Raises:
            TypeError: ``perform`` is a plain function.
            StepError: as `step`; or the step before was not awaited.
        """
        book = self._opened_book()
        if not book.definition.is_async:
            raise TypeError(f"perform of {self.job_class} is a plain function: use self.step(...)")
        book.all_awaited()
        book.promised = name
        return _Promised(book, name, work, start)

    def _opened_book(self) -> _Book:
        if self._book is None:
            self._book = _Book(self, self.definition)
            self._book.take_up()
        return self._book

    def _finish(self) -> None:
        if self._book is not None:
            self._book.all_awaited()

    def _settle(self, *, interrupted: bool) -> None:
        if self._book is not None:
            self._book.running = interrupted
            self._state = {**self._state, STEPS: self._book.packed()}
            self._stale = True


class _Promised:
    """A step that runs when it is awaited; one that is forgotten is an error, and no silence."""

    def __init__(self, book: _Book, name: str, work: Work, start: Any) -> None:
        self._book = book
        self._name = name
        self._work = work
        self._start = start

    def __await__(self) -> Generator[Any, None, None]:
        self._book.promised = None
        return self._run().__await__()

    async def _run(self) -> None:
        step = self._book.begin(self._name, self._start)
        if step is None:
            return
        with self._book.open(self._name):
            found = self._work(step)
            if inspect.isawaitable(found):
                await found


class _Book:
    """What is kept of a job's steps, and what this run has seen of them.

    Attributes:
        definition: of the job.
        done, cursors, resumed, running: as they are kept.
        promised: a step that was called and not awaited yet.
    """

    def __init__(self, job: JobContext, definition: Definition | None) -> None:
        if definition is None:
            raise TypeError(f"{type(job).__qualname__} is not registered; put @app.register before the class")
        kept = _kept(job)
        self.definition = definition
        self.done: list[str] = list(kept["done"])
        self.cursors: dict[str, Any] = dict(kept["cursors"])
        self.resumed: int = kept["resumed"]
        self.running: bool = kept["running"]
        self.promised: str | None = None
        self._job = job
        self._serializers = definition.app._serializers
        self._left = frozenset(self.cursors)  # begun by an earlier run, and not completed
        self._seen: set[str] = set()
        self._open: str | None = None
        self._written = float("-inf")

    def packed(self) -> dict[str, Any]:
        return {
            "done": list(self.done),
            "cursors": dict(self.cursors),
            "resumed": self.resumed,
            "running": self.running,
        }

    def take_up(self) -> None:
        """Begin a run. If the one before was interrupted, that is counted.

        Raises:
            Dead: there were too many.
        """
        if self.running:
            self.resumed += 1
            limit = self.definition.options.max_resumptions
            if limit is not None and self.resumed > limit:
                self.resumed = 0  # whoever requeues it wants it to go on
                raise Dead(
                    f"it was interrupted more often than max_resumptions={limit} allows; "
                    "requeued, it goes on from its last checkpoint"
                )
            self.write()
        self.running = True

    def begin(self, name: str, start: Any) -> Step | None:
        """The step, if there is something to do."""
        owner = self._job.job_class
        if type(name) is not str or not name:
            raise TypeError(f"a step needs a name, a str that is not empty, not {name!r}")
        if self._open is not None:
            raise StepError(f"step {name!r} of {owner} begins inside step {self._open!r}")
        self.all_awaited()
        if name in self._seen:
            raise StepError(f"{owner} has two steps of the name {name!r}; give each its own")
        if name in self.done:
            self._seen.add(name)
            return None
        if name not in self.cursors and self._left and not self._left & self._seen:
            left = ", ".join(map(repr, sorted(self._left)))
            raise StepError(
                f"job {self._job.id} was interrupted in step {left}, but its code now begins with step "
                f"{name!r}, which is new: keep the name and the place of a step for as long as jobs are in "
                "it, or enqueue the job anew"
            )
        self._let_go_if_asked()
        self._seen.add(name)
        if name in self.cursors:
            cursor = self._serializers.unpack(self.cursors[name])
        else:
            cursor = start
            self.cursors[name] = self._cursor(name, start)
        return Step(self, name, cursor)

    @contextmanager
    def open(self, name: str) -> Iterator[None]:
        """Within: the step runs. It is completed when nothing is raised."""
        self._open = name
        try:
            yield
        finally:
            self._open = None
        del self.cursors[name]
        self.done.append(name)
        self.write()

    def checkpoint(self, step: Step, force: bool) -> None:
        if self._open != step.name:
            raise StepError(f"step {step.name!r} of {self._job.job_class} has ended; its cursor is not kept")
        self.cursors[step.name] = self._cursor(step.name, step.cursor)
        self._let_go_if_asked()
        if force or time.monotonic() - self._written >= WRITE_EVERY_S:
            self.write()
            self._let_go_if_asked()

    def write(self) -> None:
        try:
            self._job._keep(**{STEPS: self.packed()})
        except (NotLeasedError, JobNotFoundError) as error:
            raise JobInterrupted("its lease is lost") from error
        self._written = time.monotonic()

    def all_awaited(self) -> None:
        if self.promised is not None:
            raise StepError(
                f"step {self.promised!r} of {self._job.job_class} was not awaited, so it did not run: "
                "await self.step_async(...)"
            )

    def _let_go_if_asked(self) -> None:
        if self._job._cancelled:
            raise JobInterrupted("it is cancelled")
        if self._job._stopping():
            raise JobInterrupted("the worker stops")

    def _cursor(self, name: str, cursor: Any) -> Any:
        return self._serializers.pack(cursor, f"the cursor of step {name!r} of {self._job.job_class}")


def _kept(job: JobContext) -> dict[str, Any]:
    """What earlier runs kept of the steps.

    Raises:
        SerializationError: it is something else.
    """
    kept = job._state.get(STEPS, {"done": [], "cursors": {}, "resumed": 0, "running": False})
    kinds = {"done": list, "cursors": dict, "resumed": int, "running": bool}
    if type(kept) is not dict or any(type(kept.get(key)) is not kind for key, kind in kinds.items()):
        raise SerializationError(
            f"what is kept of the steps of job {job.id} is none of their making: {kept!r:.200}; "
            "something else writes to its job_state under the key 'steps'"
        )
    return kept
