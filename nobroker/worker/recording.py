"""Outcomes -> the queue, with patience: a busy lock or a full disk delays an ack, it does not lose it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from nobroker.errors import (
    JobNotFoundError,
    LockTimeoutError,
    NotLeasedError,
    QueueClosedError,
    QueueFullError,
    SerializationError,
    StorageError,
)
from nobroker.job import Job, JobState
from nobroker.worker import facts
from nobroker.worker.calling import error_text
from nobroker.worker.durability import Durability
from nobroker.worker.run import Hand, Held, Run
from nobroker.worker.verdicts import Dead, Failed, RetryLater, Verdict

T = TypeVar("T")

TRANSIENT = (LockTimeoutError, StorageError, QueueFullError)
"""What may be over at the next try, unless `is_final` says otherwise."""

_MIN_PAUSE_S = 0.05
_MAX_PAUSE_S = 5.0
_STOP_PATIENCE_S = 30.0
_LAST_PATIENCE_S = 2.0
_STORAGE_PATIENCE_S = 60.0


def is_final(error: BaseException) -> bool:
    """Whether trying again is pointless: what is on disk stays unknown until the queue is opened anew."""
    return isinstance(error, StorageError) and error.outcome != "not written"


class GaveUp(Exception):
    """Not recorded, and not tried any more."""


class Pauses:
    """Growing pauses between tries."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next_s = max(run.poll_interval, _MIN_PAUSE_S)
        self._refused_since: float | None = None
        self._stopping = run.stopping

    def after(self, doing: str, error: BaseException) -> None:
        """Wait.

        Raises:
            StorageError: the one given, when there was nothing else for a minute. A handle that has to be
                opened anew says so with every call; its worker must not stay around as if it worked.
        """
        now = time.monotonic()
        if not isinstance(error, StorageError):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= _STORAGE_PATIENCE_S:
            raise error
        facts.trouble(doing, error, self._next_s)
        self._run.pause(self._next_s, self._stopping)
        self._stopping = self._run.stopping
        self._next_s = min(self._next_s * 2, max(_MAX_PAUSE_S, self._run.poll_interval))


class Recorder:
    """Writes what became of the jobs of a hand. The calling thread owns that hand.

    Args:
        run, durability: what all share.
        last: nobody tries after this one, so it has some patience even when the run lets go.
    """

    def __init__(self, run: Run, durability: Durability, *, last: bool = False) -> None:
        self._run = run
        self._last = last
        self._durability = durability

    def settle(self, hand: Hand, *, more: bool) -> None:
        """Ack all of `hand.done`, together; with `more` lease the next batch in the same group."""
        acks = list(hand.done)
        if not acks:
            return
        self._durability.make_room()
        pairs = [(held.job, value) for held, value in acks]
        try:
            lost, missing, ticket = self._persist("ack", acks, lambda: self._settle_once(hand, pairs, more))
        except SerializationError:
            for held, value in acks:
                self._ack_alone(held, value)
                self._forget_acks(hand, 1)
            return
        except GaveUp:
            if self._last or not self._run.abandoned:
                self._forget_acks(hand, len(acks))
            return
        self._forget_acks(hand, len(acks))
        known_lost = {held.job.id for held, _ in acks if held.lost}
        for job in lost:
            self._lost(job)
        for job in missing:
            self._lost(job) if job.id in known_lost else facts.job_gone(job, "ack")
        if recorded := len(acks) - len(lost) - len(missing):
            self._durability.expect(ticket, recorded)

    def fail(self, hand: Hand, error: BaseException) -> None:
        """Write down what becomes of the running job, whose handler raised."""
        held = hand.running
        if held is None:
            return
        doing = "release" if isinstance(error, RetryLater) else "nack"
        try:
            self._persist(doing, [(held, None)], lambda: self._fail_once(held.job, error))
        except GaveUp:
            if self._run.abandoned:
                return
        except NotLeasedError:
            self._lost(held.job, doing)
        except JobNotFoundError:
            self._lost(held.job, doing) if held.lost else facts.job_gone(held.job, doing)
        with self._run.changed:
            hand.running = None
            self._run.last_busy = time.monotonic()

    def confirm(self, held: Held) -> bool:
        """Whether a job that was long in hand is still ours; extends its lease if so."""
        began = time.monotonic()
        try:
            extend = partial(self._run.queue.extend, held.job, self._run.lease_s)
            self._persist("extend", [(held, None)], extend)
        except (NotLeasedError, JobNotFoundError, GaveUp):
            return False
        with self._run.changed:
            held.good_until = began + self._run.lease_s
        return True

    def release(self, hand: Hand) -> None:
        """Give back what has not begun, its attempt included."""
        with self._run.changed:
            held = list(hand.todo)
        if held:
            try:
                self._persist("release", [(one, None) for one in held], lambda: self._release_once(held))
            except GaveUp:
                if self._run.abandoned and not self._last:
                    return
            else:
                facts.released([one.job for one in held])
        with self._run.changed:
            hand.todo.clear()

    def _fail_once(self, job: Job, error: BaseException) -> None:
        if isinstance(error, Verdict):
            try:
                return self._apply(job, error)
            except (
                AttributeError,
                TypeError,
                ValueError,
            ) as broken:  # a verdict that was changed, or not made
                error = broken
        self._nack(job, error)

    def _apply(self, job: Job, verdict: Verdict) -> None:
        """Do as a verdict says."""
        if isinstance(verdict, RetryLater):
            after = self._run.queue.release(job, delay=verdict.delay, state=verdict.state)
            facts.job_given_back(job, verdict.delay, after)
        elif isinstance(verdict, Dead):
            self._nack(job, verdict.reason, dead=True, state=verdict.state)
        elif isinstance(verdict, Failed):
            self._nack(job, verdict.error, delay=verdict.delay, dead=verdict.dead, state=verdict.state)
        else:
            self._nack(job, verdict)

    def _nack(self, job: Job, error: str | BaseException, **how: Any) -> None:
        text = error_text(error) if isinstance(error, BaseException) else error
        after = self._run.queue.nack(job, error=text, **how)
        facts.job_failed(job, text, after)
        self._run.count(failed=1, dead=int(after.state is JobState.DEAD))

    def _settle_once(
        self, hand: Hand, pairs: list[tuple[Job, Any]], more: bool
    ) -> tuple[list[Job], list[Job], int]:
        run = self._run
        reserved = run.reserve() if more else 0
        leased: list[Job] = []
        began = time.monotonic()
        try:
            leased, lost, missing, ticket = run.queue._settle_and_lease(pairs, reserved, lanes=run.lanes)
        finally:
            run.leased(reserved, leased, hand, began + run.lease_s)
        return lost, missing, ticket

    def _ack_alone(self, held: Held, value: Any) -> None:
        """The work was done: a result that can't be stored does not undo that."""
        queue = self._run.queue
        try:
            try:
                self._persist("ack", [(held, None)], lambda: queue.ack(held.job, result=value))
            except SerializationError as error:
                facts.result_not_stored(held.job, error)
                self._persist("ack", [(held, None)], lambda: queue.ack(held.job))
        except GaveUp:
            return
        except NotLeasedError:
            self._lost(held.job)
        except JobNotFoundError:
            self._lost(held.job) if held.lost else facts.job_gone(held.job, "ack")
        else:
            self._run.count(succeeded=1)

    def _release_once(self, held: list[Held]) -> None:
        queue = self._run.queue
        try:
            queue.release_many([one.job for one in held])
        except NotLeasedError as error:  # the others were given back
            for job in error.jobs:
                facts.lease_lost(job, "release")
        except JobNotFoundError:
            for one in held:
                try:
                    queue.release(one.job)
                except (NotLeasedError, JobNotFoundError):
                    facts.job_gone(one.job, "release")

    def _persist(self, doing: str, held: list[tuple[Held, Any]], attempt: Callable[[], T]) -> T:
        """Try until it is done; when the run stops, for a while; when it lets go, only as the last."""
        run = self._run
        pauses = Pauses(run)
        failed_at: float | None = None
        while True:
            try:
                return attempt()
            except QueueClosedError as error:
                failure: BaseException = error
                break
            except TRANSIENT as error:
                if is_final(error):
                    raise
                failure = error
            now = time.monotonic()
            failed_at = now if failed_at is None or not run.stopping else failed_at
            if now - failed_at >= self._patience_s():
                break
            if run.abandoned:
                time.sleep(_MIN_PAUSE_S)
            else:
                pauses.after(doing, failure)
        facts.not_recorded(doing, [one.job for one, _ in held], failure)
        raise GaveUp from failure

    def _patience_s(self) -> float:
        """How long to go on failing; counts from the first failure of a run that stops."""
        if self._run.abandoned:
            return _LAST_PATIENCE_S if self._last else 0.0
        return min(self._run.lease_s, _STOP_PATIENCE_S) if self._run.stopping else float("inf")

    def _forget_acks(self, hand: Hand, count: int) -> None:
        with self._run.changed:
            del hand.done[:count]
            self._run.last_busy = time.monotonic()

    def _lost(self, job: Job, during: str = "ack") -> None:
        facts.lease_lost(job, during)
        self._run.count(lost_leases=1)
