"""Types of the queue's records; docs/format.md describes each."""

from __future__ import annotations

from typing import Final

CLOSE: Final = 1
RETIRE: Final = 2
ENQUEUE: Final = 16
MOVE: Final = 17
LEASE: Final = 18
ACK: Final = 19
NACK: Final = 20
RECLAIM: Final = 21
EXTEND: Final = 22
RELEASE: Final = 23
EXPIRE: Final = 24
REQUEUE: Final = 25
DROP: Final = 26
CANCEL: Final = 27
PAUSE: Final = 28
PURGE: Final = 29
RESERVE: Final = 30
ANCHOR: Final = 31
RESCHEDULE: Final = 32
LANE_LIMIT: Final = 33
REPLACE: Final = 34

WHOLE: Final = frozenset({MOVE, REPLACE})
"""Records of jobs with all that they have been through."""

NAMES: Final = {
    CLOSE: "close",
    RETIRE: "retire",
    ENQUEUE: "enqueue",
    MOVE: "move",
    LEASE: "lease",
    ACK: "ack",
    NACK: "nack",
    RECLAIM: "reclaim",
    EXTEND: "extend",
    RELEASE: "release",
    EXPIRE: "expire",
    REQUEUE: "requeue",
    DROP: "drop",
    CANCEL: "cancel",
    PAUSE: "pause",
    PURGE: "purge",
    RESERVE: "reserve",
    ANCHOR: "anchor",
    RESCHEDULE: "reschedule",
    LANE_LIMIT: "lane-limit",
    REPLACE: "replace",
}
