"""The queue: arguments, defaults, packing; then the store.

Nothing here touches a file. What a call means stands in its docstring (see `nobroker.verbs`); how it is
done, in `nobroker.stores`.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING

from nobroker import arguments
from nobroker.backoff import BackoffPolicy
from nobroker.clock import Clock, SystemClock
from nobroker.stores.base import Store
from nobroker.stores.following import Options
from nobroker.stores.log import LogStore
from nobroker.stores.log import drop as drop_log
from nobroker.stores.log import names as log_names
from nobroker.verbs.holding import Holding
from nobroker.verbs.managing import Managing
from nobroker.verbs.producing import Producing

if TYPE_CHECKING:
    from pathlib import Path


class Queue(Producing, Holding, Managing):
    """A durable job queue in a directory.

    Open it from as many threads and processes of one machine as you like. Delivery is at least once: make
    handlers idempotent.

    Args:
        path: the directory; made when missing.
        name: each name in a directory is a queue of its own. Letters, digits, `.`, `_`, `-`; at most 100;
            told apart without regard to case.
        fsync: whether a call returns only when its effect is on the disk. False is many times faster and may
            lose the last moments when the machine (not the process) crashes.
        visibility_timeout: seconds that a lease lasts.
        max_attempts: leases after which a failure is final, for jobs that do not say otherwise.
        backoff: how long a failed job waits.
        lock_timeout: seconds to wait for the lock before `LockTimeoutError`.
        segment_size: bytes of a log segment, 64 KiB to 256 MiB; rounded up to a power of two.
        max_bytes: the log does not grow over this by enqueueing; None for no limit.
        auto_compact: let writers compact a log over 64 MiB of which more than half is dead, a little at a
            time.
        keep_done: seconds that finished jobs with a result or an own id are remembered at least.
        read_only: change nothing, lock nothing: for looking.
        clock: for tests: see `nobroker.clock.ManualClock`.

    Raises:
        TypeError, ValueError: an argument is not what it should be.
        StorageError: the disk refuses, rights are missing, or there is no queue to read.
        CorruptLogError: the log is damaged; nothing was changed. See `nobroker recover`.
        LockTimeoutError: somebody holds the lock.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str = "default",
        *,
        fsync: bool = True,
        visibility_timeout: float = 30.0,
        max_attempts: int = 5,
        backoff: BackoffPolicy | None = None,
        lock_timeout: float = 10.0,
        segment_size: int = 16 * 2**20,
        max_bytes: int | None = None,
        auto_compact: bool = True,
        keep_done: float = 3600.0,
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if backoff is not None and not isinstance(backoff, BackoffPolicy):
            raise TypeError(f"backoff must be a BackoffPolicy, not {type(backoff).__name__}")
        self._directory = arguments.directory(path)
        self.name = name
        self.fsync = arguments.flag("fsync", fsync)
        self._visibility_us = arguments.seconds("visibility_timeout", visibility_timeout, positive=True)
        self.visibility_timeout = visibility_timeout
        self.max_attempts = arguments.whole("max_attempts", max_attempts, 1, arguments.MAX_ATTEMPTS)
        self.backoff = backoff or BackoffPolicy()
        options = Options(
            fsync=self.fsync,
            visibility_us=self._visibility_us,
            lock_timeout=arguments.wait_seconds("lock_timeout", lock_timeout),
            segment_size=arguments.segment_size(segment_size),
            max_bytes=None if max_bytes is None else arguments.whole("max_bytes", max_bytes, 1, 2**62),
            auto_compact=arguments.flag("auto_compact", auto_compact),
            keep_done_us=arguments.seconds("keep_done", keep_done),
            read_only=arguments.flag("read_only", read_only),
        )
        self._store: Store = LogStore(self._directory, name, options, clock or SystemClock())

    @property
    def dir(self) -> Path:
        """The directory."""
        from pathlib import Path

        return Path(self._directory)

    def close(self) -> None:
        """Let go of all files. Closing twice is harmless; using a closed queue raises `QueueClosedError`."""
        self._store.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {self._directory!r}>"


def list_queues(path: str | os.PathLike[str]) -> list[str]:
    """Names of the queues in a directory, sorted; none when there is no such directory."""
    return log_names(arguments.directory(path))


def drop_queue(path: str | os.PathLike[str], name: str = "default") -> None:
    """Delete a queue with all its files. Nobody may have it open.

    Raises:
        StorageError: there is none.
        LockTimeoutError: somebody has it open.
    """
    drop_log(arguments.directory(path), name)
