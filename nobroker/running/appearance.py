"""What others see of a supervisor: its entry in the registry, systemd, its title. Without a thread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nobroker.running import notify, titles
from nobroker.running.registry import Registration

if TYPE_CHECKING:
    from nobroker.app import App


class Appearance:
    """A supervisor, as others see it.

    Args:
        app: whose queue this is about; it is closed when this is made.
        interval: seconds between two signs of life.
    """

    def __init__(self, app: App, interval: float) -> None:
        queue = app.queue  # also tells whether it can be used at all, before anything is begun
        app.close()
        self._registration = Registration(queue, "supervisor", interval=interval)
        self._interval = interval
        self._watched = notify.watchdog_interval()
        self._watch_at = -math.inf
        self._beat_at = 0.0
        self._said = ""
        self._state = "starting"
        self._reloading = False
        self._title = titles.title()

    @property
    def id(self) -> str:
        """In the registry."""
        return self._registration.id

    def due(self) -> float:
        """When there is something to say next; monotonic seconds."""
        return self._beat_at if self._watched is None else min(self._beat_at, self._watch_at)

    def look(self, now: float, state: str, processes: int) -> None:
        """Say how it is, if that is new, or due.

        Args:
            state: "starting", "running", "quiet", "stopping".
            processes: how many there are.
        """
        if self._watched is not None and now >= self._watch_at:
            self._watch_at = now + self._watched / 3
            notify.watchdog()
        said = f"{state}, {processes} processes"
        if said == self._said and now < self._beat_at:
            return
        if state != self._state:
            if self._state == "starting" and state != "stopping":
                notify.ready()
            if state == "stopping":
                notify.stopping()
            self._state = state
        if said != self._said:
            self._said = said
            notify.status(said)
            if self._title is not None:
                titles.set_title(f"nobroker: supervisor ({said})")
        self._beat_at = now + self._interval
        self._registration.update(state=state)
        self._registration.beat()

    def reloading(self) -> None:
        """Say that a restart of all processes begins."""
        if self._state != "starting":  # it says that it is ready when it is
            self._reloading = True
            notify.reloading()

    def reloaded(self) -> None:
        """Say that a restart is over, if one was on: however it ended, what runs now is the service."""
        if self._reloading:
            self._reloading = False
            notify.ready()

    def close(self) -> None:
        if self._title is not None:
            titles.set_title(self._title)
        self._registration.close()
