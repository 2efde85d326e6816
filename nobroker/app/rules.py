"""What becomes of a job that raised: rules, in order, first match wins."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from nobroker.backoff import BackoffPolicy

Exceptions = type[BaseException] | tuple[type[BaseException], ...]
Handler = Callable[[Any, BaseException], Any]
"""Called with the job (as `current_job()` gives it) and the error."""
Wait = BackoffPolicy | float | timedelta | Callable[[int], float | timedelta]

_MAX_ATTEMPTS: Final = 10_000
_MAX_WAIT_S: Final = 366 * 86400.0


class Rule:
    """One or several types of exceptions, and who is told."""

    def __init__(self, exceptions: Exceptions, handler: Handler | None) -> None:
        types = exceptions if isinstance(exceptions, tuple) else (exceptions,)
        if not types:
            raise ValueError(f"{type(self).__name__} of no exceptions would never apply")
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(
                    f"{type(self).__name__} takes exception classes (below Exception), not {kind!r}"
                )
        if handler is not None and not callable(handler):
            raise TypeError(f"handler must be a function of (job, error), not {type(handler).__name__}")
        if inspect.iscoroutinefunction(handler):
            raise TypeError(f"the handler of {type(self).__name__} must be a plain function, not async def")
        self.exceptions: tuple[type[BaseException], ...] = types
        self.handler = handler

    @property
    def key(self) -> str:
        """What the rule is about, as its counter is called in the job's state."""
        return ",".join(f"{kind.__module__}.{kind.__qualname__}" for kind in self.exceptions)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(kind.__name__ for kind in self.exceptions)})"


class Retry(Rule):
    """Run the job again when it raises one of these.

    Args:
        exceptions: an exception class or a tuple of them.
        attempts: so many runs in all that end in one of these; 1 to 10,000. It counts by itself, beside the
            job's ``max_attempts``.
        wait: before the next run: a `BackoffPolicy` (growing, with jitter; the default), seconds, a
            timedelta, or a function of the number of the failed attempt, from 1.
        handler: called with the job and the error when the attempts are used up. When it returns, the job is
            done; when it raises, or there is none, the job is dead.
    """

    def __init__(
        self,
        exceptions: Exceptions,
        *,
        attempts: int = 5,
        wait: Wait | None = None,
        handler: Handler | None = None,
    ) -> None:
        super().__init__(exceptions, handler)
        if type(attempts) is not int:
            raise TypeError(f"attempts must be a whole number, not {attempts!r}")
        if not 1 <= attempts <= _MAX_ATTEMPTS:
            raise ValueError(f"attempts must be between 1 and {_MAX_ATTEMPTS:,}, not {attempts}")
        self.attempts = attempts
        self.wait = BackoffPolicy() if wait is None else wait
        if not (isinstance(self.wait, BackoffPolicy) or callable(self.wait)):
            seconds_of("wait", self.wait)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt of this number, from 1."""
        if isinstance(self.wait, BackoffPolicy):
            return self.wait.delay_for(attempt)
        value = self.wait(attempt) if callable(self.wait) else self.wait
        return min(seconds_of("what wait returned", value), _MAX_WAIT_S)


class Discard(Rule):
    """The job is done when it raises one of these; the reason is kept with it.

    Args:
        exceptions: an exception class or a tuple of them.
        handler: called with the job and the error.
    """

    def __init__(self, exceptions: Exceptions, handler: Handler | None = None) -> None:
        super().__init__(exceptions, handler)


class Rescue(Rule):
    """The handler deals with the error, and what it returns is the job's result.

    Args:
        exceptions: an exception class or a tuple of them.
        handler: called with the job and the error. If it raises, that is the job's failure.
    """

    handler: Handler

    def __init__(self, exceptions: Exceptions, handler: Handler) -> None:
        if not callable(handler):
            raise TypeError("Rescue needs a handler: a function of (job, error)")
        super().__init__(exceptions, handler)


def rules_of(owner: str, option: str, kind: type[Rule], value: Any) -> tuple[Any, ...]:
    """The rules of one option, as a tuple."""
    found = (value,) if isinstance(value, Rule) else value
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise TypeError(f"{option} of {owner} must be a list of {kind.__name__}, not {value!r}")
    rules = tuple(found)
    for rule in rules:
        if type(rule) is not kind:
            raise TypeError(f"{option} of {owner} must be a list of {kind.__name__}, and {rule!r} is none")
    return rules


def match(rules: Iterable[Rule], error: BaseException) -> int | None:
    """Index of the first rule that applies."""
    for index, rule in enumerate(rules):
        if isinstance(error, rule.exceptions):
            return index
    return None


def seconds_of(name: str, value: Any) -> float:
    """Seconds, from a number >= 0 or a timedelta."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be seconds or a timedelta, not {value!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of seconds >= 0, not {value!r}")
    return float(value)
