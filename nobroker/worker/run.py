"""What the threads of one run share.

Invariants:
- `Run.guard`, the lock of `Run.changed`, guards every field of `Run` that changes, and every `Hand`. No queue
  verb and no user code runs under it.
- A job in hand is in exactly one `Hand`, from the moment its lease is known until its ack, nack or release
  is written; the heartbeat extends all of them.
- Another thread takes jobs out of a slot's hand only while the slot's place is HANDLER or ENDED; a slot
  whose place is QUEUE looks after its own.
- `mailbox`'s `put` is safe in a signal handler. Nothing else is touched there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from nobroker.job import Job
from nobroker.lanes import Lanes
from nobroker.mailbox import Mailbox
from nobroker.worker import facts

Handler = Callable[[Job], Any]

UNDURABLE_LIMIT = 256
"""How many recorded acks may wait for the disk before handlers wait, too: what a power cut may run again."""


class WorkQueue(Protocol):
    """What a worker needs of a `Queue`."""

    @property
    def visibility_timeout(self) -> float: ...
    def ack(self, job: Any, *, result: Any = None) -> Any: ...
    def nack(
        self,
        job: Any,
        *,
        error: Any = None,
        delay: float | None = None,
        dead: bool | None = None,
        state: Any = None,
    ) -> Job: ...
    def extend(self, job: Any, seconds: float) -> Job: ...
    def extend_many(self, jobs: Any, seconds: float) -> Any: ...
    def release(self, job: Any, *, delay: float = 0.0, state: Any = None) -> Job: ...
    def release_many(self, jobs: Any) -> Any: ...
    def _wait_lease(
        self, count: int, *, wait: float, lanes: Sequence[str] | Lanes | None, stop: Callable[[], bool]
    ) -> list[Job]: ...
    def _wake_local(self) -> None: ...
    def _settle_and_lease(
        self, acks: list[tuple[Job, Any]], count: int, *, lanes: Sequence[str] | Lanes | None
    ) -> tuple[list[Job], list[Job], list[Job], int]: ...
    def _wait_durable(self, ticket: int) -> None: ...


@dataclass
class WorkerStats:
    """What one run did.

    Attributes:
        leased: jobs taken from the queue; those given back unrun are among them.
        succeeded: acks that are on disk.
        failed: nacks, because the handler raised; jobs that it gave back by `RetryLater` are not among them.
        dead: those of `failed` that got no further try.
        lost_leases: handlers that ended after their lease was gone; the job may have run twice.
    """

    leased: int = 0
    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    lost_leases: int = 0

    def to_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


@dataclass(slots=True, eq=False)
class Held:
    """A job in hand. `good_until` (monotonic seconds): before it, nobody else can have got the job. `began`
    (the same): when its handler was called.
    """

    job: Job
    good_until: float
    lost: bool = False
    began: float = 0.0


@dataclass(slots=True)
class Hand:
    """Jobs by what is to be done with them: `todo` not begun, `running`, `done` without a written ack."""

    todo: deque[Held] = field(default_factory=deque)
    running: Held | None = None
    done: list[tuple[Held, Any]] = field(default_factory=list)

    def all(self) -> Iterable[Held]:
        yield from self.todo
        if self.running is not None:
            yield self.running
        for held, _ in self.done:
            yield held

    def __bool__(self) -> bool:
        return bool(self.todo or self.running is not None or self.done)


class Place(Enum):
    """Where a slot's thread is."""

    QUEUE = auto()
    HANDLER = auto()
    ENDED = auto()


class Note(Enum):
    """What the mailbox tells the thread in `Worker.run`."""

    SIGNAL = auto()
    STOP = auto()
    LET_GO = auto()
    SLOT_ENDED = auto()


class Post(Protocol):
    """A slot, as the others see it."""

    hand: Hand
    place: Place


class Run:
    """One call of `Worker.run`: settings that stay, and the state its threads share."""

    def __init__(
        self,
        queue: WorkQueue,
        *,
        poll_interval: float,
        max_jobs: int | None,
        idle_timeout: float | None,
        batch: int,
        lanes: Sequence[str] | Lanes | None,
    ) -> None:
        self.queue = queue
        self.poll_interval = poll_interval
        self.idle_timeout = idle_timeout
        self.batch = batch
        self.lanes = lanes
        self.lease_s = queue.visibility_timeout
        self.max_jobs = sys.maxsize if max_jobs is None else max_jobs

        self.mailbox: Mailbox[Note] = Mailbox()
        self.guard = threading.Lock()
        self.changed = threading.Condition(self.guard)
        self.leader = threading.Lock()  # whoever holds it waits for jobs; the other idle slots wait for it
        self.stats = WorkerStats()
        self.slots: list[Post] = []
        self.desk = Hand()  # of the thread in `Worker.run`
        self.stopping = False  # lease nothing, begin nothing
        self.why = ""  # for the log
        self.abandoned = False  # record nothing: what is in hand is being given back
        self.failure: BaseException | None = None
        self.budget = self.max_jobs  # jobs that may still be asked for
        self.undurable = 0  # acks recorded, not yet on disk
        self.last_busy = time.monotonic()

    def stop(self, why: str) -> None:
        """Stop leasing. Takes no lock: may be called from anywhere, a signal handler included."""
        self.why = self.why or why
        self.stopping = True
        self.mailbox.put(Note.STOP)

    def fail(self, error: BaseException) -> None:
        """Stop, and let `Worker.run` raise the first error of all."""
        with self.changed:
            first = self.failure is None
            if first:
                self.failure = error
        facts.failing(error, first)
        self.stop("failure")

    def over(self) -> bool:
        """Whether no more jobs are to be leased."""
        return self.stopping or self.stats.leased >= self.max_jobs

    def reserve(self) -> int:
        """Take a batch out of the budget, as far as there is one."""
        with self.changed:
            count = 0 if self.stopping else min(self.batch, self.budget)
            self.budget -= count
            return count

    def leased(self, reserved: int, jobs: Sequence[Job], hand: Hand, good_until: float) -> None:
        """Put leased jobs into a hand, and what was reserved for nothing back into the budget."""
        with self.changed:
            self.budget += reserved - len(jobs)
            self.stats.leased += len(jobs)
            hand.todo.extend(Held(job, good_until) for job in jobs)
            if jobs:
                self.last_busy = time.monotonic()
            self.changed.notify_all()

    def nothing_held(self) -> bool:
        """Whether no slot has a job that could come back to the queue."""
        return not any(slot.hand for slot in self.slots)

    def hands(self) -> list[Hand]:
        return [self.desk, *(slot.hand for slot in self.slots)]

    def count(self, **more: int) -> None:
        with self.changed:
            for name, amount in more.items():
                setattr(self.stats, name, getattr(self.stats, name) + amount)

    def pause(self, seconds: float, stopping: bool) -> None:
        """Wait, unless the run lets go, or stops and the caller, who saw `stopping`, has yet to see it."""
        with self.changed:
            self.changed.wait_for(lambda: self.abandoned or self.stopping != stopping, seconds)
