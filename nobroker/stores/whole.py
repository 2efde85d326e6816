"""A job whole, as one record says it that needs no other: what compaction moves to the tail of the log."""

from __future__ import annotations

from typing import Any

from nobroker.state import codes, kinds
from nobroker.state.entries import Entry
from nobroker.state.gates import said_of
from nobroker.state.machine import Head
from nobroker.state.numbers import column, pack_words, ranges_of
from nobroker.stores.decoded import Decoded
from nobroker.stores.reading import Reader
from nobroker.stores.session import Part, Session
from nobroker.values import BATCH_JOBS, join_array, pack_list
from nobroker_mmap.offsets import Piece


class Moved:
    __slots__ = ("avail", "enqueued", "job_id", "override", "payload", "seq", "shared")

    def __init__(
        self,
        seq: int,
        shared: Head,
        enqueued: int,
        avail: int,
        job_id: str | None,
        override: Head,
        payload: bytes,
    ) -> None:
        self.seq = seq
        self.shared = shared
        self.enqueued = enqueued
        self.avail = avail
        self.job_id = job_id
        self.override = override
        self.payload = payload


def whole_job(session: Session, seq: int, decoded: Decoded, piece: Piece) -> Moved:
    """A job's complete absolute state; `decoded` is the record that the piece of the index speaks of."""
    state = session.state
    index = piece.index + seq - piece.first
    head = decoded.head
    ids = head.get("i")
    enqueued = column(head.get("e") or head["t"], index)
    shared = {key: head[key] for key in head if key in "pmlxwMcby" or len(key) > 1}
    words = state.ready.words(seq)
    if words is not None:
        shared["C"] = said_of(words)
    avail = column(head.get("a") or enqueued, index)
    override = _override(session, seq, avail, head.get("w", False))
    own = ids[index] if ids else None
    return Moved(seq, shared, enqueued, avail, own, override, decoded.element(index))


def _override(session: Session, seq: int, avail: int, wall: bool) -> Head:
    state, reader = session.state, session.reader
    code = state.pages.code(seq)
    entry = state.entries.get(seq)
    override: Head = {}
    if code == codes.LEASED:
        lease = state.leased[seq]
        override = {
            "s": "l",
            "n": state.attempts(seq),
            "k": seq + lease.delta,
            "d": lease.deadline,
            "a": lease.place(seq),
        }
    elif code == codes.DONE:
        override = {"s": "d", "n": state.attempts(seq), "k": state.pages.token(seq)}
    elif code == codes.DEAD:
        override = {"s": "x"}
    elif entry is not None:
        override = {"s": "r"}
    if entry is not None:
        if entry.wall != wall:
            override["w"] = entry.wall
        _add_entry(reader, override, entry, seq, avail)
    ref = state.pages.ref(seq)
    if ref and code == codes.DONE:
        override["K"] = reader.keep_until(ref, seq)
        result = reader.result(ref, seq)
        if result is not None:
            override["R"] = pack_list([result], ["result"])[1:]
    return override


def _add_entry(reader: Reader, override: Head, entry: Entry, seq: int, avail: int) -> None:
    override["n"] = entry.attempts
    if entry.flags:
        override["f"] = entry.flags
    if entry.avail != avail:
        override.setdefault("a", entry.avail)
    if entry.token and "k" not in override:
        override["k"] = entry.token
    said = reader.said
    if entry.error:
        override["E"] = said(entry.error, seq, "E")
    for key, ref in (("P", entry.progress), ("J", entry.state)):
        if ref:
            override[key] = pack_list([said(ref, seq, key)], [key])[1:]


class Bundle:
    """Moved jobs, grouped into records of jobs that share their head."""

    def __init__(self, time: int) -> None:
        self._time = time
        self._groups: list[list[Moved]] = []
        self.jobs = 0
        self.size = 0

    def add(self, job: Moved) -> None:
        group = self._groups[-1] if self._groups else None
        if group is None or len(group) >= BATCH_JOBS or group[0].shared != job.shared:
            group = []
            self._groups.append(group)
        group.append(job)
        self.jobs += 1
        self.size += len(job.payload)

    def parts(self, kind: int = kinds.MOVE) -> list[Part]:
        return [self._part(kind, group) for group in self._groups]

    def _part(self, kind: int, group: list[Moved]) -> Part:
        head: Head = {
            **group[0].shared,
            "t": self._time,
            "n": len(group),
            "q": ranges_of([job.seq for job in group]),
            "e": _column([job.enqueued for job in group]),
            "a": _column([job.avail for job in group]),
        }
        if any(job.job_id is not None for job in group):
            head["i"] = [job.job_id for job in group]
        overrides = {index: job.override for index, job in enumerate(group) if job.override}
        if overrides:
            head["o"] = overrides
        return kind, head, join_array([job.payload for job in group])


def _column(values: list[int]) -> Any:
    return values[0] if values.count(values[0]) == len(values) else pack_words("q", values)
