"""What may be said of a job where it is defined, and where it is enqueued. What is not known is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from nobroker.app.records import LANE, TICKS_LANE
from nobroker.app.rules import Discard, Rescue, Retry, rules_of, seconds_of

DEFAULT_QUEUE: Final = "default"

MOST_AT_ONCE: Final = 2**31 - 1
MOST_WEIGHT: Final = 1000
_MOST_LEASES: Final = 1_000_000
_OF_KEYS: Final = ("concurrency_limit", "concurrency_key", "rate_limit_key", "fair_key", "fair_weight")
"""Options that may be functions."""
_NEEDS: Final = (
    ("concurrency_key", "concurrency_limit"),
    ("concurrency_group", "concurrency_limit"),
    ("concurrency_on_conflict", "concurrency_limit"),
    ("rate_limit_max", "rate_limit_duration"),
    ("rate_limit_duration", "rate_limit_max"),
    ("rate_limit_key", "rate_limit_max"),
    ("rate_limit_group", "rate_limit_max"),
    ("rate_limit_on_throttle", "rate_limit_max"),
    ("fair_weight", "fair_key"),
)
"""Options, and what they say something about."""

Seconds = float | timedelta


class JobOptions(NamedTuple):
    """What is said where a job is defined.

    Attributes:
        name: in payloads and logs; the class's or function's own when left out.
        queue: or a function of the arguments that gives it.
        priority: higher first.
        max_attempts: runs that may fail, or end with their worker; None: the queue's. What `Retry` deals with
            is not counted.
        timeout: seconds that one run may take; None: as long as it likes.
        expires_in: seconds after which it is not begun any more; None: never.
        max_resumptions: how often a job with steps may go on after an interruption; None: as often as
            ``max_attempts`` allows.
        retry, discard, rescue: rules for exceptions.
        concurrency_limit: so many jobs of a key run at once; or a function of the key that says how many.
        concurrency_key: a function of the arguments that gives the key: a str or an int, several of them, or
            None for a call that is not limited. None: one key for all calls.
        concurrency_group: what stands before the key; None: the job's name.
        concurrency_on_conflict: "wait" (None, too), or "discard".
        rate_limit_max: so many runs of a key begin within `rate_limit_duration`.
        rate_limit_duration: seconds.
        rate_limit_key, rate_limit_group: as those of `concurrency_limit`.
        rate_limit_on_throttle: "reschedule" (None, too), or "discard".
        exclusive: True: it runs alone in its worker process; "app": alone in the directory.
        fair_key: a function of the arguments that gives a str or an int, or None. Among the keys that have
            waiting jobs of one queue and priority, runs go round.
        fair_weight: runs for one of a key with weight 1; or a function of the key that says how many.
    """

    name: str | None = None
    queue: str | Callable[..., str] = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | None = None
    expires_in: float | None = None
    max_resumptions: int | None = None
    retry: tuple[Retry, ...] = ()
    discard: tuple[Discard, ...] = ()
    rescue: tuple[Rescue, ...] = ()
    concurrency_limit: int | Callable[..., int] | None = None
    concurrency_key: Callable[..., Any] | None = None
    concurrency_group: str | None = None
    concurrency_on_conflict: str | None = None
    rate_limit_max: int | None = None
    rate_limit_duration: float | None = None
    rate_limit_key: Callable[..., Any] | None = None
    rate_limit_group: str | None = None
    rate_limit_on_throttle: str | None = None
    exclusive: bool | str = False
    fair_key: Callable[..., Any] | None = None
    fair_weight: int | Callable[..., int] | None = None


class EnqueueOptions(NamedTuple):
    """What is said with ``set``. None: not said."""

    wait: float | None = None
    wait_until: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    job_id: str | None = None
    expires_in: float | None = None
    metadata: Any = None
    debounce: float | None = None
    debounce_max: float | None = None


UNSAID: Final = EnqueueOptions()
"""Of a call without ``set``: always this one, so that a look at its identity tells."""


def job_options(owner: str, given: Mapping[str, Any]) -> JobOptions:
    """Checked options of a definition.

    Raises:
        TypeError: an option that there is not, with the nearest one; or of a wrong type.
        ValueError: out of its range.
    """
    known(owner, given, JobOptions._fields)
    options = JobOptions(**given)
    if options.name is not None and (type(options.name) is not str or not options.name):
        raise TypeError(f"name of {owner} must be a str that is not empty, not {options.name!r}")
    if not callable(options.queue):
        queue_name(f"queue of {owner}", options.queue)
    elif inspect.iscoroutinefunction(options.queue):
        raise TypeError(f"queue of {owner} must be a plain function of the arguments, not async def")
    return options._replace(
        priority=whole(f"priority of {owner}", options.priority, -(2**31), 2**31 - 1),
        max_attempts=optional_whole(f"max_attempts of {owner}", options.max_attempts, 1),
        max_resumptions=optional_whole(f"max_resumptions of {owner}", options.max_resumptions, 0),
        timeout=_positive(f"timeout of {owner}", options.timeout),
        expires_in=_positive(f"expires_in of {owner}", options.expires_in),
        retry=rules_of(owner, "retry", Retry, options.retry),
        discard=rules_of(owner, "discard", Discard, options.discard),
        rescue=rules_of(owner, "rescue", Rescue, options.rescue),
        **_limits(owner, options),
    )


def _limits(owner: str, options: JobOptions) -> dict[str, Any]:
    """What is said of limits, checked; only what it changes.

    Raises:
        TypeError, ValueError: as `job_options`.
    """
    for name in ("concurrency_key", "rate_limit_key", "fair_key"):
        value = getattr(options, name)
        if value is not None and not callable(value):
            raise TypeError(f"{name} of {owner} must be a function of the arguments, not {value!r}")
    for name in _OF_KEYS:
        if inspect.iscoroutinefunction(getattr(options, name)):
            raise TypeError(f"{name} of {owner} must be a plain function, not async def")
    for name, most in (("concurrency_limit", MOST_AT_ONCE), ("fair_weight", MOST_WEIGHT)):
        value = getattr(options, name)
        if value is not None and not callable(value):
            whole(f"{name} of {owner}", value, 1, most)
    if options.rate_limit_max is not None:
        whole(f"rate_limit_max of {owner}", options.rate_limit_max, 1, _MOST_LEASES)
    for name in ("concurrency_group", "rate_limit_group"):
        _group(f"{name} of {owner}", getattr(options, name))
    _one_of(f"concurrency_on_conflict of {owner}", options.concurrency_on_conflict, ("wait", "discard"))
    _one_of(f"rate_limit_on_throttle of {owner}", options.rate_limit_on_throttle, ("reschedule", "discard"))
    if options.exclusive is not True and options.exclusive is not False and options.exclusive != "app":
        raise ValueError(f'exclusive of {owner} must be True, "app" or False, not {options.exclusive!r}')
    for name, needed in _NEEDS:
        if getattr(options, name) is not None and getattr(options, needed) is None:
            raise ValueError(f"{name} of {owner} says nothing without {needed}")
    return {
        "rate_limit_duration": _positive(f"rate_limit_duration of {owner}", options.rate_limit_duration)
    }


def enqueue_options(before: EnqueueOptions, given: Mapping[str, Any]) -> EnqueueOptions:
    """What ``set`` says, on top of what was said before.

    Raises:
        TypeError, ValueError: as `job_options`.
    """
    known("set()", given, EnqueueOptions._fields)
    if given.get("wait") is not None and given.get("wait_until") is not None:
        raise ValueError("give wait or wait_until, not both")
    if "wait" in given or "wait_until" in given:
        before = before._replace(wait=None, wait_until=None)
    options = before._replace(**given)
    if options.wait_until is not None:
        moment(options.wait_until)
    if options.queue is not None:
        queue_name("queue", options.queue)
    if options.priority is not None:
        whole("priority", options.priority, -(2**31), 2**31 - 1)
    if options.job_id is not None and type(options.job_id) is not str:
        raise TypeError(f"job_id must be a str, not {type(options.job_id).__name__}")
    options = options._replace(
        debounce=_positive("debounce", options.debounce),
        debounce_max=_positive("debounce_max", options.debounce_max),
    )
    _check_debounce(options)
    return options._replace(
        wait=None if options.wait is None else seconds_of("wait", options.wait),
        expires_in=_positive("expires_in", options.expires_in),
    )


def _check_debounce(options: EnqueueOptions) -> None:
    if options.debounce is None:
        if options.debounce_max is not None:
            raise ValueError("debounce_max says nothing without debounce")
        return
    if options.job_id is None:
        raise ValueError("debounce needs a job_id: it is what says that two calls are one; set both")
    if options.wait is not None or options.wait_until is not None:
        raise ValueError("give debounce, or wait or wait_until, not both: debounce says when it may run")
    if options.debounce_max is not None and options.debounce_max < options.debounce:
        raise ValueError(
            f"debounce_max must be at least debounce, {options.debounce:g} s, not {options.debounce_max:g}"
        )


def known(owner: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Refuse options that there are not."""
    for name in given:
        if name not in names:
            near = get_close_matches(name, list(names), 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
            raise TypeError(f"{owner} has no option {name!r}; {hint}")


def queue_name(what: str, value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{what} must be the name of a queue, not {value!r}")
    if not 1 <= len(value) <= 100 or "*" in value or "," in value or not value.isprintable():
        raise ValueError(
            f"{what} must have 1 to 100 printable characters, without commas and asterisks, not {value!r}"
        )
    if value in (LANE, TICKS_LANE):
        raise ValueError(f"{what} is {value!r}, where this library keeps records; choose another one")
    return value


def _group(what: str, value: Any) -> None:
    if value is None:
        return
    if type(value) is not str:
        raise TypeError(f"{what} must be a str, not {value!r}")
    if not 1 <= len(value) <= 200 or not value.isprintable():
        raise ValueError(f"{what} must have 1 to 200 printable characters, not {value!r:.220}")


def _one_of(what: str, value: Any, words: tuple[str, ...]) -> None:
    if value is not None and (type(value) is not str or value not in words):
        raise ValueError(f"{what} must be one of {', '.join(map(repr, words))}, not {value!r}")


def moment(value: Any) -> None:
    if not isinstance(value, datetime):
        raise TypeError(f"wait_until must be an aware datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise ValueError(
            f"wait_until must have a time zone: {value!r} means another moment on another machine; "
            "write datetime(..., tzinfo=ZoneInfo('Europe/Berlin')), or datetime.now(UTC) + ..."
        )


def whole(what: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int:
        raise TypeError(f"{what} must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{what} must be between {low:,} and {high:,}, not {value:,}")
    return value


def optional_whole(what: str, value: Any, low: int) -> int | None:
    return None if value is None else whole(what, value, low, 2**31 - 1)


def _positive(what: str, value: Any) -> float | None:
    if value is None:
        return None
    seconds = seconds_of(what, value)
    if seconds == 0:
        raise ValueError(f"{what} must be more than 0 seconds")
    return seconds
