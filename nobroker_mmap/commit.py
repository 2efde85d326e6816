"""Group commit: one sync makes durable what many callers appended, across threads and processes.

Invariants
- A caller returns only when the shared durable-up-to covers its end, or raises with outcome "unknown".
- A failed sync is final: the shared poison flag is set before anybody else can sync, and no sync is tried
  again.
- Nobody waits for the lock. Who finds it taken looks, again and again, whether the sync that runs, or the
  next one, has covered what it waits for: one sync serves all, and nobody has to have had a turn.
- Nothing waits for others longer than 50 ms: then the caller syncs by itself.
- The descriptor that is synced stays open meanwhile: it is closed only under this module's mutex.
"""

import os
import threading
import time
from collections.abc import Callable

from nobroker_mmap import files, locking
from nobroker_mmap.errors import StorageError

PATIENCE_S = 0.05
LOOK_S = 200e-6
"""Between two looks: about a sync of a fast disk, for a process that wakes finds its caches cold."""


class GroupCommit:
    """The syncing side of one handle."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._fd = files.open_or_create(path)
        self._leaving: list[int] = []
        self._closed = False

    def run(self, done: Callable[[], bool], sync: Callable[[], None]) -> None:
        """Have `sync` called, by this caller or another, until `done`."""
        with self._mutex:
            if self._closed:
                raise StorageError(
                    f"{self._path}: closed before the sync", path=self._path, outcome="unknown"
                )
            try:
                self._run(done, sync)
            finally:
                self._close_leaving()

    def _run(self, done: Callable[[], bool], sync: Callable[[], None]) -> None:
        patience = locking.Deadline(PATIENCE_S)
        while not done():
            if locking.try_lock(self._fd):
                try:
                    if not done():
                        sync()
                finally:
                    locking.unlock(self._fd)
                return
            if not patience.left():
                sync()
                return
            time.sleep(LOOK_S)

    def close_later(self, fd: int) -> None:
        """Close a segment's descriptor as soon as no sync uses it."""
        self._leaving.append(fd)
        if self._mutex.acquire(blocking=False):
            try:
                self._close_leaving()
            finally:
                self._mutex.release()

    def _close_leaving(self) -> None:
        while self._leaving:
            os.close(self._leaving.pop())

    def close(self) -> None:
        """Close the descriptors; a sync that runs is waited for."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self._close_leaving()
            os.close(self._fd)

    def abandon(self) -> None:
        """In a forked child: close what was inherited, without a lock."""
        if self._closed:
            return
        self._closed = True
        os.close(self._fd)
        self._close_leaving()


def sync_failed(path: str, error: OSError) -> StorageError:
    """What a failed sync means, in words."""
    return StorageError(
        f"{path}: a sync failed ({error}). What was written since the last good one may be lost, and no"
        " later sync can"
        " tell; every handle of this queue now refuses to work: close them all and open the queue again",
        path=path,
        outcome="unknown",
    )
