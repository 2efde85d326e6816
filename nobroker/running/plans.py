"""What a supervisor decides, without doing it: no process, no clock, so that tests move both.

- Which processes a configuration wants, and whether they want a supervisor.
- How a process ended, in words.
- When the next one is started in its place, and when that is given up.
"""

from __future__ import annotations

import signal
from enum import Enum, auto
from typing import Final, NamedTuple

from nobroker.running.config import RunConfig, WorkerConfig

DONE: Final = 0
FAILED: Final = 1
REFUSED: Final = 2
RECYCLED: Final = 75

FAST_S: Final = 5.0
"""A process that ends sooner than this was hardly there: whatever ended it will end the next one, too."""
STEADY_S: Final = 60.0
"""One that lived so long was well: the next crash is the first one again."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
HOPELESS: Final = 10
"""So many fast ends, without a sign that anything works, and the supervisor ends, too."""


class Place(NamedTuple):
    """Where a process belongs: who ends here is replaced here.

    Attributes:
        name: for logs.
        worker: what runs here; None: the scheduler.
        scheduler: whether recurring tasks are enqueued here.
    """

    name: str
    worker: WorkerConfig | None
    scheduler: bool = False

    @property
    def isolated(self) -> bool:
        return self.worker is not None and self.worker.isolation == "process"


def places(config: RunConfig, *, scheduler: bool) -> list[Place]:
    """The processes that a configuration asks for.

    Args:
        scheduler: whether there are recurring tasks.
    """
    scheduler = scheduler and config.scheduler.enabled
    found = []
    for kind, worker in enumerate(config.workers, 1):
        isolated = worker.isolation == "process"
        count = worker.processes * (worker.threads if isolated else 1)
        front = f"worker-{kind}." if len(config.workers) > 1 else "worker-"
        found += [Place(f"{front}{number}", worker) for number in range(1, count + 1)]
    if scheduler and config.once:  # a look, before the first worker; nobody has to wait for it
        found[0] = found[0]._replace(scheduler=True)
    elif scheduler:
        found.append(Place("scheduler", None, scheduler=True))
    return found


def needs_supervisor(config: RunConfig, *, counting: bool = True) -> bool:
    """Whether this is more than one process, or one that is to be replaced now and then.

    Args:
        counting: whether one that ends after ``max_jobs`` is to be replaced, too.
    """
    return len(config.workers) > 1 or any(
        worker.processes > 1
        or worker.isolation == "process"
        or worker.memory_recycle_at is not None
        or (counting and worker.max_jobs is not None)
        or worker.cgroup_memory_max is not None
        for worker in config.workers
    )


class How(Enum):
    """How a process ended."""

    DONE = auto()
    RECYCLED = auto()
    DIED = auto()


class End(NamedTuple):
    """The end of a process.

    Attributes:
        code: its exit code; of one that a signal ended, the signal, negative.
        whole: whether it had come to its end; False: code in it ended it half-way, as `os._exit` does.
    """

    code: int
    whole: bool = True

    @property
    def how(self) -> How:
        known = {DONE: How.DONE, RECYCLED: How.RECYCLED}
        return known.get(self.code, How.DIED) if self.whole else How.DIED

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class Restarts:
    """When a process is started in the place of one that has ended.

    - One that asked for it (`How.RECYCLED`) is replaced at once, and so is one that its job took down: the
      job is to blame, and counts its own attempts.
    - One that ended within `FAST_S` of its start, or before it was ready, is replaced after a pause, which
      doubles each time, up to `LONGEST_PAUSE_S`. One that was ready and lived for `STEADY_S`, or in which a
      job ended, makes that begin anew: however often jobs bring down their process, those behind them are
      worked off.
    - `HOPELESS` such ends in a row, of all places together, and nothing that worked in between: it is given
      up. One with a job in hand is a sign that something works (`hope`): the job may have ended it, and it
      will run out of attempts.
    """

    def __init__(self) -> None:
        self._crashes: dict[str, int] = {}
        self._in_vain = 0

    def pause(
        self, place: str, how: How, *, lived: float, ready: bool, useful: bool, blameless: bool = False
    ) -> float:
        """Seconds to wait before the next one.

        Args:
            lived: seconds.
            ready: it had come so far that it could work. Else its life was a long way to fail.
            useful: a job ended in it.
            blameless: its job took it down, or we did.
        """
        if (ready and lived >= STEADY_S) or useful:
            self._crashes.pop(place, None)
        if useful or blameless:
            self.hope()
        if blameless or (ready and lived >= FAST_S) or (how is How.RECYCLED and useful):
            return 0.0
        self._in_vain += not useful
        crashes = self._crashes.get(place, 0) + 1
        self._crashes[place] = crashes
        return float(min(FIRST_PAUSE_S * 2 ** min(crashes - 1, 20), LONGEST_PAUSE_S))

    def hope(self) -> None:
        """Something works."""
        self._in_vain = 0

    @property
    def hopeless(self) -> bool:
        return self._in_vain >= HOPELESS


def no_room(limit: int | None, baseline: int) -> str | None:
    """Why a limit of memory leaves no room for work; None: it leaves some, or nobody knows.

    Args:
        limit: bytes; None: there is none.
        baseline: bytes that a worker takes which has run nothing yet; 0: not known.
    """
    if limit is None or not 0 < limit <= baseline:
        return None
    return (
        f"memory_recycle_at is {limit:,} bytes, and a worker that has run nothing yet takes {baseline:,}:"
        " each would be replaced at once; raise it"
    )


class MemoryWatch:
    """Whether a process has grown too large.

    Args:
        limit: bytes.
        confirmations: looks in a row that must find it there.
    """

    def __init__(self, limit: int, confirmations: int) -> None:
        self._limit = limit
        self._confirmations = confirmations
        self._seen = 0

    def look(self, resident: int | None) -> str | None:
        """Why the process should be replaced; None: it need not."""
        self._seen = self._seen + 1 if resident is not None and resident >= self._limit else 0
        if self._seen < self._confirmations:
            return None
        return f"{resident:,} bytes of memory in use, memory_recycle_at is {self._limit:,}"
