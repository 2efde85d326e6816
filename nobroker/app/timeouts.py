"""Stopping jobs in threads that run too long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nobroker.app.context import JobContext


class ThreadTimeouts:
    """Watches over the jobs that run in threads."""

    @contextmanager
    def guard(self, context: JobContext, seconds: float) -> Iterator[None]:
        """Within: the code may run for so long."""
        yield
