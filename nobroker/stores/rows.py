"""What the records of jobs say to the offset index: which sequence numbers they hold."""

from __future__ import annotations

from nobroker.state import fitting, kinds
from nobroker.state.machine import Head
from nobroker_mmap.record import Record


def index_rows(record: Record) -> list[tuple[int, int, int]]:
    """The offset index's rows for a record: `(first sequence number, index, count)`."""
    return rows_of(record.type, fitting_head(record))


def fitting_head(record: Record) -> Head:
    """The head of a record, checked once.

    Raises:
        ValueError, TypeError, KeyError: it is none that the library writes.
    """
    head = record.head()
    if not record.fits:
        fitting.check(record.type, head, len(record.body) - record.head_len, record.lsn)
        record.fits = True
    return head


def rows_of(kind: int, head: Head) -> list[tuple[int, int, int]]:
    """As `index_rows`, from the head."""
    if kind == kinds.ENQUEUE:
        return [(head["s"], 0, head["n"])]
    return rows_of_spans(head["q"]) if kind in kinds.WHOLE else []


def rows_of_spans(spans: list[int]) -> list[tuple[int, int, int]]:
    rows, index = [], 0
    for at in range(0, len(spans), 2):
        number = spans[at + 1] - spans[at] + 1
        rows.append((spans[at], index, number))
        index += number
    return rows
