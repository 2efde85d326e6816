"""Jobs as classes."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, ClassVar, Final

from nobroker.app.context import JobContext
from nobroker.app.definition import Configured, Definition, PreparedJob
from nobroker.app.handle import JobHandle
from nobroker.app.hooks import NAMES, Hooks
from nobroker.app.options import DEFAULT_QUEUE, JobOptions, job_options
from nobroker.app.steps import Steps

_OPTIONS: Final = tuple(name for name in JobOptions._fields if name != "name")


class BaseJob(Steps):
    """A job as a class: attributes say how, ``perform`` says what. Register it with ``@app.register``.

    Inside ``perform``, ``self`` is this run of this job: see `JobContext`, and `Steps` for long ones. Methods
    with the names of hooks (``before_perform`` and its like) are its hooks.

    Attributes:
        queue: a name, or a function of the arguments that gives one (written as a ``staticmethod``).
        max_attempts, timeout, expires_in, max_resumptions, retry, discard, rescue: see `JobOptions`.
        job_name: in payloads; the class's name when left out.
    """

    queue: ClassVar[Any] = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: ClassVar[int | None] = None
    timeout: ClassVar[Any] = None
    expires_in: ClassVar[Any] = None
    max_resumptions: ClassVar[int | None] = None
    retry: ClassVar[Any] = ()
    discard: ClassVar[Any] = ()
    rescue: ClassVar[Any] = ()
    job_name: ClassVar[str | None] = None

    perform: Callable[..., Any]

    @classmethod
    def set(cls, **options: Any) -> Configured[..., Any]:
        """Say how the next call is to be enqueued. See `JobFunction.set`."""
        return definition_of(cls).plain.set(**options)

    @classmethod
    def build(cls, *args: Any, **kwargs: Any) -> PreparedJob:
        """A call, checked, to be enqueued with others. See `Configured.build`."""
        return definition_of(cls).plain.build(*args, **kwargs)

    @classmethod
    def perform_later(cls, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue a call. See `Configured.perform_later`."""
        return definition_of(cls).plain.perform_later(*args, **kwargs)

    @classmethod
    def perform_now(cls, *args: Any, **kwargs: Any) -> Any:
        """Run it here. See `JobFunction.perform_now`."""
        return definition_of(cls).app._perform_now(cls.build(*args, **kwargs))


def definition_of(cls: type[BaseJob]) -> Definition:
    """What was registered.

    Raises:
        TypeError: nothing was.
    """
    found = cls.__dict__.get("definition")
    if found is None:
        raise TypeError(f"{cls.__qualname__} is not registered; put @app.register before the class")
    checked: Definition = found
    return checked


def define(app: Any, cls: type[BaseJob]) -> Definition:
    """The definition of a class.

    Raises:
        TypeError: it is no job class, has no ``perform``, or an attribute looks like a misspelt option.
    """
    if not (isinstance(cls, type) and issubclass(cls, BaseJob)):
        raise TypeError(f"@app.register is for classes below BaseJob, not {cls!r}; for functions: @app.job")
    perform = getattr(cls, "perform", None)
    if not callable(perform):
        raise TypeError(f"{cls.__qualname__} has no method perform")
    _refuse_near_misses(cls)
    given = {option: _option(cls, option) for option in _OPTIONS}
    options = job_options(cls.__qualname__, {"name": cls.job_name, **given})
    definition = Definition(
        app,
        cls,
        perform,
        options,
        context=cls,
        hooks=Hooks(cls.__qualname__, is_async=_is_async(perform)),
    )
    for name in NAMES:
        hook = getattr(cls, name, None)
        if hook is not None:
            definition.hooks.add(name, hook)
    cls.definition = definition
    return definition


def _option(cls: type[BaseJob], name: str) -> Any:
    """An option's value; a plain function in the class is taken as it is, not as a method."""
    return getattr(cls, name)


def _is_async(function: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(function)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _refuse_near_misses(cls: type[BaseJob]) -> None:
    """An attribute that is nearly an option would be passed over without a word."""
    names = (*_OPTIONS, *NAMES, "perform", "job_name")
    for kind in cls.__mro__:
        if kind in (BaseJob, Steps, JobContext, object):
            continue
        for attribute in vars(kind):
            if _is_private(attribute) and hasattr(BaseJob, attribute):
                raise TypeError(
                    f"{cls.__qualname__}.{attribute}: BaseJob has one of this name for itself; take another"
                )
            if attribute.startswith("_") or hasattr(BaseJob, attribute) or attribute in names:
                continue
            near = get_close_matches(attribute, names, 1, 0.85)
            if near:
                raise TypeError(
                    f"{cls.__qualname__}.{attribute}: did you mean {near[0]}? "
                    "An attribute of your own may begin with an underscore"
                )
