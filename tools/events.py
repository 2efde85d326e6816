"""What a record of the queue says, as one small dict per job."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from nobroker.state import kinds
from nobroker.state.numbers import column, each
from nobroker.stores.reading import default_prefix
from nobroker.values import unpack
from nobroker_mmap.record import Record

Event = dict[str, Any]
Head = dict[str, Any]

_STATES = {"r": "ready", "l": "leased", "d": "done", "x": "dead"}


class OwnIds:
    """Ids that callers chose, by sequence number: on the disk, so that memory does not grow with the log."""

    def __init__(self, log_id: int) -> None:
        self._prefix = default_prefix(log_id)
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

    def of(self, seq: int) -> str:
        """Id of a job."""
        if self._any:
            row = self._table.execute("SELECT id FROM own WHERE seq = ?", (seq,)).fetchone()
            if row is not None:
                return bytes(row[0]).decode("utf-8", "surrogatepass")
        return f"{self._prefix}{seq}"

    def close(self) -> None:
        self._table.close()


def learn_ids(record: Record, ids: OwnIds) -> None:
    """Remember the own ids of an ENQUEUE or MOVE."""
    head = record.head()
    if head.get("i"):
        ids.learn(_seqs(record.type, head), head["i"])


def events(record: Record, ids: OwnIds) -> Iterator[Event]:
    """One event per job of a record; one in all where it is not about jobs.

    Raises:
        CorruptLogError, LookupError, TypeError, ValueError: the record verifies but is not of the documented
            form.
    """
    head = record.head()
    name = kinds.NAMES.get(record.type, f"type {record.type}")
    time = _seconds(head.get("t"))
    detail = _DETAILS.get(record.type)
    if detail is None:
        yield {"time": time, "event": name, **_plain(record.type, head)}
        return
    if head.get("i") and record.type in (kinds.ENQUEUE, kinds.MOVE):
        ids.learn(_seqs(record.type, head), head["i"])
    tail = unpack(record.tail_bytes) if record.tail_bytes else None
    of = ids.of
    for index, seq in enumerate(_seqs(record.type, head)):
        yield {"time": time, "event": name, "seq": seq, "id": of(seq), **detail(head, index, tail)}


def plain_head(head: Head) -> Head:
    """A head for people: values that it holds packed, unpacked."""
    shown = dict(head)
    if isinstance(head.get("M"), bytes):
        shown["M"] = unpack(head["M"])
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


def _seconds(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def _enqueue(head: Head, index: int, tail: Any) -> Event:
    enqueued = column(head["e"] if "e" in head else head["t"], index)
    event = {
        "lane": head.get("l", ""),
        "priority": head.get("p", 0),
        "max_attempts": head.get("m", 5),
        "enqueued_at": enqueued / 1e6,
        "available_at": column(head.get("a", enqueued), index) / 1e6,
        "expires_at": _seconds(head.get("x") or None),
        "metadata": unpack(head["M"]) if isinstance(head.get("M"), bytes) else head.get("M"),
        "payload": tail[index],
    }
    for key, name in (("c", "limit_keys"), ("b", "batch"), ("y", "after")):
        if key in head:
            event[name] = head[key]
    return event


def _move(head: Head, index: int, tail: Any) -> Event:
    event = _enqueue(head, index, tail)
    override = _unpacked(head.get("o", {}).get(index, {}))
    event["state"] = _STATES[override.get("s", "r")]
    event["attempts"] = override.get("n", 0)
    for key, name in (("k", "token"), ("E", "error"), ("R", "result"), ("P", "progress"), ("J", "job_state")):
        if key in override:
            event[name] = override[key]
    for key, name in (("d", "deadline"), ("a", "available_at"), ("K", "keep_until")):
        if key in override:
            event[name] = override[key] / 1e6
    if override.get("f", 0) & 1:
        event["cancel_requested"] = True
    return event


def _lease(head: Head, index: int, tail: Any) -> Event:
    return {"token": head["k"] + index, "deadline": head["d"] / 1e6}


def _ack(head: Head, index: int, tail: Any) -> Event:
    return {"result": None if tail is None else tail[index], "keep_until": _seconds(head.get("k") or None)}


def _nack(head: Head, index: int, tail: Any) -> Event:
    state = "dead" if index in head.get("x", ()) else "done" if index in head.get("c", ()) else "ready"
    avails = head["a"]
    avail = avails[index] if isinstance(avails, list) else column(avails, index)
    return {"state": state, "available_at": avail / 1e6, "error": None if tail is None else tail[index]}


def _extend(head: Head, index: int, tail: Any) -> Event:
    event: Event = {"deadline": head["d"] / 1e6}
    if tail is not None:
        for name, said in zip(("progress", "job_state"), tail[index], strict=True):
            if said is not None:
                event[name] = said[0]
    return event


def _release(head: Head, index: int, tail: Any) -> Event:
    avails = head["a"]
    return {"available_at": (avails[index] if isinstance(avails, list) else column(avails, index)) / 1e6}


def _cancel(head: Head, index: int, tail: Any) -> Event:
    waiting = sum(1 for _ in each(head.get("q", [])))
    return {"state": "done" if index < waiting else "leased", "keep_until": _seconds(head.get("k") or None)}


def _nothing(head: Head, index: int, tail: Any) -> Event:
    return {}


_DETAILS: dict[int, Callable[[Head, int, Any], Event]] = {
    kinds.ENQUEUE: _enqueue,
    kinds.MOVE: _move,
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
}


def _plain(kind: int, head: Head) -> Event:
    """The content of a record that is not about single jobs."""
    if kind == kinds.PAUSE:
        return {"lane": head.get("l"), "paused": head.get("p")}
    if kind == kinds.PURGE:
        return {"lane": head.get("l"), "next_seq": head.get("n")}
    if kind == kinds.RESERVE:
        return {"seq_below": head.get("s"), "token_below": head.get("k")}
    if kind == kinds.RETIRE:
        return {"first_segment": head.get("f"), "forgotten": head.get("g", [])}
    return {"head": {key: value for key, value in head.items() if key != "t"}}
