"""The store on a directory: `nobroker_mmap`'s log with the queue's state machine on top."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from nobroker.clock import Clock
from nobroker.errors import NobrokerError, NotLeasedError
from nobroker.job import Job, JobState
from nobroker.lanes import Selection
from nobroker.limits import discards
from nobroker.reports import CompactionResult, QueueStats, RecoveryReport
from nobroker.state import codes, kinds
from nobroker.state.machine import Head
from nobroker.state.numbers import pack_words, ranges_of
from nobroker.state.owned import id_digests
from nobroker.stores.base import Alike, JobRef, NewJobs
from nobroker.stores.debouncing import Debouncer
from nobroker.stores.enqueueing import Enqueuer
from nobroker.stores.following import INDEXED, MOVED, Options
from nobroker.stores.leasing import Leaser
from nobroker.stores.looking import Looker
from nobroker.stores.lookup import Lookup
from nobroker.stores.mixed import MixedEnqueuer
from nobroker.stores.moving import Mover
from nobroker.stores.rows import index_rows
from nobroker.stores.session import Session
from nobroker.stores.settling import Settler
from nobroker_mmap.catalog import drop_log, list_logs
from nobroker_mmap.logs import logger
from nobroker_mmap.mounts import doubt_about

_looked_at: set[str] = set()
"""Directories of which this process has said, where it had to, that their file system is none for a queue."""


class LogStore:
    """One queue in a directory. Implements `nobroker.stores.base.Store`."""

    def __init__(self, directory: str, name: str, options: Options, clock: Clock) -> None:
        self._session = session = Session(directory, name, options, clock)
        self._lookup = Lookup(session)
        self._enqueuer = Enqueuer(session, self._lookup)
        self._mixed = MixedEnqueuer(session, self._lookup)
        self._debouncer = Debouncer(session, self._lookup, self._mixed)
        self._leaser = Leaser(session)
        self._settler = Settler(session, self._lookup, self._leaser)
        self._looker = Looker(session, self._lookup)
        self._mover = Mover(session)
        self._auto = options.auto_compact and not options.read_only
        if not options.read_only:
            warn_of_file_system(directory)

    def _upkeep(self) -> None:
        """After a verb that wrote: a slice of the snapshot, a piece of compaction.

        The verb is done by then: what fails here is logged, and tried again later.
        """
        session = self._session
        if session.snapshotting is None and (not self._auto or self._mover.rests()):
            return
        try:
            session.step_snapshot()
            if self._auto:
                self._mover.step_if_due()
        except NobrokerError as error:
            logger("nobroker.queue").warning(
                "event=queue.upkeep_failed queue=%s error=%s", self._session.log.path, error
            )

    # -- work

    def enqueue(self, new: NewJobs) -> Sequence[Job]:
        jobs = self._mixed.enqueue((new,), False) if discards(new.limits) else self._enqueuer.enqueue(new)
        self._upkeep()
        return jobs

    def enqueue_one(self, new: NewJobs) -> Job:
        if new.limits is not None and discards(new.limits):
            job = self._mixed.enqueue((new,), False)[0]
        else:
            job = self._enqueuer.enqueue_one(new)
        self._upkeep()
        return job

    def debounce(self, new: NewJobs, longest_us: int | None) -> Job:
        job = self._debouncer.enqueue(new, longest_us)
        self._upkeep()
        return job

    def enqueue_all(self, groups: Sequence[NewJobs], all_new: bool) -> list[Job]:
        jobs = self._mixed.enqueue(groups, all_new)
        self._upkeep()
        return jobs

    def restore(self, jobs: Iterable[Job]) -> int:
        added = self._enqueuer.restore(jobs)
        self._upkeep()
        return added

    def lease(
        self,
        count: int,
        timeout_us: int,
        wait: float,
        lanes: Selection,
        stop: Callable[[], bool] | None,
    ) -> list[Job]:
        jobs = self._leaser.lease(count, timeout_us, wait, lanes, stop)
        if jobs:
            self._upkeep()
        return jobs

    def ack(self, jobs: Sequence[JobRef], results: Sequence[bytes | None] | None, many: bool) -> None:
        self._settler.ack(jobs, results, many)
        self._upkeep()

    def settle_and_lease(
        self,
        acks: Sequence[tuple[Job, bytes | None]],
        count: int,
        timeout_us: int,
        lanes: Selection,
    ) -> tuple[list[Job], list[Job], list[Job], int]:
        answer = self._settler.settle_and_lease(acks, count, timeout_us, lanes)
        self._upkeep()
        return answer

    def wait_durable(self, ticket: int) -> None:
        self._session.log.wait_durable(ticket)

    def nack(
        self,
        jobs: Sequence[JobRef],
        error: str | None,
        delay_for: Callable[[int], int],
        dead: bool | None,
        state: bytes | None,
        many: bool,
    ) -> list[Job]:
        answer = self._settler.nack(jobs, error, delay_for, dead, state, many)
        self._upkeep()
        return answer

    def extend(
        self, jobs: Sequence[JobRef], timeout_us: int, progress: bytes | None, state: bytes | None, many: bool
    ) -> list[Job]:
        return self._settler.extend(jobs, timeout_us, progress, state, many)

    def release(self, jobs: Sequence[JobRef], delay_us: int, state: bytes | None, many: bool) -> list[Job]:
        return self._settler.release(jobs, delay_us, state, many)

    def cancel(self, job_id: str) -> Job:
        return self._settler.cancel(job_id)

    def reschedule(self, job_id: str, delay_us: int, run_at_us: int | None) -> Job:
        return self._settler.reschedule(job_id, delay_us, run_at_us)

    # -- looking

    def get(self, job_id: str) -> Job:
        return self._looker.get(job_id)

    def stats(self, lane: str | None, seqs: range | None) -> QueueStats:
        return self._looker.stats(lane, seqs)

    def jobs(self, state: JobState | None, lane: str | None) -> Iterator[Job]:
        return self._looker.jobs(state, lane)

    def alike(self) -> Iterator[Job | Alike]:
        return self._looker.alike()

    def is_paused(self) -> bool:
        return self._looker.is_paused()

    # -- the dead

    def requeue_dead(self, job_id: str | None) -> int:
        session = self._session
        with session.transaction() as now:
            seqs = self._dead(job_id)
            end = session.log.position
            if seqs:
                end = session.append([(kinds.REQUEUE, {"t": now, "q": ranges_of(seqs)}, b"")])
                session.log.notify()
        session.log.wait_durable(end)
        return len(seqs)

    def drop_dead(self, job_id: str | None, older_than_us: int | None) -> int:
        session = self._session
        with session.transaction() as now:
            seqs = self._dead(job_id)
            if older_than_us is not None:
                seqs = [seq for seq in seqs if session.state.entries[seq].avail <= now - older_than_us]
            end = session.log.position
            if seqs:
                head: Head = {"t": now, "q": ranges_of(seqs), "h": self._digests(seqs)}
                end = session.append([(kinds.DROP, head, b"")])
        session.log.wait_durable(end)
        return len(seqs)

    def _dead(self, job_id: str | None) -> list[int]:
        state = self._session.state
        if job_id is None:
            return list(state.pages.having(codes.DEAD))
        seq = self._lookup.known(job_id)
        if state.pages.code(seq) != codes.DEAD:
            raise NotLeasedError(f"job {job_id!r} is not in the dead-letter queue", [job_id])
        return [seq]

    def _digests(self, seqs: Iterable[int]) -> bytes:
        """Hashes of the own ids among jobs, as the records that forget them carry them."""
        session = self._session
        own = [seq for seq in seqs if session.state.pages.has_own_id(seq)]
        return pack_words("Q", id_digests([self._lookup.job_id(seq) for seq in own]))

    # -- the whole queue

    def pause(self, lane: str | None, paused: bool) -> None:
        session = self._session
        with session.transaction() as now:
            end = session.log.position
            if (lane in session.state.paused) != paused:
                end = session.append([(kinds.PAUSE, {"t": now, "l": lane, "p": paused}, b"")])
                session.log.notify()
        session.log.wait_durable(end)

    def lane_limit(self, lane: str, limit: int | None) -> None:
        session = self._session
        with session.transaction() as now:
            end = session.log.position
            if session.state.ready.lane_limits.get(lane) != limit:
                end = session.append([(kinds.LANE_LIMIT, {"t": now, "l": lane, "n": limit}, b"")])
                session.log.notify()
        session.log.wait_durable(end)

    def lane_limits(self) -> dict[str, int]:
        return self._looker.lane_limits()

    def lanes(self) -> list[str]:
        return self._looker.lanes()

    def purge(self, lane: str | None) -> int:
        session = self._session
        with session.transaction() as now:
            state = session.state
            total = sum(state.pages.total(code, lane) for code in range(1, codes.COUNT))
            end = session.log.position
            if total:
                head: Head = {"t": now, "l": lane, "n": state.next_seq}
                if lane is not None and state.ids:
                    mine = [seq for code in range(1, codes.COUNT) for seq in state.pages.having(code)]
                    head["h"] = self._digests(seq for seq in mine if state.pages.lane(seq) == lane)
                end = session.append([(kinds.PURGE, head, b"")])
                session.notify_freed()
        session.log.wait_durable(end)
        return total

    def compact(self) -> CompactionResult:
        return self._mover.compact()

    def check(self) -> list[Any]:
        self._session.log.ensure_open()
        return list(self._session.log.check())

    def backup(self, target: str) -> str:
        self._session.log.ensure_open()
        return self._session.log.backup(target)

    @property
    def path(self) -> str:
        """The file that is written to now."""
        log = self._session.log
        return log.names.segment(log.active_number)

    @property
    def recovery(self) -> RecoveryReport:
        return self._session.log.recovery

    def wake(self) -> None:
        """Make waiting threads of this object look at their stop conditions."""
        self._session.log.wake_local()

    def close(self) -> None:
        self._session.close()


def warn_of_file_system(directory: str, *, layered: bool = True) -> None:
    """Log, once per process and directory, that a queue should not be where it is.

    `layered`: of a container's own layer, too.
    """
    place = os.path.abspath(directory)
    if place in _looked_at:
        return
    _looked_at.add(place)
    doubt = doubt_about(place)
    if doubt is not None and (layered or doubt.kind != "layered"):
        text = "event=queue.file_system directory=%s type=%s: %s"
        logger("nobroker.queue").warning(text, directory, doubt.file_system, doubt.reason)


def names(directory: str) -> list[str]:
    """Names of the queues in a directory."""
    return list_logs(directory)


def check(directory: str, name: str) -> list[Any]:
    """What is wrong with a queue on the disk, also with one that cannot be opened."""
    from nobroker.clock import SystemClock  # here, with what it needs: importing the store must be quick
    from nobroker_mmap.check import check_log
    from nobroker_mmap.control import boot_hash
    from nobroker_mmap.format import Names, validate_name
    from nobroker_mmap.offsets import RowSource

    names = Names(directory, validate_name(name))
    return list(check_log(names, RowSource(index_rows, INDEXED, MOVED), boot_hash(SystemClock().boot_id())))


def drop(directory: str, name: str) -> None:
    """Delete a queue's files."""
    drop_log(directory, name)
