"""Code of people's own before, around and after the steps of a job's life.

Before- and around-hooks are part of what they precede: what they raise counts as if the job had raised it.
After-hooks come when it is over: what they raise is logged, with their name, and changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any, Final, TypeVar

from nobroker.app.context import JobContext

Hook = TypeVar("Hook", bound=Callable[..., Any])

ENQUEUE: Final = ("before_enqueue", "around_enqueue", "after_enqueue")
PERFORM: Final = ("before_perform", "around_perform", "after_perform")
ENDS: Final = ("after_discard", "after_dead")
NAMES: Final = (*ENQUEUE, *PERFORM, *ENDS)

_log = logging.getLogger("nobroker.app")


class Hooks:
    """The hooks of one job.

    Args:
        owner: the job's name, for messages.
        is_async: whether the job is ``async def``; only then may hooks of its runs be so, too.
    """

    def __init__(self, owner: str, *, is_async: bool) -> None:
        self.owner = owner
        self._is_async = is_async
        self._hooks: dict[str, list[Callable[..., Any]]] = {}

    def add(self, name: str, hook: Hook) -> Hook:
        """Register a hook, and give it back, so that this can be a decorator.

        Raises:
            TypeError: it can't be called, or is async where nothing would await it.
        """
        if not callable(hook):
            raise TypeError(f"{name} of {self.owner} must be a function, not {type(hook).__name__}")
        is_async = inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook)
        if is_async and not (self._is_async and name in PERFORM):
            raise TypeError(
                f"{name} of {self.owner} is async, and nothing would await it; "
                "only the perform hooks of an async job may be"
            )
        if inspect.isgeneratorfunction(hook) and not name.startswith("around_"):
            raise TypeError(f"{name} of {self.owner} has a yield, so that calling it would run none of it")
        self._hooks.setdefault(name, []).append(hook)
        return hook

    def of(self, name: str) -> list[Callable[..., Any]]:
        """Those of one kind, in the order in which they were registered."""
        return self._hooks.get(name, [])

    def any(self, names: tuple[str, ...]) -> bool:
        """Whether there are hooks of these kinds."""
        return bool(self._hooks) and not self._hooks.keys().isdisjoint(names)

    # -- calling

    def call(self, name: str, context: JobContext) -> None:
        """Call the hooks of one kind; what one raises is raised, with a note that names it."""
        for hook in self.of(name):
            with noted(self._words(name, hook)):
                _refuse_awaitable(hook(context))

    async def call_async(self, name: str, context: JobContext) -> None:
        """As `call`; awaits those that are to be awaited."""
        for hook in self.of(name):
            with noted(self._words(name, hook)):
                found = hook(context)
                if inspect.isawaitable(found):
                    await found

    def tell(self, name: str, context: JobContext, *args: Any) -> None:
        """Call hooks for what is over: what they raise is logged."""
        for hook in self.of(name):
            try:
                _refuse_awaitable(hook(context, *args))
            except Exception:
                self._log(name, hook, context)

    async def tell_async(self, name: str, context: JobContext) -> None:
        """As `tell`; awaits those that are to be awaited."""
        for hook in self.of(name):
            try:
                found = hook(context)
                if inspect.isawaitable(found):
                    await found
            except Exception:
                self._log(name, hook, context)

    def _words(self, name: str, hook: Callable[..., Any]) -> str:
        return f"the hook {name} of {self.owner}: {name_of(hook)}"

    def _log(self, name: str, hook: Callable[..., Any], context: JobContext) -> None:
        _log.exception(
            "event=hook.failed hook=%s function=%s job=%s id=%s", name, name_of(hook), self.owner, context.id
        )

    def around(
        self, name: str, context: JobContext
    ) -> Iterator[AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]:
        """What the around-hooks make, to be entered in this order."""
        for hook in self.of(name):
            yield manager_of(hook, context, self._words(name, hook))


def _refuse_awaitable(found: Any) -> None:
    if found is not None and inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()  # it would complain itself that nobody awaited it
        raise TypeError(f"it returned {type(found).__name__}, which nothing would await here")


def is_plain(function: Any) -> bool:
    """Whether a call of it does all that it does."""
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return callable(function) and not any(kind(function) for kind in kinds)


def name_of(hook: Callable[..., Any]) -> str:
    """What messages call a function of somebody's."""
    return str(getattr(hook, "__qualname__", hook))


def manager_of(
    hook: Callable[..., Any], context: JobContext, what: str
) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
    """The context manager of an around-hook: made of the generator that it gives, or what it gives."""
    with noted(what):
        made = hook(context)
    if isinstance(made, Generator):
        return _Named(contextmanager(lambda: made)(), what)
    if isinstance(made, AsyncGenerator):
        return _AsyncNamed(asynccontextmanager(lambda: made)(), what)
    if hasattr(made, "__aenter__"):
        return _AsyncNamed(made, what)
    if hasattr(made, "__enter__"):
        return _Named(made, what)
    raise TypeError(
        f"{what} must be a generator function with one yield, or give a context manager; "
        f"it gave {type(made).__name__}"
    )


class _Named(AbstractContextManager[Any]):
    """A context manager whose own errors carry its name."""

    def __init__(self, manager: AbstractContextManager[Any], what: str) -> None:
        self._manager = manager
        self._what = what

    def __enter__(self) -> Any:
        with noted(self._what):
            return self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with noted(self._what, but=error):
            return self._manager.__exit__(kind, error, trace)


class _AsyncNamed(AbstractAsyncContextManager[Any]):
    """As `_Named`."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], what: str) -> None:
        self._manager = manager
        self._what = what

    async def __aenter__(self) -> Any:
        with noted(self._what):
            return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with noted(self._what, but=error):
            return await self._manager.__aexit__(kind, error, trace)


@contextmanager
def noted(what: str, but: BaseException | None = None) -> Iterator[None]:
    """Add a note to whatever is raised, that says who raised it; not to what only passes through."""
    try:
        yield
    except BaseException as error:
        if error is not but:
            error.add_note(f"raised by {what}")
        raise
