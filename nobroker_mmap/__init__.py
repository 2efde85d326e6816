"""A durable, segmented log of records in plain files, shared by the processes of one machine. Knows no
jobs.
"""

from nobroker_mmap.catalog import drop_log, list_logs
from nobroker_mmap.chain import SegmentInfo
from nobroker_mmap.check import Finding
from nobroker_mmap.errors import (
    CorruptLogError,
    LockTimeoutError,
    NobrokerError,
    QueueClosedError,
    Restart,
    StorageError,
)
from nobroker_mmap.format import validate_name
from nobroker_mmap.log import Log
from nobroker_mmap.losses import Loss, SalvageReport
from nobroker_mmap.offsets import Piece
from nobroker_mmap.record import Record
from nobroker_mmap.recovery import RecoveryReport
from nobroker_mmap.salvage import salvage
from nobroker_mmap.snapshot import SnapshotWriter

__all__ = [
    "CorruptLogError",
    "Finding",
    "LockTimeoutError",
    "Log",
    "Loss",
    "NobrokerError",
    "Piece",
    "QueueClosedError",
    "Record",
    "RecoveryReport",
    "Restart",
    "SalvageReport",
    "SegmentInfo",
    "SnapshotWriter",
    "StorageError",
    "drop_log",
    "list_logs",
    "salvage",
    "validate_name",
]
