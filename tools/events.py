"""What a record of the queue says, as one line of JSON per job."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from nobroker.limits import shown
from nobroker.state import kinds
from nobroker.state.numbers import columns, each
from nobroker.stores.reading import default_prefix
from nobroker.values import unpack
from nobroker_mmap.record import Record

from .jsonvalue import dumps
from .lines import AT_ONCE, Lines, packed_text, packed_texts

Head = dict[str, Any]
Texts = list[str]

_DENSE = 4
"""In so wide a range of numbers for each that is asked for, one question for all costs less."""
_STATES = {"r": "ready", "l": "leased", "d": "done", "x": "dead"}


class OwnIds:
    """Ids that callers chose, by sequence number: on the disk, so that memory does not grow with the log."""

    def __init__(self, log_id: int) -> None:
        self.prefix = default_prefix(log_id)
        self._any = False
        # An empty name is SQLite's for a temporary database that spills to the disk and goes with its
        # connection.
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.execute("PRAGMA journal_mode = OFF")
        self._table.execute("CREATE TABLE own (seq INTEGER PRIMARY KEY, id BLOB)")

    def learn(self, seqs: Iterator[int], ids: list[str | None]) -> None:
        """Remember the ids of a record's jobs."""
        rows = [
            (seq, own.encode("utf-8", "surrogatepass"))
            for seq, own in zip(seqs, ids, strict=True)
            if own is not None
        ]
        if rows:
            self._any = True
            self._table.execute("BEGIN")
            self._table.executemany("INSERT OR REPLACE INTO own VALUES (?, ?)", rows)
            self._table.execute("COMMIT")

    def among(self, seqs: list[int]) -> list[str | None] | None:
        """The ids of those jobs that have one of their own; None when it is none of them."""
        if not self._any:
            return None
        first, last = min(seqs), max(seqs)
        if last - first < _DENSE * len(seqs):
            rows = self._table.execute("SELECT seq, id FROM own WHERE seq BETWEEN ? AND ?", (first, last))
            found = dict(rows.fetchall())
        else:
            one = "SELECT seq, id FROM own WHERE seq = ?"
            found = dict(chain.from_iterable(self._table.execute(one, (seq,)).fetchall() for seq in seqs))
        if not found:
            return None
        return [
            None if (own := found.get(seq)) is None else own.decode("utf-8", "surrogatepass") for seq in seqs
        ]

    def close(self) -> None:
        self._table.close()


def learn_ids(record: Record, ids: OwnIds) -> None:
    """Remember the own ids of an ENQUEUE or MOVE."""
    head = record.head()
    if head.get("i"):
        ids.learn(_seqs(record.type, head), head["i"])


def events(record: Record, ids: OwnIds) -> Iterator[str]:
    """Lines of JSON, some at a time: one per job of a record; one in all where it is not about jobs.

    Raises:
        CorruptLogError, LookupError, TypeError, ValueError: the record verifies but is not of the documented
            form.
    """
    head = record.head()
    name = kinds.NAMES.get(record.type, f"type {record.type}")
    time = head.get("t")
    detail = _DETAILS.get(record.type)
    if detail is None:
        told = {"time": None if time is None else time / 1e6, "event": name}
        yield dumps({**told, **_plain(record.type, head)}) + "\n"
        return
    own: list[str | None] | None = None
    if record.type in (kinds.ENQUEUE, *kinds.WHOLE):
        own = head.get("i")
        if own:
            ids.learn(_seqs(record.type, head), own)
    tail: list[Any] | None = None
    if record.tail_bytes:
        tail = (unpack if record.type == kinds.EXTEND else packed_texts)(record.tail_bytes)
    numbers = _seqs(record.type, head)
    start = 0
    while seqs := list(islice(numbers, AT_ONCE)):
        rows = slice(start, start + len(seqs))
        lines = Lines(len(seqs))
        lines.moments("time", time)
        lines.same_text("event", f'"{name}"')
        texts = list(map(str, seqs))
        lines.texts("seq", texts)
        lines.ids(ids.prefix, texts, own[rows] if own else ids.among(seqs))
        detail(lines, head, rows, None if tail is None else tail[rows])
        yield lines.text()
        start = rows.stop


def plain_head(head: Head) -> Head:
    """A head for people: values that it holds packed, unpacked."""
    shown = dict(head)
    for key in "MJ":
        if isinstance(head.get(key), bytes):
            shown[key] = unpack(head[key])
    if isinstance(head.get("o"), dict):
        shown["o"] = {index: _unpacked(override) for index, override in head["o"].items()}
    return shown


def _unpacked(override: Head) -> Head:
    return {
        key: unpack(value) if key in "RPJ" and isinstance(value, bytes) else value
        for key, value in override.items()
    }


def _seqs(kind: int, head: Head) -> Iterator[int]:
    if kind == kinds.ENQUEUE:
        return iter(range(head["s"], head["s"] + head["n"]))
    if kind == kinds.CANCEL:
        return each([*head.get("q", ()), *head.get("g", ())])
    return each(head["q"])


def _enqueued(head: Head) -> Any:
    return head["e"] if "e" in head else head["t"]


def _fields(found: Head) -> str:
    """Fields to come behind others."""
    return f",{dumps(found)[1:-1]}" if found else ""


def _enqueue(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    enqueued = columns(_enqueued(head), rows.start, rows.stop)
    available = columns(head["a"], rows.start, rows.stop) if "a" in head else enqueued
    _new_job(lines, head, tail, enqueued, available)


def _new_job(
    lines: Lines,
    head: Head,
    tail: Texts | None,
    enqueued: int | list[int],
    available: int | list[int],
) -> None:
    lines.same_fields(_sort_of(head.get("l", ""), head.get("p", 0), head.get("m", 5)))
    lines.moments("enqueued_at", enqueued)
    lines.moments("available_at", available)
    lines.moments("expires_at", head.get("x") or None)
    metadata = head.get("M")
    if metadata is None:
        lines.same_text("metadata", "null")
    else:
        lines.same_text("metadata", packed_text(metadata) if isinstance(metadata, bytes) else dumps(metadata))
    if tail is None:
        raise ValueError("it has no payloads")
    lines.texts("payload", tail)
    if "c" in head:
        lines.same({"limits": shown(head["c"])})
    for key, name in (("b", "batch"), ("y", "after")):
        if key in head:
            lines.same({name: head[key]})


@lru_cache(typed=True)
def _sort_of(lane: str, priority: int, max_attempts: int) -> str:
    """What jobs that are enqueued one by one mostly share."""
    return dumps({"lane": lane, "priority": priority, "max_attempts": max_attempts})[1:-1]


def _move(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    enqueued = columns(_enqueued(head), rows.start, rows.stop)
    available = columns(head["a"], rows.start, rows.stop) if "a" in head else enqueued
    overrides = head.get("o", {})
    mine = (
        [_unpacked(overrides.get(index, {})) for index in range(rows.start, rows.stop)] if overrides else []
    )
    if any("a" in override for override in mine):
        usual = available if isinstance(available, list) else [available] * len(mine)
        available = [override.get("a", when) for override, when in zip(mine, usual, strict=True)]
    _new_job(lines, head, tail, enqueued, available)
    if mine:
        lines.more([_fields(_moved(override)) for override in mine])
    else:
        lines.same(_moved({}))


def _moved(override: Head) -> Head:
    """What a MOVE says of one job besides its fields."""
    event: Head = {"state": _STATES[override.get("s", "r")], "attempts": override.get("n", 0)}
    for key, name in (("k", "token"), ("E", "error"), ("R", "result"), ("P", "progress"), ("J", "job_state")):
        if key in override:
            event[name] = override[key]
    for key, name in (("d", "deadline"), ("K", "keep_until")):
        if key in override:
            event[name] = override[key] / 1e6
    if override.get("f", 0) & 1:
        event["cancel_requested"] = True
    return event


def _lease(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    lines.texts("token", list(map(str, range(head["k"] + rows.start, head["k"] + rows.stop))))
    lines.moments("deadline", head["d"])


def _ack(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    _tail(lines, "result", tail)
    lines.moments("keep_until", head.get("k") or None)


def _tail(lines: Lines, name: str, tail: Texts | None) -> None:
    if tail is None:
        lines.same({name: None})
    else:
        lines.texts(name, tail)


def _nack(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    dead, done = set(head.get("x", ())), set(head.get("c", ()))
    if dead or done:
        at = range(rows.start, rows.stop)
        lines.texts("state", ['"dead"' if i in dead else '"done"' if i in done else '"ready"' for i in at])
    else:
        lines.same({"state": "ready"})
    lines.moments("available_at", _avails(head["a"], rows))
    _tail(lines, "error", tail)
    _stated(lines, head)


def _stated(lines: Lines, head: Head) -> None:
    """The state that all jobs of the record were given, if they were."""
    if "J" in head:
        lines.same_text("job_state", packed_text(head["J"]))


def _extend(lines: Lines, head: Head, rows: slice, tail: list[Any] | None) -> None:
    lines.moments("deadline", head["d"])
    if tail is not None:
        names = ("progress", "job_state")
        lines.more(
            [
                _fields({name: said[0] for name, said in zip(names, pair, strict=True) if said is not None})
                for pair in tail
            ]
        )


def _avails(value: int | bytes | list[int], rows: slice) -> int | list[int]:
    return value[rows] if isinstance(value, list) else columns(value, rows.start, rows.stop)


def _release(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    lines.moments("available_at", _avails(head["a"], rows))
    _stated(lines, head)


def _cancel(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    waiting = sum(1 for _ in each(head.get("q", [])))
    lines.texts("state", ['"done"' if i < waiting else '"leased"' for i in range(rows.start, rows.stop)])
    lines.moments("keep_until", head.get("k") or None)


def _reschedule(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    lines.moments("available_at", head["a"])
    lines.same({"wall_clock": head.get("w", False)})


def _nothing(lines: Lines, head: Head, rows: slice, tail: Texts | None) -> None:
    """No more than that it happened."""


_DETAILS: dict[int, Callable[[Lines, Head, slice, Any], None]] = {
    kinds.ENQUEUE: _enqueue,
    kinds.MOVE: _move,
    kinds.REPLACE: _move,
    kinds.LEASE: _lease,
    kinds.ACK: _ack,
    kinds.NACK: _nack,
    kinds.RECLAIM: _nack,
    kinds.EXTEND: _extend,
    kinds.RELEASE: _release,
    kinds.EXPIRE: _nothing,
    kinds.REQUEUE: _nothing,
    kinds.DROP: _nothing,
    kinds.CANCEL: _cancel,
    kinds.RESCHEDULE: _reschedule,
}


def _plain(kind: int, head: Head) -> Head:
    """The content of a record that is not about single jobs."""
    if kind == kinds.PAUSE:
        return {"lane": head.get("l"), "paused": head.get("p")}
    if kind == kinds.LANE_LIMIT:
        return {"lane": head["l"], "limit": head["n"]}
    if kind == kinds.PURGE:
        return {"lane": head.get("l"), "next_seq": head.get("n")}
    if kind == kinds.RESERVE:
        return {"seq_below": head.get("s"), "token_below": head.get("k")}
    if kind == kinds.RETIRE:
        return {"first_segment": head.get("f"), "forgotten": head.get("g", [])}
    return {"head": {key: value for key, value in head.items() if key != "t"}}
