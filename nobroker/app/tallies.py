"""Counting the members of batches, and ending batches whose members have all ended.

Invariants
- A batch ends by one write: "closed" under the number of the next join, "end", and the callbacks that
  apply, all of them new or none. So it ends once, whoever tries and however often; and nothing joins it
  afterwards.
- Of the records of a batch that is over, "end" is put away last, and the batch's own before "closed": as long
  as somebody may take it for one that runs, its end is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from nobroker.app import envelope, records
from nobroker.app.collecting import left_out
from nobroker.app.records import found
from nobroker.errors import JobExistsError
from nobroker.job import Job, JobState, NewJob
from nobroker.queue import Queue
from nobroker.reports import QueueStats

_PUT_AWAY: Final = 100
"""Records that one look puts away at most; each costs a write."""


class Watched(Protocol):
    """Something that is waited for."""

    id: str
    over: bool

    def look(self, queue: Queue) -> int:
        """Do what is due; how many jobs that set in motion. Sets `over` when nothing is left to do."""

    def awaits(self) -> list[str]:
        """Ids of jobs whose end calls for a look."""


class Tally:
    """Counts jobs by ranges of sequence numbers. A range whose jobs are all done is not looked at again."""

    def __init__(self, members: range) -> None:
        self.total = 0
        self._open: list[range] = []
        self._dead: list[range] = []
        self.add(members)

    def add(self, members: range) -> None:
        self.total += len(members)
        if members:
            self._open.append(members)

    def unfinished(self, queue: Queue) -> bool:
        """Whether some have not ended."""
        while self._open:
            stats = queue.stats(seqs=self._open[-1])
            if _waiting(stats):
                return True
            ended = self._open.pop()
            if stats.dead:
                self._dead.append(ended)
        return False

    def failed(self, queue: Queue) -> int | None:
        """How many are dead, when none is unfinished; None: somebody requeued one that was dead."""
        failed = 0
        for members in list(self._dead):
            stats = queue.stats(seqs=members)
            failed += stats.dead
            if _waiting(stats):
                self._dead.remove(members)
                self._open.append(members)
                return None
        return failed

    def count(self, queue: Queue) -> tuple[int, int, int]:
        """All, those that are done, those that are dead."""
        waiting = failed = 0
        for members in (*self._open, *self._dead):
            stats = queue.stats(seqs=members)
            waiting += _waiting(stats)
            failed += stats.dead
        return self.total, self.total - waiting - failed, failed


def _waiting(stats: QueueStats) -> int:
    return stats.ready + stats.delayed + stats.leased


class RunningBatch:
    """A batch that may have come to its end."""

    def __init__(self, record: Job) -> None:
        self.id = record.id
        self.over = False
        self._said: dict[str, Any] = record.payload
        self._tally = Tally(records.members_of(record))
        self._joins = 0
        self._ending: EndedBatch | None = None

    def awaits(self) -> list[str]:
        return []  # members say themselves which batch they belong to

    def look(self, queue: Queue) -> int:
        moved = 0
        if self._ending is None:
            moved = self._end_if_due(queue)
        if self._ending is not None:
            self._ending.look(queue)
            self.over = self._ending.over
        return moved

    def _end_if_due(self, queue: Queue) -> int:
        while not self._tally.unfinished(queue):
            join = found(queue, records.numbered(self.id, self._joins))
            if join is None:
                failed = self._tally.failed(queue)
                moved = None if failed is None else self._end(queue, failed)
                if moved is not None:
                    return moved
            elif records.kind_of(join) == records.JOIN:
                self._tally.add(records.members_of(join))
                self._joins += 1
            else:
                self.over = True  # somebody else ended it; whoever sees its "end" puts the records away
                return 0
        return 0

    def _end(self, queue: Queue, failed: int) -> int | None:
        """End it. None: something joined, or somebody else ended it meanwhile."""
        record = found(queue, self.id)
        if record is None or record.state is not JobState.READY:
            self.over = True
            return 0
        closed_id, end_id = records.numbered(self.id, self._joins), records.end_of(self.id)
        total = self._tally.total
        end = {name: self._said[name] for name in ("description", "metadata")}
        end |= {"batch": self.id, "joins": self._joins}
        end |= {"total": total, "done": total - failed, "failed": failed}
        marks = [
            records.record(records.CLOSED, closed_id, batch=self.id),
            records.record(records.END, end_id, **end),
        ]
        callbacks = list(self._callbacks(end))
        while True:
            try:
                jobs = queue.enqueue_all([*marks, *callbacks], all_new=True)
            except JobExistsError as error:
                if error.job_id == closed_id:
                    return None
                if error.job_id == end_id:
                    self.over = True
                    return 0
                callbacks = left_out(queue, callbacks, lambda new: new.job_id)
                continue
            self._ending = EndedBatch(jobs[1])
            return len(callbacks)

    def _callbacks(self, end: dict[str, Any]) -> Iterator[NewJob]:
        for name in ("on_failure" if end["failed"] else "on_success", "on_finish"):
            said = self._said[name]
            if said is not None:
                new = records.unwritten(said)
                new.payload = envelope.with_ended(new.payload, end)
                yield new


class EndedBatch:
    """A batch that is over, whose records are to be put away."""

    def __init__(self, end: Job) -> None:
        self.id = end.id
        self.over = False
        batch_id, joins = end.payload["batch"], end.payload["joins"]
        self._left = [records.numbered(batch_id, number) for number in range(joins)]
        self._left += [batch_id, records.numbered(batch_id, joins), end.id]
        self._left.reverse()

    def awaits(self) -> list[str]:
        return []

    def look(self, queue: Queue) -> int:
        for _ in range(_PUT_AWAY):
            if not self._left:
                break
            records.cancel(queue, self._left[-1])
            self._left.pop()
        self.over = not self._left
        return 0


def watched(record: Job) -> Watched | None:
    """What is to be looked at because of this record; None where that is another record's business."""
    kind = records.kind_of(record)
    if kind == records.BATCH:
        return RunningBatch(record)
    return EndedBatch(record) if kind == records.END else None
