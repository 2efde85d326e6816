"""The thread in `Worker.run`: starts the others, waits, and sees them out."""

from __future__ import annotations

import threading
from queue import Empty

from nobroker.errors import NobrokerError, QueueClosedError
from nobroker.job import Job
from nobroker.worker import facts
from nobroker.worker.calling import Caller
from nobroker.worker.durability import Durability
from nobroker.worker.heartbeat import Heartbeat
from nobroker.worker.outcome import Outcome
from nobroker.worker.recording import Recorder
from nobroker.worker.run import Hand, Handler, Held, Note, Place, Post, Run
from nobroker.worker.slot import Slot

_LET_GO_S = 10.0
# A signal, or an interrupt, that comes just before the main thread begins to wait does not wake it; nor does
# one that goes to another thread.
_LOOK_S = 0.25


class Conductor:
    """One run from its start to its end. What a stop does, and what a second signal does, is here."""

    def __init__(self, run: Run, handler: Handler, concurrency: int) -> None:
        self._run = run
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._look_s = _LOOK_S if in_main_thread else None  # what is not a signal rings
        self._durability = Durability(run)
        self._heartbeat = Heartbeat(run)
        self._caller = Caller(handler, run.fail)
        self._recorder = Recorder(run, self._durability, last=True)
        self._slots_recorder = Recorder(run, self._durability)
        self._slots = [Slot(run, self._caller, self._slots_recorder) for _ in range(concurrency)]
        run.slots = list[Post](self._slots)
        self._signals = 0
        self._told = False
        self._left_behind = False  # a handler that may never come back

    def conduct(self) -> None:
        facts.started(len(self._slots))
        self._start()
        patient = self._supervise()
        self._heartbeat.close(wait=patient)
        self._durability.close()
        self._caller.close(wait=patient)
        facts.stopped(self._run.stats.to_dict())

    def is_running(self, job: Job) -> bool:
        with self._run.changed:
            return self._slot_of(job) is not None

    def running(self) -> list[Held]:
        """What handlers have now."""
        with self._run.changed:
            slots = [slot for slot in self._slots if slot.place is Place.HANDLER]
            return [slot.hand.running for slot in slots if slot.hand.running is not None]

    def abandon(self, job: Job, outcome: Outcome) -> bool:
        """Record what became of a running job, and count its slot as ended; see `Worker.abandon`."""
        hand = Hand()
        with self._run.changed:
            slot = self._slot_of(job)
            if slot is None:
                return False
            held, slot.hand.running = slot.hand.running, None  # so that the slot, if it comes back, sees it
            self._left_behind = True
            _hand_over(slot.hand, self._run.desk, running=False)
            if held is not None and outcome.error is None:
                hand.done.append((held, outcome.value))
            else:
                hand.running = held
        try:
            if outcome.error is None:
                self._slots_recorder.settle(hand, more=False)
            else:
                self._slots_recorder.fail(hand, outcome.error)
        finally:
            with self._run.changed:
                slot.place = Place.ENDED  # not before: the run waits for what is being recorded
                self._run.changed.notify_all()
            self._run.mailbox.put(Note.SLOT_ENDED)
        return True

    def _slot_of(self, job: Job) -> Slot | None:
        for slot in self._slots:
            running = slot.hand.running if slot.place is Place.HANDLER else None
            if running is not None and _lease_of(running.job) == _lease_of(job):
                return slot
        return None

    def _start(self) -> None:
        # Daemons, so that a handler that hangs does not keep the process.
        threads = [
            threading.Thread(target=slot.main, name=f"nobroker-worker-{number}", daemon=True)
            for number, slot in enumerate(self._slots)
        ]
        try:
            self._durability.start()
            self._heartbeat.start()
            for thread in threads:
                thread.start()
        except BaseException as error:  # no more threads, or an interrupt: those that run are seen out first
            for slot, thread in zip(self._slots, threads, strict=True):
                if thread.ident is None:
                    slot.place = Place.ENDED
            self._run.fail(error)

    def _supervise(self) -> bool:
        """Wait for the slots to end.

        Returns:
            False when some were left behind: a second signal came, or a handler was given up.
        """
        while True:
            try:
                if self._look():
                    self._put_down(self._run.desk)
                    return not self._left_behind
                if self._signals > 1:
                    self._let_go()
                    return False
            except BaseException as error:  # raised in the end; an interrupt counts like a signal
                self._run.fail(error)
                self._signals += not isinstance(error, Exception)

    def _look(self) -> bool:
        """Take one note and act on it; whether all slots have ended."""
        run = self._run
        try:
            note = run.mailbox.get(timeout=self._look_s)
        except Empty:
            note = None
        if note is Note.SIGNAL:
            self._signals += 1
            run.stop("signal")
        elif note is Note.LET_GO:
            self._signals = 2
        if run.stopping and not self._told:
            self._told = True
            self._tell_stop()
        return all(slot.place is Place.ENDED for slot in self._slots)

    def _tell_stop(self) -> None:
        """Wake who waits; give back what has not begun: a long handler must not keep its batch."""
        run = self._run
        with run.changed:
            run.changed.notify_all()
            running = sum(slot.hand.running is not None for slot in self._slots)
            for slot in self._slots:
                if slot.place is Place.HANDLER:
                    _hand_over(slot.hand, run.desk, running=False)
        facts.stopping(run.why, running)
        self._wake()
        self._put_down(run.desk)

    def _let_go(self) -> None:
        """Give everything back now. Later results are discarded; the fence would stop them anyway."""
        run = self._run
        with run.changed:
            run.abandoned = True
            run.changed.notify_all()
            running = sum(slot.hand.running is not None for slot in self._slots)
        facts.letting_go(running)
        self._wake()
        self._take_back((Place.HANDLER,))
        with run.changed:  # a slot inside the queue is about to come out of it, maybe with more jobs
            run.changed.wait_for(lambda: Place.QUEUE not in [slot.place for slot in self._slots], _LET_GO_S)
        self._take_back(tuple(Place))

    def _take_back(self, places: tuple[Place, ...]) -> None:
        with self._run.changed:
            for slot in self._slots:
                if slot.place in places:
                    _hand_over(slot.hand, self._run.desk, running=True)
        self._put_down(self._run.desk)

    def _put_down(self, desk: Hand) -> None:
        if not desk:
            return
        try:
            self._recorder.settle(desk, more=False)
            self._recorder.release(desk)
        except NobrokerError as error:  # their leases end by themselves
            facts.not_recorded("stop", [held.job for held in desk.all()], error)
            self._run.fail(error)
            with self._run.changed:
                desk.done.clear()
                desk.todo.clear()

    def _wake(self) -> None:
        try:
            self._run.queue._wake_local()
        except QueueClosedError:
            facts.queue_closed()  # nobody waits in a closed queue


def _lease_of(job: Job) -> tuple[int, int | None]:
    return job.seq, job.lease_token


def _hand_over(hand: Hand, desk: Hand, *, running: bool) -> None:
    """Move what a slot has in hand to the desk; what is to be run again goes to its `todo`."""
    desk.done.extend(hand.done)
    hand.done.clear()
    desk.todo.extend(hand.todo)
    hand.todo.clear()
    if running and hand.running is not None:
        desk.todo.append(hand.running)
        hand.running = None
