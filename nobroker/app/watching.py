"""The usher: sees to it that batches end and held jobs go on. It stands beside the worker, in every process.

Invariants
- Whatever it does may be done twice, by anyone, and may be cut short anywhere: the records say what is left.
- What it keeps in memory only spares work. `look` starts from the records.
- It ends when it is told to, and not by an error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from nobroker.app import chains, records, tallies
from nobroker.app.context import JobContext
from nobroker.app.records import found
from nobroker.app.tallies import Watched
from nobroker.errors import NobrokerError
from nobroker.job import Job, JobState
from nobroker.queue import Queue

SOON_S: Final = 0.02
"""When a job has run that others wait for, its ack is on its way: look after so long, then after twice that,
and so on."""
EVERY_S: Final = 1.0
"""Everything is looked at so often."""
_SHARE: Final = 20
"""Looking at everything takes one part of a processor in so many at most; so does looking at
what changed."""

_log = logging.getLogger("nobroker.app")


class Usher:
    """Looks after the records of one queue.

    Attributes:
        moved: how many jobs it has set in motion so far: callbacks, and held jobs.
    """

    def __init__(self, queue: Queue) -> None:
        self.moved = 0
        self._queue = queue
        self._looking = threading.Lock()  # guards `moved`, and changes of the next two
        self._watched: dict[str, Watched] = {}
        self._awaited: dict[str, set[str]] = {}  # a job -> the records that wait for it
        self._soon: dict[str, tuple[float, float]] = {}  # a record -> when to look, after which pause
        self._marking = threading.Lock()  # guards the next one
        self._marked: set[str] = set()  # records that something happened to
        self._wake = threading.Event()
        self._stop = threading.Event()

    # -- told by others

    def ended(self, context: JobContext) -> None:
        """A job has run in this process; its ack may not be written yet."""
        if context._batch_id is not None:
            self.look_soon(context._batch_id)
        if context._then is not None:
            self.look_soon(context._then)
        for record_id in list(self._awaited.get(context.id or "", ())):
            self.look_soon(record_id)

    def look_soon(self, record_id: str) -> None:
        """Something may be due about this record."""
        if record_id not in self._marked:
            with self._marking:
                self._marked.add(record_id)
            self._wake.set()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Work in a thread of its own, as long as this lasts."""
        self._stop.clear()
        thread = threading.Thread(target=self._work, name="nobroker-usher", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._wake.set()
            thread.join()

    # -- looking

    def look(self) -> None:
        """Look at all records, and do what is due.

        Raises:
            NobrokerError: the queue can't be read. What goes wrong with one record is logged.
        """
        with self._looking:
            stats = self._queue.stats(lane=records.LANE)
            if not stats.ready + stats.delayed:
                self._watched, self._awaited = {}, {}
                return
            watched: dict[str, Watched] = {}
            for record in self._queue.list_jobs(JobState.READY, lane=records.LANE):
                one = self._watched.get(record.id) or _watched(record)
                if one is not None:
                    watched[record.id] = one
            self._watched = watched
            awaited: dict[str, set[str]] = {}
            for one in list(watched.values()):
                self._see(one, awaited)
            self._awaited = awaited

    def _see(self, one: Watched, awaited: dict[str, set[str]]) -> None:
        try:
            self.moved += one.look(self._queue)
        except NobrokerError as error:
            _log.warning("event=usher.failed record=%s error=%s: %s", one.id, type(error).__name__, error)
        if one.over:
            self._watched.pop(one.id, None)
        else:
            for job_id in one.awaits():
                awaited.setdefault(job_id, set()).add(one.id)

    def _look_at(self, record_id: str) -> bool:
        """Look at one record; whether it is still to be watched."""
        one = self._watched.get(record_id)
        if one is None:
            record = found(self._queue, record_id)
            if record is None or record.state is not JobState.READY:
                return False
            one = _watched(record)
            if one is None:
                return False
            self._watched[record_id] = one
        self._see(one, self._awaited)
        return not one.over

    # -- the thread

    def _work(self) -> None:
        everything_at = time.monotonic()
        while True:
            if time.monotonic() >= everything_at:
                everything_at = time.monotonic() + max(EVERY_S, self._rest_after(self.look))
            if self._stop.wait(self._rest_after(self._look_at_some)):
                return
            due = min([everything_at, *(at for at, _ in self._soon.values())])
            if self._wake.wait(max(0.0, due - time.monotonic())):
                self._stop.wait(SOON_S)
            if self._stop.is_set():
                return

    def _rest_after(self, look: Callable[[], None]) -> float:
        """Look; how long to rest before the next one, for what it took of the processor."""
        began = time.thread_time()
        try:
            look()
        except NobrokerError as error:
            _log.warning("event=usher.failed error=%s: %s", type(error).__name__, error)
        except Exception:
            _log.exception("event=usher.failed")
        return (time.thread_time() - began) * (_SHARE - 1)

    def _look_at_some(self) -> None:
        """Look at records that something happened to, and again at those that had not come to an end."""
        self._wake.clear()
        with self._marking:
            marked, self._marked = self._marked, set()
        now = time.monotonic()
        self._soon.update(dict.fromkeys(marked, (now, SOON_S)))
        with self._looking:
            for record_id, (at, pause) in list(self._soon.items()):
                if at > now:
                    continue
                del self._soon[record_id]
                if self._look_at(record_id) and pause < EVERY_S:
                    self._soon[record_id] = (time.monotonic() + 2 * pause, 2 * pause)


def _watched(record: Job) -> Watched | None:
    """What is to be looked at because of a record.

    Of a record that is not as it should be (a later version may write others), it is said in the log.
    """
    try:
        kind = records.kind_of(record)
        if kind == records.HELD:
            return chains.HeldJobs(record)
        if kind == records.LOST:
            return chains.LostJob(record)
        return tallies.watched(record)
    except (KeyError, TypeError, ValueError) as error:
        _log.error(
            "event=usher.not_understood record=%s error=%s: %s", record.id, type(error).__name__, error
        )
        return None
