"""Rows about finished jobs into a CSV file, by a thread of its own, so that no job ever waits for a disk.

Invariants
- `add` never blocks: when the writer is behind by `ROOM` rows, rows are dropped and counted.
- Whatever goes wrong with the file ends the recording, with one warning, and nothing else.
"""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Any, Final

from nobroker.running.info import Recorded
from nobroker_mmap import files

COLUMNS: Final = (
    "finished_at", "pid", "id", "class", "queue", "attempt", "outcome", "ms", "wait_ms", "minor_faults",
    "major_faults", "rss_start", "rss_peak", "rss_end", "alone",
)  # fmt: skip
ROOM: Final = 10_000
_AT_ONCE: Final = 5000
_LOOK_S: Final = 0.5
_GATHER_S: Final = 0.05

_log = logging.getLogger("nobroker.running")


class Recording:
    """One file of rows.

    Args:
        path: of the file, which must not be there yet.
        max_rows: end after so many.
        seconds: end after so long.
        ended: called when it has ended by itself: by a limit, or because the file can't be written.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(
        self,
        path: str,
        *,
        max_rows: int | None,
        seconds: float | None,
        ended: Callable[[Recording], None],
    ) -> None:
        self.path = path
        self._left = math.inf if max_rows is None else max_rows
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        self._ended = ended
        self._rows = self._dropped = self._size = 0
        self._error: str | None = None
        self._queue: Queue[tuple[Any, ...] | None] = Queue(ROOM)
        self._stop = threading.Event()
        self._fd: int | None = files.create(path)
        self._thread = threading.Thread(target=self._work, name="nobroker-recording", daemon=True)
        self._thread.start()

    def add(self, row: tuple[Any, ...]) -> None:
        """Add the values of `COLUMNS`, or count them as dropped."""
        try:
            self._queue.put_nowait(row)
        except Full:
            self._dropped += 1

    def close(self, seconds: float) -> Recorded:
        """Write what is there, for so long at most, and end."""
        self._stop.set()
        with contextlib.suppress(Full):  # who has so much to write does not sleep
            self._queue.put_nowait(None)
        self._thread.join(seconds)
        return self.recorded()

    def recorded(self) -> Recorded:
        """What has become of it so far."""
        return Recorded(path=self.path, rows=self._rows, dropped=self._dropped, error=self._error)

    def forget(self) -> None:
        """In a forked child: the file is its parent's, and so is the thread."""
        self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    # -- the thread

    def _work(self) -> None:
        try:
            self._write([COLUMNS])
            while not self._is_over():
                rows = self._some()
                self._left -= len(rows)
                self._write(rows)
                self._rows += len(rows)
        except OSError as error:
            self._error = f"{type(error).__name__}: {error}"
            _log.warning("event=metrics.not_written path=%s error=%s: the recording ends", self.path, error)
        finally:
            self._let_go()
        if not self._stop.is_set():
            self._ended(self)

    def _is_over(self) -> bool:
        if self._stop.is_set():
            return self._queue.empty() or self._left <= 0
        return self._left <= 0 or time.monotonic() >= self._until

    def _some(self) -> list[tuple[Any, ...]]:
        """Rows that wait; maybe none, after a while."""
        most = int(min(self._left, _AT_ONCE))
        found: list[tuple[Any, ...] | None] = []
        try:
            found.append(self._queue.get(timeout=max(0.0, min(_LOOK_S, self._until - time.monotonic()))))
            self._stop.wait(_GATHER_S)  # many rows with one write
            while len(found) < most:
                found.append(self._queue.get_nowait())
        except Empty:
            pass  # that is all there is
        return [row for row in found if row is not None]

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        if not rows or self._fd is None:
            return
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        data = text.getvalue().encode("utf-8", "backslashreplace")
        files.write_at(self._fd, data, self._size)
        self._size += len(data)
