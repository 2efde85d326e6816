"""Adding a job without having read what others appended.

Where many processes enqueue, each would read the records of all the others, one by one as they come, before
each of its own. Whoever only adds needs none of that, but for a few numbers, which stand in the control page
(`Tip`). What was not read is read in one go, when there is enough of it or when somebody looks.

Invariants
- The record is the one that would have been written after reading everything.
- The numbers are used only under the lock, and when they were said of the very end of the log.
- This process reads its own record later, as if others had written it.
"""

from __future__ import annotations

from typing import Final

from nobroker.job import Job
from nobroker.state import kinds
from nobroker.stores.base import NewJobs
from nobroker.stores.newjobs import common_head, new_job
from nobroker.stores.session import Session
from nobroker.values import pack_plain, unpack

LAG_BYTES: Final = 64 * 1024
"""So much may be unread. Reading many records at a time costs a fraction of reading them as they come."""


class TipEnqueuer:
    """Enqueues single jobs at the end of a log that this process has not read to its end."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def enqueue(self, new: NewJobs, packed: bytes) -> Job | None:
        """As `Enqueuer.enqueue_one`; None, and nothing done, where it has to go the usual way."""
        session = self._session
        log = session.log
        if not session.contended or not session.loaded or session.options.max_bytes is not None:
            return None
        if not log.lag():
            session.contended = False
            return None
        zero = session.zero_us()
        if zero is None or self._read_much() or not session.lock_only():
            return None
        end = 0
        try:
            tip = log.tip()
            if tip is None or tip.next >= tip.reserved:
                return None
            now = max(tip.time, zero + session.clock.boot_us())
            common = common_head(new, now)
            head = pack_plain({"n": 1, "s": tip.next, **common})
            end = log.append_at_tip(kinds.ENQUEUE, head, packed, tip, 1, now)
        finally:
            log.unlock()
        if not end:
            return None
        log.notify()
        log.wait_durable(end)
        job_id = f"{session.reader.prefix}{tip.next}"
        return new_job(new, common, job_id, tip.next, common.get("a", now), unpack(packed)[0])

    def _read_much(self) -> bool:
        """Read what is unread when it has become much; whether that was so."""
        session = self._session
        if session.log.lag() <= LAG_BYTES:
            return False
        with session.reading():
            session.follow()
        return True
