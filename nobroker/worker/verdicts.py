"""What a handler raises to say itself what becomes of its job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from nobroker import arguments
from nobroker.values import pack_value


class Verdict(Exception):
    """The base of all verdicts, for `except` clauses; not to be raised itself.

    Attributes:
        state: kept with the job as its `job_state`; None leaves that as it was.
    """

    state: Any

    def __init__(self, said: object, *, state: Any = None) -> None:
        super().__init__(said)
        if state is not None:
            pack_value(state, "state")
        self.state = state


class RetryLater(Verdict):
    """Give the job back: no attempt is counted, no error is stored. As `Queue.release`, it is not synced.

    Args:
        delay: seconds (>= 0), or a timedelta, until it may be delivered again. 0: at once, in its old place.
        state: a small value for the next attempt.

    Raises:
        TypeError, ValueError: a delay that is none.
        SerializationError: a state that is not stored.
    """

    def __init__(self, delay: float | timedelta, *, state: Any = None) -> None:
        super().__init__(delay, state=state)
        self.delay = _seconds(delay)


class Dead(Verdict):
    """Send the job to the dead-letter queue now, whatever its attempts.

    Args:
        reason: its error: a text, or an exception with its traceback.
        state: kept with the job.

    Raises:
        TypeError: a reason that is neither.
        SerializationError: a state that is not stored.
    """

    def __init__(self, reason: str | BaseException, *, state: Any = None) -> None:
        super().__init__(reason, state=state)
        self.reason = _told("reason", reason)


class Failed(Verdict):
    """Fail the job, and say how it goes on.

    Args:
        error: what went wrong: a text, or an exception with its traceback.
        delay: seconds (>= 0), or a timedelta, until the next try. None: as the queue's backoff says.
        dead: True: no further try. False: a further try whatever `max_attempts` says. None: by the attempts.
        state: a small value for the next attempt.

    Raises:
        TypeError, ValueError: an argument of a wrong type or outside its range.
        SerializationError: a state that is not stored.
    """

    def __init__(
        self,
        error: str | BaseException,
        *,
        delay: float | timedelta | None = None,
        dead: bool | None = None,
        state: Any = None,
    ) -> None:
        super().__init__(error, state=state)
        self.error = _told("error", error)
        self.delay = None if delay is None else _seconds(delay)
        self.dead = None if dead is None else arguments.flag("dead", dead)


def _seconds(delay: Any) -> float:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    return arguments.seconds("delay", seconds) / 1e6


def _told(name: str, said: Any) -> str | BaseException:
    if not isinstance(said, str | BaseException):
        raise TypeError(f"{name} must be a text or an exception, not {type(said).__name__}")
    return said
