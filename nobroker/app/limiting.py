"""What a job says of its limits, worded for each call as the queue takes it.

The functions among these options are asked when a call is enqueued. What they raise, and what can't be a key
or a number, is a `LimitError` there, before anything is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any, Final

from nobroker.app.context import JobContext
from nobroker.app.errors import LimitError
from nobroker.app.options import MOST_AT_ONCE, MOST_WEIGHT, JobOptions
from nobroker.limits import Limit, Rate

_MOST_KEYS: Final = 16  # as the queue takes at most
_FUNCTIONS: Final = ("concurrency_limit", "concurrency_key", "rate_limit_key", "fair_key", "fair_weight")


class Limiting:
    """The limits of one job.

    Args:
        name: of the job.
        options: checked.
        methods: those of its functions that take ``self``.

    Attributes:
        varies: whether calls differ in what is said of them.
    """

    def __init__(self, name: str, options: JobOptions, methods: frozenset[str]) -> None:
        self.varies = any(callable(getattr(options, option)) for option in _FUNCTIONS)
        self._name = name
        self._options = options
        self._methods = methods

    def of(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], instance: Callable[[], JobContext]
    ) -> dict[str, Any]:
        """What the queue is told of a call: arguments of `Queue.enqueue`.

        Args:
            instance: makes what methods get for ``self``; asked once at most.

        Raises:
            LimitError: a function raised, or gave something that can't be.
        """
        options, asked = self._options, _Asked(self._name, self._options, self._methods, instance)
        said: dict[str, Any] = {}
        if options.concurrency_limit is not None:
            group = options.concurrency_group or self._name
            keys = asked.keys("concurrency_key", group, args, kwargs)
            choice = options.concurrency_on_conflict or "wait"
            limits = [
                Limit(text, asked.number("concurrency_limit", key, MOST_AT_ONCE), choice)
                for text, key in keys.items()
            ]
            if limits:
                said["limits"] = limits
        if options.rate_limit_max is not None and options.rate_limit_duration is not None:
            group = options.rate_limit_group or self._name
            keys = asked.keys("rate_limit_key", group, args, kwargs)
            choice = options.rate_limit_on_throttle or "reschedule"
            rates = [Rate(text, options.rate_limit_max, options.rate_limit_duration, choice) for text in keys]
            if rates:
                said["rates"] = rates
        if options.exclusive == "app":
            said["exclusive"] = "app"
        if options.fair_key is not None:
            key = asked.fair_key(args, kwargs)
            if key is not None:
                said["fair_key"] = key
                if options.fair_weight is not None:
                    said["fair_weight"] = asked.number("fair_weight", key, MOST_WEIGHT)
        return said


class _Asked:
    """Asks the functions of a job about one call."""

    def __init__(
        self, name: str, options: JobOptions, methods: frozenset[str], instance: Callable[[], JobContext]
    ) -> None:
        self._name = name
        self._options = options
        self._methods = methods
        self._make = instance
        self._instance: JobContext | None = None

    def keys(
        self, option: str, group: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, str]:
        """The keys of a call: the whole text of each, and what the job said, as text; in an order that does
        not depend on that of a set.
        """
        if getattr(self._options, option) is None:
            return {group: group}
        value = self._ask(option, _all, *args, **kwargs)
        found = sorted(self._text(option, one) for one in value)
        if len(found) > _MOST_KEYS:
            raise LimitError(self._name, option, f"gave more than {_MOST_KEYS} keys")
        return {self._fitting(option, f"{group}/{key}"): key for key in found}

    def fair_key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        value = self._ask("fair_key", _same, *args, **kwargs)
        return None if value is None else self._fitting("fair_key", self._text("fair_key", value))

    def number(self, option: str, key: str, most: int) -> int:
        """What is said of a key, or of all."""
        value = getattr(self._options, option)
        if callable(value):
            value = self._ask(option, _same, key)
            if type(value) is not int or not 1 <= value <= most:
                problem = f"gave {value!r:.60} for {key!r:.60}: it must be a whole number from 1 to {most:,}"
                raise LimitError(self._name, option, problem)
        found: int = value
        return found

    def _ask(self, option: str, take: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
        """Ask a function; `take` makes of its answer what is wanted, and may run code of its own."""
        function = getattr(self._options, option)
        if option in self._methods:
            if self._instance is None:
                self._instance = self._make()
            function = partial(function, self._instance)
        try:
            return take(function(*args, **kwargs))
        except Exception as error:
            raise LimitError(self._name, option, f"raised {type(error).__name__}: {error}") from error

    def _text(self, option: str, key: Any) -> str:
        if type(key) not in (str, int):
            problem = f"gave {key!r:.60} for a key: it must be a str or an int; of other values, give str()"
            raise LimitError(self._name, option, problem)
        if key == "":
            raise LimitError(self._name, option, "gave an empty key; give None for a call that has none")
        return str(key)

    def _fitting(self, option: str, text: str) -> str:
        """The whole text of a key, as the queue takes it."""
        try:
            return Limit(text, 1).key
        except ValueError as error:
            raise LimitError(
                self._name, option, f"gave what can't be a key, {text!r:.60}: {error}"
            ) from error


def limiting_of(name: str, options: JobOptions, cls: type | None) -> Limiting | None:
    """The limits of a job; None: it has none.

    Args:
        cls: where it is one: plain functions in it are methods.
    """
    unlimited = (
        options.concurrency_limit is None
        and options.rate_limit_max is None
        and options.fair_key is None
        and options.exclusive != "app"
    )
    if unlimited:
        return None
    methods = {
        option
        for option in _FUNCTIONS
        if cls is not None and isinstance(inspect.getattr_static(cls, option), FunctionType)
    }
    return Limiting(name, options, frozenset(methods))


def _same(value: Any) -> Any:
    if inspect.iscoroutine(value):
        value.close()  # it would complain itself that nobody awaited it
        raise TypeError("it gave a coroutine; it must be a plain function")
    return value


def _all(value: Any) -> list[Any]:
    """One key or several, as a list; not more of them than it takes to see that there are too many."""
    value = _same(value)
    if value is None:
        return []
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        return [value]
    return [value] if isinstance(value, str) else list(islice(value, _MOST_KEYS + 1))
