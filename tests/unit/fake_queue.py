"""A queue in memory with the verbs a worker uses, whose troubles are made to order."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nobroker import Job, JobNotFoundError, JobState, NotLeasedError, QueueClosedError
from nobroker.values import pack_value


class FakeQueue:
    """Leases are deadlines on the monotonic clock, tokens fence, and every verb is noted in `calls`.

    Attributes:
        troubles: per verb, errors to raise at its next calls instead of doing anything.
        durable: acks are "on disk" while this is set.
        retry_delay: seconds until a nacked job is ready again.
    """

    def __init__(self, *, visibility_timeout: float = 30.0, max_attempts: int = 5) -> None:
        self.visibility_timeout = visibility_timeout
        self.max_attempts = max_attempts
        self.retry_delay = 0.0
        self.jobs: dict[str, Job] = {}
        self.calls: list[tuple[str, list[str]]] = []
        self.troubles: dict[str, list[BaseException]] = defaultdict(list)
        self.durable = threading.Event()
        self.durable.set()
        self.closed = False
        self._ready_at: dict[str, float] = {}
        self._changed = threading.Condition()
        self._wakes = 0
        self._tickets = 0
        self._tokens = 0
        self._waiting = 0

    # ---- for tests

    def enqueue(self, payload: Any, *, lane: str = "", job_id: str | None = None) -> Job:
        with self._changed:
            name = job_id or f"job-{len(self.jobs)}"
            seq = len(self.jobs)
            self.jobs[name] = Job(name, payload, max_attempts=self.max_attempts, lane=lane, seq=seq)
            self._ready_at[name] = 0.0
            self._changed.notify_all()
            return replace(self.jobs[name])

    def steal(self, job: Job) -> Job:
        """Let the lease run out and somebody else take the job."""
        with self._changed:
            self._take_back(job.id)
            return self._lease(1, None, only=job.id)[0]

    def purge(self) -> None:
        with self._changed:
            self.jobs.clear()
            self._ready_at.clear()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def states(self) -> Counter[str]:
        with self._changed:
            return Counter(job.state.value for job in self.jobs.values())

    def called(self, verb: str) -> list[list[str]]:
        with self._changed:
            return [ids for name, ids in self.calls if name == verb]

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, 10)

    def idle_waiters(self) -> int:
        return self._waiting

    # ---- what a worker uses

    def _wait_lease(
        self, count: int, *, wait: float, lanes: Sequence[str] | None = None, stop: Callable[[], bool]
    ) -> list[Job]:
        until = time.monotonic() + wait
        with self._changed:
            self._enter("lease", [])
            seen = self._wakes
            self._waiting += 1
            try:
                while True:
                    if self.closed:
                        raise QueueClosedError("closed")
                    if jobs := self._lease(count, lanes):
                        return jobs
                    left = until - time.monotonic()
                    if left <= 0 or (self._wakes != seen and stop()):
                        return []
                    seen = self._wakes
                    self._changed.wait(min(left, 0.02))
            finally:
                self._waiting -= 1

    def _wake_local(self) -> None:
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def _settle_and_lease(
        self, acks: list[tuple[Job, Any]], count: int, *, lanes: Sequence[str] | None = None
    ) -> tuple[list[Job], list[Job], list[Job], int]:
        with self._changed:
            self._enter("settle", [job.id for job, _ in acks])
            for _, result in acks:
                pack_value(result, "result")
            lost, missing = [], []
            for job, result in acks:
                try:
                    self._ack(job, result)
                except NotLeasedError:
                    lost.append(job)
                except JobNotFoundError:
                    missing.append(job)
            self._tickets += 1
            self._changed.notify_all()
            return self._lease(count, lanes), lost, missing, self._tickets

    def _wait_durable(self, ticket: int) -> None:
        with self._changed:
            self._enter("durable", [])
        self.durable.wait()

    def ack(self, job: Job, *, result: Any = None) -> None:
        with self._changed:
            self._enter("ack", [job.id])
            pack_value(result, "result")
            self._ack(job, result)

    def nack(
        self,
        job: Job,
        *,
        error: Any = None,
        delay: float | None = None,
        dead: bool | None = None,
        state: Any = None,
    ) -> Job:
        with self._changed:
            self._enter("nack", [job.id])
            pack_value(state, "state")
            held = self._held(job)
            held.last_error = error
            held.job_state = held.job_state if state is None else state
            final = held.attempts >= held.max_attempts if dead is None else dead
            held.state = JobState.DEAD if final else JobState.READY
            self._ready_at[job.id] = time.monotonic() + (self.retry_delay if delay is None else delay)
            self._changed.notify_all()
            return replace(held)

    def extend(self, job: Job, seconds: float) -> Job:
        with self._changed:
            self._enter("extend", [job.id])
            return self._extend(job, seconds)

    def extend_many(self, jobs: Sequence[Job], seconds: float) -> list[Job]:
        with self._changed:
            self._enter("extend_many", [job.id for job in jobs])
            return self._each(jobs, lambda job: self._extend(job, seconds))

    def release(self, job: Job, *, delay: float = 0.0, state: Any = None) -> Job:
        with self._changed:
            self._enter("release", [job.id])
            pack_value(state, "state")
            given = self._release(job)
            self._ready_at[job.id] = time.monotonic() + delay
            if state is not None:
                given.job_state = self.jobs[job.id].job_state = state
            return given

    def release_many(self, jobs: Sequence[Job]) -> list[Job]:
        with self._changed:
            self._enter("release_many", [job.id for job in jobs])
            return self._each(jobs, self._release)

    # ---- inside

    def _enter(self, verb: str, ids: list[str]) -> None:
        self.calls.append((verb, ids))
        self._changed.notify_all()
        if self.troubles[verb]:
            raise self.troubles[verb].pop(0)
        if self.closed:
            raise QueueClosedError("closed")

    def _lease(self, count: int, lanes: Sequence[str] | None, only: str | None = None) -> list[Job]:
        now = time.monotonic()
        found = []
        for job in self.jobs.values():
            if job.state is JobState.LEASED and (job.lease_deadline or 0) <= now:
                self._take_back(job.id)
            due = job.state is JobState.READY and self._ready_at[job.id] <= now
            wanted = (lanes is None or job.lane in lanes) and only in (None, job.id)
            if len(found) < count and due and wanted:
                self._tokens += 1
                job.state, job.lease_token, job.attempts = JobState.LEASED, self._tokens, job.attempts + 1
                job.lease_deadline = now + self.visibility_timeout
                found.append(replace(job))
        return found

    def _take_back(self, name: str) -> None:
        self.jobs[name].state = JobState.READY

    def _held(self, job: Job) -> Job:
        if job.id not in self.jobs:
            raise JobNotFoundError(job.id)
        held = self.jobs[job.id]
        if held.state is not JobState.LEASED or held.lease_token != job.lease_token:
            raise NotLeasedError(job.id, [job])
        return held

    def _ack(self, job: Job, result: Any) -> None:
        known = self.jobs.get(job.id)
        if known is not None and known.state is JobState.DONE and known.lease_token == job.lease_token:
            return
        held = self._held(job)
        held.state, held.result = JobState.DONE, result
        self._changed.notify_all()

    def _extend(self, job: Job, seconds: float) -> Job:
        held = self._held(job)
        held.lease_deadline = time.monotonic() + seconds
        return replace(held)

    def _release(self, job: Job) -> Job:
        held = self._held(job)
        held.state, held.attempts = JobState.READY, held.attempts - 1
        self._changed.notify_all()
        return replace(held)

    def _each(self, jobs: Sequence[Job], do: Callable[[Job], Job]) -> list[Job]:
        done, lost = [], []
        for job in jobs:
            try:
                done.append(do(job))
            except NotLeasedError:
                lost.append(job)
        if lost:
            raise NotLeasedError("not leased any more", lost)
        return done
