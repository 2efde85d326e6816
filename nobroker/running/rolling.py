"""Restarting processes one by one, without a gap: when the new one is ready, the old one ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from nobroker.running.children import Child, Post

_log = logging.getLogger("nobroker.running")


class Rolling:
    """One round of restarts.

    Args:
        start: starts a process for a place; None: it could not.
        stop: has a process end.
    """

    def __init__(self, start: Callable[[Post], Child | None], stop: Callable[[Child], None]) -> None:
        self._start = start
        self._stop = stop
        self._waiting: list[Post] = []
        self._post: Post | None = None
        self._fresh: Child | None = None
        self._old: Child | None = None

    @property
    def busy(self) -> bool:
        return self._post is not None or bool(self._waiting)

    def begin(self, posts: Iterable[Post]) -> None:
        """Restart these; whoever is restarted already, too, once more."""
        self._waiting = list(posts)

    def cancel(self) -> None:
        """No more; a new process that was to take a place stays without one, and ends."""
        self._waiting.clear()
        if self._fresh is not None:
            self._stop(self._fresh)
        self._post = self._fresh = self._old = None

    def step(self) -> None:
        """Do what can be done now."""
        if self._post is None and self._waiting:
            post = self._waiting.pop(0)
            if post.child is None:
                return  # it is about to be started anyway
            self._fresh = self._start(post)
            if self._fresh is None:
                self._fail("it could not be started")
            else:
                self._post = post
        elif self._post is not None and self._fresh is not None and self._fresh.ready:
            self._old, self._post.child, self._fresh = self._post.child, self._fresh, None
            if self._old is None:
                self._post = None
            else:
                self._stop(self._old)

    def ended(self, child: Child) -> Child | None:
        """A process has ended; returns the one that stands in its place at once, if there is one."""
        if child is self._fresh:
            self._fresh = self._post = None
            self._fail(f"the new process {child.pid} ended before it was ready")
        elif child is self._old:
            self._old = self._post = None
        elif self._post is not None and child is self._post.child and self._fresh is not None:
            fresh, self._fresh, self._post = self._fresh, None, None
            return fresh
        return None

    def _fail(self, why: str) -> None:
        self._waiting.clear()
        _log.error("event=restart.given_up: %s; the old processes go on", why)
