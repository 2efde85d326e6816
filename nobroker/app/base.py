"""Jobs as classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from types import FunctionType
from typing import Any, ClassVar, Final

from nobroker.app.context import Arguments, JobContext
from nobroker.app.definition import Configured, Definition, PreparedJob
from nobroker.app.handle import JobHandle
from nobroker.app.hooks import NAMES
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
        concurrency_limit, rate_limit_max, exclusive, fair_key, and what belongs to them: see there.
            Those that are functions may be methods; ``self`` is then an instance that is made for the call,
            with `arguments`, `queue_name`, `priority` and `metadata`, as hooks see it that run before the job
            is enqueued.
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
    concurrency_limit: ClassVar[Any] = None
    concurrency_key: ClassVar[Any] = None
    concurrency_group: ClassVar[str | None] = None
    concurrency_on_conflict: ClassVar[str | None] = None
    rate_limit_max: ClassVar[int | None] = None
    rate_limit_duration: ClassVar[Any] = None
    rate_limit_key: ClassVar[Any] = None
    rate_limit_group: ClassVar[str | None] = None
    rate_limit_on_throttle: ClassVar[str | None] = None
    exclusive: ClassVar[bool | str] = False
    fair_key: ClassVar[Any] = None
    fair_weight: ClassVar[Any] = None
    job_name: ClassVar[str | None] = None

    perform: Callable[..., Any]

    def _begin(self, name: str, arguments: Arguments, queue_name: str, priority: int, now: float) -> None:
        super()._begin(name, arguments, queue_name, priority, now)
        self.queue = queue_name  # type: ignore[misc]  # in a run it is the run's, as all the others are

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
    perform = inspect.getattr_static(cls, "perform", None)
    if perform is None:
        raise TypeError(f"{cls.__qualname__} has no method perform")
    if not inspect.isfunction(perform):
        raise TypeError(f"perform of {cls.__qualname__} must be a plain method, not {type(perform).__name__}")
    _check_class(app, cls)
    _refuse_near_misses(cls)
    given = {option: getattr(cls, option) for option in _OPTIONS}
    options = job_options(cls.__qualname__, {"name": cls.job_name, **given})
    definition = Definition(
        app,
        cls,
        perform,
        options,
        context=cls,
    )
    for name in NAMES:
        hook = getattr(cls, name, None)
        if hook is not None:
            definition.hooks.add(name, hook)
    return definition


def _check_class(app: Any, cls: type[BaseJob]) -> None:
    """Refuse what would go wrong, or go elsewhere, only when a job is run."""
    known = cls.__dict__.get("definition")
    if known is not None and known.app is not app:
        raise TypeError(
            f"{cls.__qualname__} is registered with another application; register a class below it here"
        )
    if isinstance(inspect.getattr_static(cls, "queue"), FunctionType):
        raise TypeError(
            f"queue of {cls.__qualname__} must be a @staticmethod of the arguments: there is no self yet"
        )
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise TypeError(f"{cls.__qualname__}() must need no arguments, each run makes one: {error}") from None


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
