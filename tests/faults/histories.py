"""What several processes saw of one queue, and whether it can have been.

Times of the processes are by the monotonic clock, deadlines by queue time; how they belong together follows
from the leases themselves: each was given between the beginning and the end of its call.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.faults.limited import TICK, Hold, exceeded


@dataclass
class Lease:
    """One lease of one job, in queue time but for the call."""

    seq: int
    payload: str
    token: int
    attempts: int
    lane: str
    limits: dict[str, Any]
    began: float
    ended: float
    start: float
    deadline: float
    end: tuple[str, float, float] | None = None
    """How its holder gave it back: the verb, and when that call began and ended."""

    def hold(self, low: float) -> Hold:
        """For how long it surely held what it needs; `low` is how far queue time is ahead, at the least."""
        until = self.deadline if self.end is None else min(self.deadline, self.end[1] + low)
        where = f"job {self.seq}, token {self.token}"
        return Hold(where, self.lane, self.start, until, self.limits)


@dataclass
class History:
    """All notes of all processes."""

    made: dict[int, str] = field(default_factory=dict)
    leases: dict[tuple[int, int], Lease] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refusals: list[tuple[str, int, int, float]] = field(default_factory=list)
    verbs: int = 0

    def read(self, path: Path) -> None:
        """Take one process's notes in."""
        for line in path.read_text(encoding="utf-8").splitlines():
            note = json.loads(line)
            self.verbs += 1
            getattr(self, "_" + note["verb"])(note, *note["t"])

    def _enqueue(self, note: Any, began: float, ended: float) -> None:
        for seq, payload in note["what"]:
            if seq in self.made:
                self.wrong.append(f"sequence number {seq} was given twice")
            self.made[seq] = payload

    def _lease(self, note: Any, began: float, ended: float) -> None:
        for seq, payload, token, attempts, deadline, lane, limits, visibility in note["what"]:
            start = deadline - visibility
            lease = Lease(seq, payload, token, attempts, lane, limits or {}, began, ended, start, deadline)
            if (seq, token) in self.leases:
                self.wrong.append(f"token {token} of job {seq} was given twice")
            self.leases[seq, token] = lease

    def _extend(self, note: Any, began: float, ended: float) -> None:
        seq, token, deadline = note["what"]
        if note["refused"]:
            self.refusals.append(("extend", seq, token, ended))
        else:
            self.leases[seq, token].deadline = deadline

    def _settle(self, note: Any, began: float, ended: float) -> None:
        seq, token = note["what"]
        if note["refused"]:
            self.refusals.append((note["verb"], seq, token, ended))
            return
        lease = self.leases[seq, token]
        if lease.end is not None:
            self.wrong.append(f"job {seq}, token {token}: {lease.end[0]}, and then {note['verb']}")
        lease.end = (note["verb"], began, ended)

    _ack = _nack = _release = _settle

    # -- what cannot have been

    def judge(self) -> list[str]:
        """Everything that breaks the contract."""
        low = max((lease.start - lease.ended for lease in self.leases.values()), default=0.0) - TICK
        high = min((lease.start - lease.began for lease in self.leases.values()), default=0.0) + TICK
        if low > high:
            self.wrong.append(f"queue time went differently in different processes: {low} > {high}")
        self._tokens()
        jobs: dict[int, list[Lease]] = defaultdict(list)
        for lease in sorted(self.leases.values(), key=lambda lease: lease.token):
            jobs[lease.seq].append(lease)
            if self.made.get(lease.seq) != lease.payload:
                self.wrong.append(f"job {lease.seq} came with {lease.payload!r}")
        for leases in jobs.values():
            for one, other in pairwise(leases):
                self._follow(one, other, low)
        self._order()
        self.wrong += exceeded(lease.hold(low) for lease in self.leases.values())
        for verb, seq, token, ended in self.refusals:
            lease = self.leases[seq, token]
            if lease.end is None and ended + high < lease.deadline - TICK:
                self.wrong.append(f"{verb} of job {seq}, token {token}, was refused though it was held")
        return self.wrong

    def _tokens(self) -> None:
        """Who leased after another had returned has the larger token."""
        ordered = sorted(self.leases.values(), key=lambda lease: lease.began)
        returned = sorted(self.leases.values(), key=lambda lease: lease.ended)
        top, at = 0, 0
        for lease in ordered:
            while at < len(returned) and returned[at].ended < lease.began:
                top = max(top, returned[at].token)
                at += 1
            if lease.token <= top:
                self.wrong.append(f"token {lease.token} came after {top}")

    def _follow(self, one: Lease, other: Lease, low: float) -> None:
        """A job's next lease begins after the one before was given back, or was over."""
        where = f"job {one.seq}, tokens {one.token} and {other.token}"
        verb, began, _ = one.end or ("", 0.0, 0.0)
        if verb == "ack":
            self.wrong.append(f"{where}: acknowledged, and delivered again")
        elif verb:
            if other.start < began + low - TICK:
                self.wrong.append(f"{where}: leased before the {verb} had begun")
        elif other.start < one.deadline - TICK:
            self.wrong.append(f"{where}: overlap, {other.start} is before {one.deadline}")
        if other.attempts != one.attempts + (verb != "release"):
            self.wrong.append(f"{where}: attempts {one.attempts}, then {other.attempts}")

    def _order(self) -> None:
        """In the lane where nothing is given back, jobs come in the order of their numbers."""
        fifo = [lease for lease in self.leases.values() if lease.lane == "fifo"]
        seqs = [lease.seq for lease in sorted(fifo, key=lambda lease: lease.token)]
        if seqs != sorted(seqs):
            self.wrong.append("first in was not first out")

    def left(self, states: dict[int, str]) -> list[str]:
        """What the queue holds in the end, against what was seen: nothing lost, nothing of its own."""
        acked = {lease.seq for lease in self.leases.values() if lease.end and lease.end[0] == "ack"}
        wrong = [f"job {seq} is lost" for seq in self.made if seq not in states and seq not in acked]
        wrong += [f"job {seq} is there, and nobody made it" for seq in states if seq not in self.made]
        wrong += [
            f"job {seq} is {state}" for seq, state in states.items() if (seq in acked) != (state == "done")
        ]
        return wrong
