"""One registered job: how it is called, and what was said of it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

from nobroker.app.context import Arguments, JobContext
from nobroker.app.envelope import Call
from nobroker.app.handle import JobHandle
from nobroker.app.hooks import Hooks
from nobroker.app.limiting import Limiting, limiting_of
from nobroker.app.options import UNSAID, EnqueueOptions, JobOptions, enqueue_options, queue_name
from nobroker.app.signatures import checker

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from nobroker.app.application import App

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
"""What the function itself gives: R, or a coroutine of it."""


class Definition:
    """A job of an application.

    Attributes:
        name: in payloads.
        module: where it is defined, for messages.
        context: what is made for each run.
        source: file and line where it is defined.
        is_async: whether `call` gives an awaitable.
        plain: the job with nothing said by ``set``.
        limiting: what is said of its limits; None: nothing.
    """

    def __init__(
        self,
        app: App,
        target: Any,
        function: Callable[..., Any],
        options: JobOptions,
        *,
        context: type[JobContext],
    ) -> None:
        method = context is not JobContext
        _refuse_generators(target.__qualname__, function)
        self.app = app
        self.target = target
        self.options = options
        self.name = options.name or target.__qualname__.replace("<locals>.", "")
        self.module = target.__module__
        self.source = _source(function)
        self.context = context
        self.is_async = inspect.iscoroutinefunction(function)
        self.hooks = Hooks(self.name, is_async=self.is_async)
        self.check = checker(function, self.name, method=method)
        self.limiting: Limiting | None = limiting_of(self.name, options, target if method else None)
        self.plain: Configured[..., Any] = Configured(self, UNSAID)
        self._function = function
        self._method = method

    def __repr__(self) -> str:
        return f"<job {self.name} of {self.module}>"

    @property
    def place(self) -> str:
        """Where it is defined, for messages."""
        return f"{self.module} (line {self.source[1]})"

    def call(self, context: JobContext) -> Any:
        """What the job's code returns: a coroutine where it is async."""
        args, kwargs = context.arguments
        if self._method:
            return self._function(context, *args, **kwargs)
        return self._function(*args, **kwargs)

    def begin(self, arguments: Arguments, queue_name: str, priority: int, now: float) -> JobContext:
        """A context for one run."""
        context = self.context()
        context._app = self.app
        context._begin(self.name, arguments, queue_name, priority, now)
        return context

    def queue_of(self, said: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The queue that a call goes through."""
        if self.app._forced is not None:
            return self.app._forced
        if said is not None:
            return said
        queue = self.options.queue
        if callable(queue):
            return queue_name(f"what queue of {self.name} returned", queue(*args, **kwargs))
        return queue


class PreparedJob(NamedTuple):
    """A call that can be enqueued; made by ``build``.

    Attributes:
        definition: of the job.
        call: its name and arguments, checked.
        options: what ``set`` said.
    """

    definition: Definition
    call: Call
    options: EnqueueOptions


class Configured(Generic[P, R]):
    """A job with what ``set`` said of it."""

    def __init__(self, definition: Definition, options: EnqueueOptions) -> None:
        self._definition = definition
        self._options = options

    def set(self, **options: Any) -> Configured[P, R]:
        """Say more; the later word counts. See `JobFunction.set`."""
        return Configured(self._definition, enqueue_options(self._options, options))

    def build(self, *args: P.args, **kwargs: P.kwargs) -> PreparedJob:
        """The call, checked, to be enqueued with others: `App.perform_all_later`, a chain, a batch.

        Raises:
            TypeError: the arguments do not fit.
        """
        definition = self._definition
        definition.check(*args, **kwargs)
        return PreparedJob(definition, Call(definition.name, args, kwargs), self._options)

    def perform_later(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue the call; it is on the disk when this returns (see ``fsync``).

        Raises:
            TypeError: the arguments do not fit.
            SerializationError: an argument can't be stored; nothing was written.
        """
        return self._definition.app._enqueue(self.build(*args, **kwargs))


class JobFunction(Generic[P, R, C]):
    """A function that is a job. Called as it is, it is the function."""

    def __init__(self, definition: Definition, function: Callable[P, C]) -> None:
        self.definition = definition
        self._function = function
        self._plain: Configured[P, R] = Configured(definition, UNSAID)
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.definition.name} of {self.__module__}>"

    def perform_later(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a call. See `Configured.perform_later`."""
        return self._plain.perform_later(*args, **kwargs)

    def build(self, *args: P.args, **kwargs: P.kwargs) -> PreparedJob:
        """A call, checked, to be enqueued with others. See `Configured.build`."""
        return self._plain.build(*args, **kwargs)

    def set(self, **options: Any) -> Configured[P, R]:
        """Say how the next call is to be enqueued.

        Args:
            wait: seconds or a timedelta before it may run.
            wait_until: or an aware datetime.
            queue, priority, expires_in: instead of the job's own.
            job_id: an id of your own: while it is known, the same is not enqueued twice.
            metadata: any value, kept beside the arguments.
            debounce: seconds (or a timedelta) that it waits; with a `job_id`. As long as it does, the same
                call again gives it the newer arguments and lets it wait as long anew.
            debounce_max: so long after the first of these calls it runs in any case.

        Raises:
            TypeError: there is no such option, or a value has the wrong type.
            ValueError: out of its range, or options that do not go together.
        """
        return self._plain.set(**options)

    def perform_now(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here, with its hooks and the middleware, and return what it returns. Nothing is enqueued;
        what it raises is raised, but for what ``rescue`` and ``discard`` deal with.
        """
        found: R = self.definition.app._perform_now(self.build(*args, **kwargs))
        return found

    # -- hooks; each may be used as a decorator

    def before_enqueue(self, hook: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
        """Called before the job is enqueued; may raise `AbortEnqueue`."""
        return self.definition.hooks.add("before_enqueue", hook)

    def around_enqueue(self, hook: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
        """A generator function with one ``yield``, or a function that gives a context manager."""
        return self.definition.hooks.add("around_enqueue", hook)

    def after_enqueue(self, hook: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
        """Called when the job is on the queue."""
        return self.definition.hooks.add("after_enqueue", hook)

    def before_perform(self, hook: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
        """Called before each run."""
        return self.definition.hooks.add("before_perform", hook)

    def around_perform(self, hook: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
        """As `around_enqueue`, around each run."""
        return self.definition.hooks.add("around_perform", hook)

    def after_perform(self, hook: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
        """Called after each run that returned."""
        return self.definition.hooks.add("after_perform", hook)

    def after_discard(
        self, hook: Callable[[JobContext, BaseException], Any]
    ) -> Callable[[JobContext, BaseException], Any]:
        """Called with the job and the error that discarded it."""
        return self.definition.hooks.add("after_discard", hook)

    def after_dead(
        self, hook: Callable[[JobContext, BaseException], Any]
    ) -> Callable[[JobContext, BaseException], Any]:
        """Called with the job and the error that made it dead."""
        return self.definition.hooks.add("after_dead", hook)


class JobDecorator:
    """``@app.job(...)``, waiting for its function."""

    def __init__(
        self,
        define: Callable[[Callable[..., Any], dict[str, Any]], JobFunction[Any, Any, Any]],
        options: dict[str, Any],
    ) -> None:
        self._define = define
        self._options = options

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._define(function, self._options)


def the_same(one: Definition, other: Definition) -> bool:
    """The same source once more: a module that was reloaded, or run as a script and imported as well. In an
    interactive session, what is typed last counts.
    """
    if one.target.__qualname__ != other.target.__qualname__:
        return False
    typed = one.module == other.module == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    return typed or one.source == other.source


def _refuse_generators(name: str, function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{name} has a yield, so that calling it would run none of it; "
            "a job is a plain function or async def"
        )


def _source(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(inspect.unwrap(function), "__code__", None) or function.__code__
    return code.co_filename, code.co_firstlineno
