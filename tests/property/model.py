"""The contract as a plain dict of jobs: slow, obvious, and without a file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nobroker import Job, Lanes

from .rounds import pass_on, turn

KEEP_DONE_US = 100_000_000
CANCELLED = "cancelled"


@dataclass
class Record:
    """One job as the model knows it; times in microseconds."""

    id: str
    seq: int
    payload: Any
    priority: int
    max_attempts: int
    lane: str
    own: bool
    enqueued: int
    avail: int
    wall: bool
    expires: int | None
    state: str = "ready"
    attempts: int = 0
    deadline: int | None = None
    place: int = 0
    token: int | None = None
    done_token: int | None = None
    error: str | None = None
    result: Any = None
    progress: Any = None
    job_state: Any = None
    cancel: bool = False
    silent: bool = False
    keep_until: int | None = None
    limits: dict[str, Any] | None = None
    buried: dict[str, tuple[int, ...]] | None = None
    """The limits of its keys when it died."""
    buried_weight: int = 1

    @property
    def keys(self) -> list[str]:
        """Its keys; those of rates with a mark before them."""
        return list(self.words)

    @property
    def words(self) -> dict[str, tuple[int, ...]]:
        said = self.limits or {}
        words: dict[str, tuple[int, ...]] = {key: (limit,) for key, limit, _ in said.get("limits", ())}
        for key, most, duration, _ in said.get("rates", ()):
            words[f"/{key}"] = (most, round(duration * 1e6))
        return words

    @property
    def fair(self) -> list[Any] | None:
        """The fair key and its weight."""
        return None if self.limits is None else self.limits.get("fair")

    @property
    def round(self) -> tuple[str, int]:
        return self.lane, self.priority

    @property
    def fair_name(self) -> tuple[str, int, str]:
        return (*self.round, self.fair[0] if self.fair else "")

    @property
    def alone(self) -> bool:
        return self.limits is not None and "exclusive" in self.limits

    @property
    def key(self) -> tuple[int, int, int]:
        return (-self.priority, self.avail, self.seq)

    @property
    def last_chance(self) -> bool:
        return self.silent and self.attempts + 1 >= self.max_attempts

    def shown(self, now: int) -> dict[str, Any]:
        """What `Job.to_dict` must say, but for what the model leaves open."""
        return {
            "id": self.id,
            "seq": self.seq,
            "payload": self.payload,
            "priority": self.priority,
            "state": self.state,
            "attempts": self.attempts,
            "max_attempts": self.max_attempts,
            "lane": self.lane,
            "enqueued_at": self.enqueued / 1e6,
            "available_at": (self.place if self.state == "leased" else self.avail) / 1e6,
            "lease_deadline": None if self.deadline is None else self.deadline / 1e6,
            "last_error": self.error,
            "result": self.result,
            "progress": self.progress,
            "job_state": self.job_state,
            "expires_at": None if self.expires is None else self.expires / 1e6,
            "cancel_requested": self.cancel,
            "lease_token": self.token,
            "limits": self.limits,
        }


def shown(job: Job) -> dict[str, Any]:
    """The same of a real job."""
    found = job.to_dict()
    for name in ("metadata", "created"):
        del found[name]
    return found


class Model:
    """All jobs, and what time does to them."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.wall = now
        self.jobs: dict[int, Record] = {}
        self.ids: dict[str, int] = {}
        self.paused: set[str | None] = set()
        self.limits: dict[str, tuple[int, ...]] = {}
        """What was said last of each key."""
        self.leases: list[tuple[int, str]] = []
        """When jobs with the key of a rate were leased."""
        self.lane_limits: dict[str, int] = {}
        self.weights: dict[tuple[str, int, str], int] = {}
        self.passed: dict[tuple[str, int, str], int] = {}
        self.reached: dict[tuple[str, int], int] = {}

    def seen(self) -> Model:
        """As a reader sees it: what time has ended counts as ended, though nobody wrote that down."""
        view = copy.deepcopy(self)
        view.settle()
        return view

    # -- time

    def settle(self) -> None:
        """What time has ended by now."""
        for job in self.jobs.values():
            if job.state == "leased" and job.deadline is not None and job.deadline <= self.now:
                self._end_lease(job)
            if (
                job.state == "ready"
                and job.attempts == 0
                and job.expires is not None
                and job.expires <= self.now
            ):
                self._die(job)
                job.error, job.avail = "expired", job.expires

    def _end_lease(self, job: Record) -> None:
        assert job.deadline is not None
        job.avail, job.deadline, job.wall = job.deadline, None, False
        if job.cancel:
            self._cancelled(job)
            job.done_token = job.token
        elif job.attempts >= job.max_attempts:
            self._die(job)
            job.error = f"lease expired on attempt {job.attempts}: its holder died or was too slow"
        else:
            job.state = "ready"
        job.silent = True

    def _die(self, job: Record) -> None:
        job.state, job.buried = "dead", {key: self.limits[key] for key in job.keys}
        if job.fair is not None:
            job.buried_weight = self.weights[job.fair_name]

    def live(self, key: str, *states: str) -> int:
        """How many jobs with a key wait or are leased."""
        return sum(job.state in states and key in job.keys for job in self.jobs.values())

    def room(self, key: str) -> int:
        """How many more jobs with a key may be leased."""
        most, *duration = self.limits[key]
        if duration:
            used = sum(at > self.now - duration[0] and key == other for at, other in self.leases)
        else:
            used = self.live(key, "leased")
        return most - used

    def may_enter(self, key: str, words: tuple[int, ...]) -> int:
        """How many more jobs with a key that discards are taken in."""
        most, *duration = words
        if not duration:
            return most - self.live(key, "ready", "leased")
        used = sum(at > self.now - duration[0] and key == other for at, other in self.leases)
        return most - used - self.live(key, "ready")

    def _cancelled(self, job: Record) -> None:
        job.state, job.error, job.cancel = "done", CANCELLED, False
        job.keep_until = self.now + KEEP_DONE_US

    def reboot(self, now: int) -> None:
        """Leases of an earlier boot end."""
        self.now = self.wall = now
        for job in self.jobs.values():
            if job.deadline is not None:
                job.deadline = min(job.deadline, now)

    # -- questions

    def due(self, job: Record) -> bool:
        return job.state == "ready" and job.avail <= (self.wall if job.wall else self.now)

    def order(self) -> list[Record]:
        """Those that are due, in the order of delivery."""
        return sorted((job for job in self.jobs.values() if self.due(job)), key=lambda job: job.key)

    def counts(self, lane: str | None = None, *, seqs: range | None = None) -> tuple[int, int, int, int, int]:
        found = dict.fromkeys(("ready", "delayed", "leased", "done", "dead"), 0)
        for job in self.jobs.values():
            if (lane is None or job.lane == lane) and (seqs is None or job.seq in seqs):
                state = job.state if job.state != "ready" or self.due(job) else "delayed"
                found[state] += 1
        ready, delayed, leased, done, dead = found.values()
        return ready, delayed, leased, done, dead

    # -- verbs

    def add(self, job: Job, *, own: bool, wall: bool, payload: Any) -> None:
        record = Record(
            job.id,
            job.seq,
            payload,
            job.priority,
            job.max_attempts,
            job.lane,
            own,
            self.now,
            round(job.available_at * 1e6),
            wall,
            None if job.expires_at is None else round(job.expires_at * 1e6),
        )
        record.limits = job.limits
        self.limits |= record.words
        if record.fair is not None:
            self.weights[record.fair_name] = record.fair[1]
        self.jobs[job.seq] = record
        self.ids[job.id] = job.seq

    def lease(self, count: int, lanes: Iterable[str] | Lanes | None) -> list[Record]:
        """Which jobs a lease must give."""
        chosen: list[Record] = []
        leased = [job for job in self.jobs.values() if job.state == "leased"]
        if None in self.paused or any(job.alone for job in leased):
            return chosen
        waiting = [job for job in self.order() if job.lane not in self.paused]
        rooms = {key: self.room(key) for job in waiting for key in job.keys}
        lane_rooms = {
            lane: limit - sum(job.lane == lane for job in leased) for lane, limit in self.lane_limits.items()
        }
        passed, reached = dict(self.passed), dict(self.reached)

        def may(job: Record) -> bool:
            served = lanes is None or job.lane in lanes or job.alone
            return served and lane_rooms.get(job.lane, 1) > 0 and all(rooms[key] > 0 for key in job.keys)

        while len(chosen) < count:
            first = next((job for job in waiting if may(job)), None)
            if first is None:
                break
            if first.alone:
                served = lanes is None or first.lane in lanes
                return [first] if served and not leased and not chosen else chosen
            if isinstance(lanes, Lanes):  # in the order of their list
                first = min(
                    (job for job in waiting if may(job) and not job.alone),
                    key=lambda job: lanes.rank(job.lane),
                )
            if first.fair is not None:
                first = turn([job for job in waiting if may(job)], first, passed, reached)
            if first.last_chance and chosen:
                break
            waiting.remove(first)
            chosen.append(first)
            for key in first.keys:
                rooms[key] -= 1
            if first.lane in lane_rooms:
                lane_rooms[first.lane] -= 1
            pass_on(first, passed, reached, self.weights)
            if first.last_chance:
                break
        return chosen

    def take(self, record: Record, token: int, timeout: int) -> None:
        record.state, record.token, record.deadline = "leased", token, self.now + timeout
        record.attempts += 1
        record.place = record.avail
        self.leases += [(self.now, key) for key in record.keys if key.startswith("/")]
        pass_on(record, self.passed, self.reached, self.weights)

    def verdict(self, job: Job, *, for_ack: bool = False) -> str:
        """held, done (an ack is harmless), lost or missing."""
        record = self.jobs.get(job.seq)
        if record is None or record.id != job.id:
            return "missing" if job.id not in self.ids else "lost"
        if record.state == "leased" and record.token == job.lease_token:
            return "held"
        if for_ack and record.state == "done" and record.done_token == job.lease_token:
            return "done"
        return "lost"

    def ack(self, seq: int, result: Any) -> None:
        job = self.jobs[seq]
        job.state, job.deadline, job.done_token = "done", None, job.token
        job.avail = job.place
        job.result = result
        if result is not None or job.own:
            job.keep_until = self.now + KEEP_DONE_US

    def nack(self, seq: int, error: str | None, delay: int, dead: bool | None, state: Any) -> None:
        job = self.jobs[seq]
        job.job_state = job.job_state if state is None else state
        job.deadline, job.wall, job.avail = None, False, self.now
        job.silent = False
        if error is not None:
            job.error = error
        if job.cancel:
            self._cancelled(job)
            job.done_token = job.token
        elif dead or (dead is None and job.attempts >= job.max_attempts):
            self._die(job)
        else:
            job.state, job.avail = "ready", self.now + delay

    def extend(self, seq: int, timeout: int, progress: Any, state: Any) -> None:
        job = self.jobs[seq]
        job.deadline = self.now + timeout
        job.progress = job.progress if progress is None else progress
        job.job_state = job.job_state if state is None else state

    def release(self, seq: int, delay: int, state: Any) -> None:
        job = self.jobs[seq]
        job.job_state = job.job_state if state is None else state
        job.state, job.deadline, job.wall = "ready", None, False
        job.attempts -= 1
        job.avail = self.now + delay if delay else min(self.now, job.place)
        if job.cancel:
            self._cancelled(job)
            job.token = None

    def cancel(self, seq: int) -> None:
        job = self.jobs[seq]
        if job.state == "ready":
            self._cancelled(job)
            job.token = None
        elif job.state == "leased":
            job.cancel = True

    def reschedule(self, seq: int, avail: int, wall: bool) -> None:
        job = self.jobs[seq]
        if job.state == "ready":
            job.avail, job.wall = avail, wall

    def requeue(self, seq: int) -> None:
        job = self.jobs[seq]
        if job.fair is not None and not any(
            other.fair_name == job.fair_name and other.state in ("ready", "leased")
            for other in self.jobs.values()
            if other.fair is not None
        ):
            self.weights[job.fair_name] = job.buried_weight
        for key, limit in (job.buried or {}).items():
            if not self.live(key, "ready", "leased"):
                self.limits[key] = limit
        job.state, job.attempts, job.avail = "ready", 0, self.now
        job.silent, job.wall, job.expires = False, False, None
        if job.error == "expired":
            job.error = None

    def forget(self, gone: Callable[[Record], bool]) -> int:
        doomed = [job for job in self.jobs.values() if gone(job)]
        for job in doomed:
            del self.jobs[job.seq]
            del self.ids[job.id]
        return len(doomed)

    def compact(self) -> None:
        self.forget(
            lambda job: job.state == "done" and (job.keep_until is None or job.keep_until <= self.now)
        )
