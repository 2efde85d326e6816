"""Batches: jobs that belong together, and jobs that run when all of them have ended.

The batch is a record, and its members are the jobs with the sequence numbers behind it: so they cost nothing
more, and the queue counts them by a look at their states. Jobs that join later stand behind a record of
their own. `tallies` does the counting and the ending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from nobroker.app import records
from nobroker.app.collecting import CURRENT, Collector, Member, write
from nobroker.app.definition import PreparedJob
from nobroker.app.errors import BatchFinishedError
from nobroker.app.tallies import Tally, watched
from nobroker.errors import JobExistsError, JobNotFoundError
from nobroker.job import Job, NewJob
from nobroker.limits import Limit, Rate
from nobroker.queue import Queue

if TYPE_CHECKING:
    from nobroker.app.application import App

CALLBACKS = ("on_success", "on_failure", "on_finish")


class BatchCounts(NamedTuple):
    """The members of a batch at one moment.

    Attributes:
        total: all, also those that joined later.
        done: those that are done; discarded, cancelled and dropped ones are among them.
        failed: those that are dead.
    """

    total: int
    done: int
    failed: int

    @property
    def progress(self) -> float:
        """The share of those that have ended, 0 to 1."""
        return (self.done + self.failed) / self.total if self.total else 1.0


class Batch:
    """A batch, seen from any process: each look asks the queue.

    Attributes:
        id: names the batch in `App.find_batch`.

    All that is asked of it raises `JobNotFoundError` when the batch is not known: it was never enqueued, was
    purged, or ended longer ago than ``keep_done``.
    """

    def __init__(self, app: App, batch_id: str, ended: Any = None) -> None:
        self.id = batch_id
        self._app = app
        self._ended: dict[str, Any] | None = ended
        self._record: Job | None = None
        self._block: Block | None = None  # the one that begins it, as long as that is open

    def __repr__(self) -> str:
        return f"<Batch {self.id}>"

    @property
    def description(self) -> str:
        """What the batch is for, in its maker's words."""
        return str(self._said()["description"])

    @property
    def metadata(self) -> Any:
        """What its maker attached."""
        return self._app._serializers.unpack(self._said()["metadata"])

    @property
    def total(self) -> int:
        """How many jobs belong to it."""
        return self.counts().total

    @property
    def done(self) -> int:
        """How many of them are done."""
        return self.counts().done

    @property
    def failed(self) -> int:
        """How many of them are dead."""
        return self.counts().failed

    @property
    def progress(self) -> float:
        """The share of those that have ended, 0 to 1."""
        return self.counts().progress

    @property
    def status(self) -> str:
        """``open`` until its block ends, ``running``, then ``succeeded``, or ``failed``: some are dead."""
        if self._block is not None:
            return "open"
        end = self._end()
        if end is not None:
            return "failed" if end["failed"] else "succeeded"
        self._said()
        return "running"

    def counts(self) -> BatchCounts:
        """All figures of one moment."""
        if self._block is not None:
            return BatchCounts(self._block.count(), 0, 0)
        end = self._end()
        if end is not None:
            return BatchCounts(end["total"], end["done"], end["failed"])
        queue = self._app.queue
        tally = Tally(records.members_of(self._known()))
        number = 0
        while (join := records.found(queue, records.numbered(self.id, number))) is not None:
            if records.kind_of(join) != records.JOIN:
                break
            tally.add(records.members_of(join))
            number += 1
        return BatchCounts(*tally.count(queue))

    def add(self) -> Block:
        """``with batch.add():`` the jobs enqueued inside join the batch, with one write at the block's end.

        From a member or from anywhere, as long as the batch runs; a member that adds jobs keeps it running.

        Raises:
            BatchFinishedError: the batch is over; from the block's end, when it ended meanwhile. Nothing is
                enqueued then.
            RuntimeError: the block that begins the batch has not ended.
        """
        if self._block is not None:
            raise RuntimeError("the block of this batch has not ended: enqueue the jobs in it")
        self._refuse_if_over()
        return Block(self, self._join)

    # -- below

    def _said(self) -> dict[str, Any]:
        """What holds description and metadata."""
        end = self._ended
        if end is not None:
            return end
        found: dict[str, Any] = self._known().payload
        return found

    def _known(self) -> Job:
        if self._record is None:
            try:
                self._record = self._app.queue.get(self.id)
            except JobNotFoundError as error:
                raise self._missing() from error
            if records.kind_of(self._record) != records.BATCH:
                self._record = None
                raise self._missing()
        return self._record

    def _missing(self) -> JobNotFoundError:
        return JobNotFoundError(
            f"no batch {self.id!r} in {self._app!r}: it was not enqueued, was purged, or ended longer ago "
            "than the keep_done of the App"
        )

    def _end(self) -> dict[str, Any] | None:
        """What became of it; None as long as it runs."""
        if self._ended is None:
            found = records.found(self._app.queue, records.end_of(self.id))
            if found is not None:
                self._ended = found.payload
        return self._ended

    def _refuse_if_over(self) -> None:
        if self._end() is not None:
            raise self._finished()
        self._known()

    def _finished(self) -> BatchFinishedError:
        return BatchFinishedError(
            f"batch {self.id} is over: nothing can join it any more, and nothing was enqueued; "
            "enqueue these jobs without it, or in a batch of their own"
        )

    def _begin(self, content: dict[str, Any], members: Sequence[Member], beside: Sequence[NewJob]) -> None:
        def record(count: int) -> NewJob:
            return records.record(records.BATCH, self.id, members=count, **content)

        queue = self._app.queue
        if not write(queue, record, members, beside):  # it has no members, and is over
            watch = watched(self._known())
            if watch is not None:
                watch.look(queue)

    def _join(self, members: Sequence[Member], beside: Sequence[NewJob]) -> None:
        if not members:
            return
        queue = self._app.queue
        self._refuse_if_over()
        number = 0
        while True:
            number = self._next_number(queue, number)
            join_id = records.numbered(self.id, number)

            def record(count: int, join_id: str = join_id) -> NewJob:
                return records.record(records.JOIN, join_id, batch=self.id, members=count)

            try:
                write(queue, record, members, beside)
                return
            except JobExistsError as error:
                if error.job_id != join_id:
                    raise

    def _next_number(self, queue: Queue, low: int) -> int:
        """The number of the next join. There are no gaps in them, so it is looked for by halving.

        Raises:
            BatchFinishedError: the last one is that of the batch's end.
        """
        last: Job | None = None
        high, step = low, 1
        while (record := records.found(queue, records.numbered(self.id, high))) is not None:
            last, low = record, high + 1
            high, step = high + step, 2 * step
        while low < high:
            middle = (low + high) // 2
            record = records.found(queue, records.numbered(self.id, middle))
            if record is None:
                high = middle
            else:
                last, low = record, middle + 1
        if last is not None and records.kind_of(last) != records.JOIN:
            raise self._finished()
        return low


Write = Callable[[Sequence[Member], Sequence[NewJob]], None]


class Block:
    """``with app.batch(...)`` or ``with batch.add()``: collects the jobs that are enqueued inside, in this
    thread or task and in tasks that it starts, and enqueues them with one write at its end. An exception that
    leaves the block enqueues nothing.
    """

    def __init__(self, batch: Batch, write: Write) -> None:
        self._batch = batch
        self._write = write
        self._collector: Collector | None = None

    def count(self) -> int:
        """Jobs collected so far."""
        return len(self._collector.members) if self._collector is not None else 0

    def __enter__(self) -> Batch:
        if self._collector is not None:
            raise RuntimeError("a block of a batch is entered once; call app.batch() or batch.add() again")
        self._collector = Collector(self._batch._app, self._batch.id, CURRENT.get())
        CURRENT.set(self._collector)
        return self._batch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        collector = self._collector
        if collector is None:
            raise RuntimeError("a block of a batch was left that was never entered")
        collector.close()
        if CURRENT.get() is collector:
            CURRENT.set(collector.outer)
        self._batch._block = None
        if error is not None:
            collector.given_up(f"its batch was left by {type(error).__name__}, so nothing was enqueued")
            return
        try:
            self._write(collector.members, collector.beside)
        except BaseException as failure:
            collector.given_up(f"the write of its batch failed: {type(failure).__name__}: {failure}")
            raise
        collector.enqueued()
        self._batch._app._enqueuer.enqueued()


def begin(app: App, description: str, callbacks: dict[str, PreparedJob | None], metadata: Any) -> Block:
    """A new batch. See `App.batch`."""
    if type(description) is not str:
        raise TypeError(f"description must be a str, not {type(description).__name__}")
    batch = Batch(app, records.made_id("batch"))
    content = {
        "description": description,
        "metadata": app._serializers.pack(metadata, "metadata of the batch"),
        **{name: _callback(app, batch.id, name, callback) for name, callback in callbacks.items()},
    }
    block = Block(batch, lambda members, beside: batch._begin(content, members, beside))
    batch._block = block
    return block


def _callback(app: App, batch_id: str, name: str, prepared: PreparedJob | None) -> dict[str, Any] | None:
    """A callback as it stands in the record."""
    if prepared is None:
        return None
    if type(prepared) is not PreparedJob:
        raise TypeError(f"{name} must be what build() gives, such as notify.build(42), not {prepared!r:.100}")
    if prepared.definition.app is not app:
        raise ValueError(f"{name} is {prepared.definition!r}, which belongs to another App")
    new = app._enqueuer.new_job(prepared, {"batch": batch_id})
    # Somebody counts on it: where a limit of its own would keep it out at the batch's end, it waits.
    new.limits = [Limit(one.key, one.limit) for one in cast("list[Limit]", new.limits or [])]
    new.rates = [Rate(one.key, one.max, one.duration) for one in cast("list[Rate]", new.rates or [])]
    return records.written(new)
