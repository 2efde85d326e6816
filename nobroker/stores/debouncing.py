"""Debounce: as long as a job waits, enqueueing its id again gives it newer arguments and pushes it back.

Invariants
- The record of a replacement has the whole job, as one that compaction writes: the newest copy of a job is
  always enough.
- The job is the one that was enqueued first: its options, its place in the order of insertion and the moment
  from which the longest wait is counted stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from nobroker.job import Job
from nobroker.state import codes, kinds
from nobroker.state.numbers import pack_words
from nobroker.state.owned import id_digests
from nobroker.stores.base import NewJobs
from nobroker.stores.enqueueing import size_of
from nobroker.stores.lookup import Lookup
from nobroker.stores.mixed import MixedEnqueuer
from nobroker.stores.session import Part, Session
from nobroker.stores.whole import Bundle, whole_job
from nobroker.values import split_array


class Debouncer:
    """Enqueues jobs that wait for the last word."""

    def __init__(self, session: Session, lookup: Lookup, mixed: MixedEnqueuer) -> None:
        self._session = session
        self._lookup = lookup
        self._mixed = mixed

    def enqueue(self, new: NewJobs, longest_us: int | None) -> Job:
        """One job with an id of the caller's; its delay is how long each call pushes it back.

        Returns:
            The job as it is now; `created` says whether it was not there.
        """
        session = self._session
        (job_id,) = new.ids or ("",)
        made: list[Sequence[Job]] = []
        with session.transaction() as now:
            seq = self._lookup.seq_of(str(job_id))
            code = codes.NONE if seq is None else session.state.pages.code(seq)
            end = session.log.position
            if seq is not None and code in codes.WAITING:
                session.room_for(size_of(new, new.batches, (str(job_id),)))
                end = session.append([self._replaced(seq, new, longest_us, now)])
                session.log.notify()
            elif code in (codes.NONE, codes.DONE):
                end = self._anew(seq, new, now, made)
            if not made and seq is not None:
                job = self._lookup.job(seq, now)
                job.created = False
        session.log.wait_durable(end)
        return job if not made else next(job for jobs in made for job in jobs)

    def _anew(self, done: int | None, new: NewJobs, now: int, made: list[Sequence[Job]]) -> int:
        """The last one has run, and makes way for this one if it comes in; or there was none."""
        if done is None:
            return self._mixed.append([new], now, made)
        digests = pack_words("Q", id_digests([str(new.ids and new.ids[0])]))
        drop = kinds.DROP, {"t": now, "q": [done, done], "h": digests}, b""
        return self._mixed.append([new], now, made, before=[drop])

    def _replaced(self, seq: int, new: NewJobs, longest_us: int | None, now: int) -> Part:
        session = self._session
        piece = session.log.find_one(seq)
        if piece is None:
            raise session.lost(seq)
        job = whole_job(session, seq, session.reader.of(piece), piece)
        place = job.override.pop("a", job.avail)
        dated = job.override.pop("w", job.shared.pop("w", False))
        if session.state.attempts(seq):  # when a failed job is tried again, its backoff says
            job.avail = place
            if dated:
                job.shared["w"] = True
        else:
            job.avail = now + new.delay_us
            if longest_us is not None:
                job.avail = min(job.avail, job.enqueued + longest_us)
        (job.payload,) = split_array(new.batches[0][1])
        bundle = Bundle(now)
        bundle.add(job)
        return bundle.parts(kinds.REPLACE)[0]
