"""Extends the leases of all jobs in hand, begun or not, until their acks are written."""

from __future__ import annotations

import threading
import time

from nobroker.errors import JobNotFoundError, NotLeasedError, QueueClosedError
from nobroker.worker import facts
from nobroker.worker.recording import TRANSIENT, is_final
from nobroker.worker.run import Held, Run

MIN_INTERVAL_S = 0.05


class Heartbeat:
    """One thread, one write per beat for any number of jobs. It ends after the slots, not before."""

    def __init__(self, run: Run) -> None:
        self._run = run
        # Two beats may fail before a lease ends.
        self._interval_s = max(run.lease_s / 3, MIN_INTERVAL_S)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._main, name="nobroker-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, *, wait: bool) -> None:
        self._closed.set()
        if wait and self._thread.ident is not None:
            self._thread.join()

    def _main(self) -> None:
        pause = self._interval_s
        while not self._closed.wait(pause):
            try:
                pause = self._beat()
            except QueueClosedError:
                return  # nothing can be extended any more; the slots find out by themselves
            except BaseException as error:
                self._run.fail(error)
                if is_final(error):
                    return
                pause = self._interval_s

    def _beat(self) -> float:
        """Extend what is held.

        Returns:
            Seconds until the next beat.
        """
        held = self._held()
        if not held:
            return self._interval_s
        sooner = max(self._interval_s / 4, MIN_INTERVAL_S / 2)
        began = time.monotonic()
        try:
            gone = self._extend(held)
        except TRANSIENT as error:
            if is_final(error):
                raise
            facts.trouble("extend", error, sooner)
            return sooner
        with self._run.changed:
            for one in held:
                if one.job.lease_token in gone:
                    one.lost = True
                else:
                    one.good_until = began + self._run.lease_s
        return self._interval_s

    def _held(self) -> list[Held]:
        with self._run.changed:
            return [held for hand in self._run.hands() for held in hand.all() if not held.lost]

    def _extend(self, held: list[Held]) -> set[int | None]:
        """Extend, and return the tokens of those that are not ours any more."""
        try:
            self._run.queue.extend_many([one.job for one in held], self._run.lease_s)
        except NotLeasedError as error:
            return {job.lease_token for job in error.jobs} & {one.job.lease_token for one in held}
        except JobNotFoundError:
            return {one.job.lease_token for one in held if not self._extended(one)}
        return set()

    def _extended(self, one: Held) -> bool:
        try:
            self._run.queue.extend(one.job, self._run.lease_s)
        except (NotLeasedError, JobNotFoundError):
            return False
        return True
