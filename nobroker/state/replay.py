"""One record at a time, in the order of the log: the only way in which the state changes.

Invariants
- Replay is a function of the records alone: the same log gives the same state, whichever snapshot it starts
  from.
- A record about a job that is not known changes nothing: the job's segment has been retired, and what must
  be kept of it comes later in the log as a MOVE with its complete state.
- A MOVE of a known job changes no answer, only where its values are found. A REPLACE gives it another
  payload and time besides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nobroker.state import arrivals, kinds, outcomes, queuewide
from nobroker.state.machine import Head, State

MISFITS: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What comes of a record that verifies and is not one that the library writes."""


def apply(state: State, kind: int, head: Head, lsn: int) -> None:
    """Apply one record. Unknown kinds change nothing.

    Raises:
        One of `MISFITS`: the head is not one that the library writes.
    """
    handler = _HANDLERS.get(kind)
    if handler is None:
        return
    time = head.get("t", 0)
    if time > state.time:
        state.time = time
    handler(state, head, lsn)


_HANDLERS: dict[int, Callable[[State, Head, int], None]] = {
    kinds.ENQUEUE: arrivals.enqueue,
    kinds.MOVE: arrivals.move,
    kinds.LEASE: outcomes.lease,
    kinds.ACK: outcomes.ack,
    kinds.NACK: outcomes.nack,
    kinds.RECLAIM: outcomes.reclaim,
    kinds.EXTEND: outcomes.extend,
    kinds.RELEASE: outcomes.release,
    kinds.EXPIRE: outcomes.expire,
    kinds.REQUEUE: outcomes.requeue,
    kinds.DROP: queuewide.drop,
    kinds.CANCEL: outcomes.cancel,
    kinds.RESCHEDULE: outcomes.reschedule,
    kinds.PAUSE: queuewide.pause,
    kinds.PURGE: queuewide.purge,
    kinds.RESERVE: queuewide.reserve,
    kinds.ANCHOR: queuewide.anchor,
    kinds.REPLACE: arrivals.replace,
    kinds.LANE_LIMIT: queuewide.limit_lane,
    kinds.RETIRE: queuewide.retire,
}
