"""What an application tells people's own code of: workers that start and stop, jobs that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from nobroker.app.hooks import is_plain

E = TypeVar("E", bound=Callable[..., Any])

EVENTS = ("on_start", "on_stop", "on_worker_start", "on_worker_stop", "on_shutdown", "on_job_error")

_log = logging.getLogger("nobroker.app")


class Events:
    """Each method is a decorator of a function that is called then. What such a function raises is logged
    with its name, and changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[str, list[Callable[..., Any]]] = {name: [] for name in EVENTS}

    def on_start(self, function: E) -> E:
        """Called when `run` begins."""
        return self._on("on_start", function)

    def on_stop(self, function: E) -> E:
        """Called when `run` ends."""
        return self._on("on_stop", function)

    def on_worker_start(self, function: E) -> E:
        """Called in each worker process before it takes jobs."""
        return self._on("on_worker_start", function)

    def on_worker_stop(self, function: E) -> E:
        """Called in each worker process when its last job has ended."""
        return self._on("on_worker_stop", function)

    def on_shutdown(self, function: E) -> E:
        """Called last of all, when everything of this process has stopped."""
        return self._on("on_shutdown", function)

    def on_job_error(self, function: E) -> E:
        """Called with the job and its error whenever a run fails, whatever becomes of the job."""
        return self._on("on_job_error", function)

    def _on(self, event: str, function: E) -> E:
        if not is_plain(function):
            raise TypeError(f"{event} takes a plain function, not {function!r}")
        self._events[event].append(function)
        return function

    def _tell(self, event: str, *args: Any) -> None:
        for function in self._events[event]:
            try:
                function(*args)
            except Exception:
                name = getattr(function, "__qualname__", repr(function))
                _log.exception("event=hook.failed hook=%s function=%s", event, name)
