"""One thread per handler at a time: lease, call, record, again."""

from __future__ import annotations

import time

from nobroker.errors import QueueClosedError
from nobroker.job import Job
from nobroker.worker import facts
from nobroker.worker.calling import Caller
from nobroker.worker.outcome import Outcome
from nobroker.worker.recording import TRANSIENT, Pauses, Recorder, is_final
from nobroker.worker.run import Hand, Held, Note, Place, Run

BATCH_ACK_AFTER_S = 0.2
"""In a batch, an ack waits for those of its neighbours at most so long."""


class Slot:
    """What one handler thread does, and the jobs it has in hand."""

    def __init__(self, run: Run, caller: Caller, recorder: Recorder) -> None:
        self.hand = Hand()
        self.place = Place.QUEUE
        self._run = run
        self._caller = caller
        self._recorder = recorder
        self._first_done = 0.0  # monotonic; when the oldest ack of `hand.done` came

    def main(self) -> None:
        """The thread's body. An error that is not a handler's ends the run, and is raised there."""
        try:
            self._work()
        except BaseException as error:
            self._run.fail(error)
        try:
            self._leave()
        except BaseException as error:
            facts.not_recorded("leave", [held.job for held in self.hand.all()], error)
            self._run.fail(error)
        with self._run.changed:
            self.place = Place.ENDED
            self._run.changed.notify_all()
        self._run.mailbox.put(Note.SLOT_ENDED)

    def _work(self) -> None:
        while self._obtain():
            while (held := self._begin()) is not None:
                outcome = self._caller.call(held.job)
                if not self._back_from_handler(held, outcome):
                    return
                if outcome.error is not None:
                    self._failed(outcome.error)
                elif not self.hand.todo:
                    self._recorder.settle(self.hand, more=True)
                elif time.monotonic() - self._first_done > BATCH_ACK_AFTER_S:
                    self._recorder.settle(self.hand, more=False)
                del outcome, held  # an idle worker keeps no payload, and no handler's objects by a traceback
            if self.hand.done:
                self._recorder.settle(self.hand, more=False)
            self._tell_idle()

    def _obtain(self) -> bool:
        """Wait until this slot has jobs.

        Returns:
            False when the run is over for it.
        """
        run = self._run
        with run.leader:
            pauses = Pauses(run)
            while True:
                with run.changed:
                    run.changed.wait_for(lambda: run.over() or run.budget > 0)
                if run.over():
                    return False
                quiet = run.nothing_held()  # before the lease: what ends after it may have come back since
                try:
                    if self._lease(quiet):
                        return True
                except QueueClosedError:
                    facts.queue_closed()
                    run.stop("closed")
                    return False
                except TRANSIENT as error:
                    if is_final(error):
                        raise
                    pauses.after("lease", error)
                    continue
                pauses = Pauses(run)
                if quiet and self._idle_for_s() <= 0:
                    run.stop("idle")
                    return False

    def _lease(self, quiet: bool) -> bool:
        run = self._run
        wait = run.poll_interval
        if quiet and run.idle_timeout is not None:
            wait = max(0.0, min(wait, self._idle_for_s()))
        watching = run.idle_timeout is not None and not quiet
        reserved = run.reserve()
        if not reserved:
            return False
        jobs: list[Job] = []
        began = time.monotonic()
        try:
            jobs = run.queue._wait_lease(
                reserved,
                wait=wait,
                lanes=run.lanes,
                stop=lambda: run.stopping or (watching and run.nothing_held()),
            )
        finally:
            # The lease was taken at some moment of the wait; if that was long, in all likelihood at its end.
            taken = max(began, time.monotonic() - run.lease_s / 3)
            run.leased(reserved, jobs, self.hand, taken + run.lease_s)
        return bool(jobs)

    def _begin(self) -> Held | None:
        """The next job to run, if any may begin."""
        run = self._run
        sure: Held | None = None
        while True:
            with run.guard:
                if run.stopping or not self.hand.todo:
                    return None
                held = self.hand.todo[0]
                now = time.monotonic()
                if not held.lost and (held is sure or now < held.good_until):
                    held.began = now
                    self.hand.running = self.hand.todo.popleft()
                    self.place = Place.HANDLER
                    return held
            # This process may have slept through the lease: somebody else may have the job by now.
            if not held.lost and self._recorder.confirm(held):
                sure = held
                continue
            facts.lease_lost(held.job, "waiting")
            with run.changed:
                self.hand.todo.popleft()

    def _back_from_handler(self, held: Held, outcome: Outcome) -> bool:
        """Take the outcome in hand; False when the run has let go of the job, or of this slot."""
        hand = self.hand
        with self._run.guard:
            if not self._run.abandoned and hand.running is held:
                self.place = Place.QUEUE
                if outcome.error is None:
                    if not hand.done:
                        self._first_done = time.monotonic()
                    hand.done.append((held, outcome.value))
                    hand.running = None
                return True
        facts.result_discarded(held.job)
        return False

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self._run.fail(error)  # first, so that nobody leases meanwhile
        self._recorder.fail(self.hand, error)

    def _leave(self) -> None:
        """Record what ended, give back what did not begin."""
        if self._run.abandoned:
            return  # whoever lets go sees to it
        self._recorder.settle(self.hand, more=False)
        with self._run.changed:
            if self.hand.running is not None:  # its outcome could not be recorded
                self.hand.todo.append(self.hand.running)
                self.hand.running = None
        self._recorder.release(self.hand)

    def _tell_idle(self) -> None:
        """Let the slot that waits for jobs see that none will come back from the others."""
        run = self._run
        if run.idle_timeout is not None and len(run.slots) > 1 and run.nothing_held():
            run.queue._wake_local()

    def _idle_for_s(self) -> float:
        """Seconds until the run has been idle for long enough."""
        if self._run.idle_timeout is None:
            return float("inf")
        return self._run.last_busy + self._run.idle_timeout - time.monotonic()
