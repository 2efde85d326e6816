"""Random verbs on several handles of one directory, beside the model: same answers at every step.

`NOBROKER_PROPERTY_EXAMPLES` and `NOBROKER_PROPERTY_STEPS` make it longer than the few seconds it takes else.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from nobroker import Job, JobExistsError, JobNotFoundError, Lanes, NewJob, NotLeasedError

from .handles import LANES, Handles, handles
from .model import shown

EXAMPLES = int(os.environ.get("NOBROKER_PROPERTY_EXAMPLES", "40"))
STEPS = int(os.environ.get("NOBROKER_PROPERTY_STEPS", "40"))

lanes = st.sampled_from(LANES)
list_of_lanes = st.lists(lanes, min_size=1, max_size=2, unique=True)
ordered = st.lists(lanes | st.just("*"), min_size=1, max_size=3, unique=True).map(Lanes)
some_lanes = st.none() | list_of_lanes | ordered
seconds = st.sampled_from([0, 0, 1, 2.5, 10, 60])
priorities = st.sampled_from([0, 0, 0, 1, -1, 7])
attempts = st.sampled_from([None, None, 1, 2, 3])
own_ids = st.sampled_from([f"id-{n}" for n in range(6)])
values = st.none() | st.integers(0, 5) | st.text(max_size=3)
timeouts = st.sampled_from([1, 10, 60])
picks = st.integers(0, 40)


class QueueMachine(Handles):
    """Verbs on up to three handles."""

    @rule(
        h=handles,
        priority=priorities,
        delay=seconds,
        max_attempts=attempts,
        expires=st.sampled_from([None, None, None, 5, 30]),
        lane=lanes,
        own=st.none() | own_ids,
        dated=st.booleans(),
    )
    def enqueue(
        self,
        h: int,
        priority: int,
        delay: float,
        max_attempts: int | None,
        expires: float | None,
        lane: str,
        own: str | None,
        dated: bool,
    ) -> None:
        model = self.write()
        payload = self.payload()
        when: dict[str, Any] = {"run_at": model.wall / 1e6 + delay} if dated else {"delay": delay}
        job = self.queue(h).enqueue(
            payload,
            priority=priority,
            max_attempts=max_attempts,
            expires_in=expires,
            lane=lane,
            job_id=own,
            **when,
        )
        assert job.created == (own is None or own not in model.ids)
        if job.created:
            self.check_new([job])
            model.add(job, own=own is not None, wall=dated, payload=payload)
        else:
            assert shown(job) == model.jobs[model.ids[job.id]].shown(model.now)

    @rule(
        h=handles,
        count=st.sampled_from([1, 2, 5, 70, 130]),
        priority=priorities,
        lane=lanes,
        size=st.sampled_from([0, 10, 400]),
        delays=st.none() | st.lists(seconds, min_size=1, max_size=4),
        with_ids=st.booleans(),
    )
    def enqueue_many(
        self,
        h: int,
        count: int,
        priority: int,
        lane: str,
        size: int,
        delays: list[float] | None,
        with_ids: bool,
    ) -> None:
        model = self.write()
        payloads = [self.payload(size) for _ in range(count)]
        ids = [f"id-{n % 7}" for n in range(count)] if with_ids else None
        times = None if delays is None else [delays[n % len(delays)] for n in range(count)]
        known = set(model.ids)
        jobs = self.queue(h).enqueue_many(payloads, priority=priority, lane=lane, job_ids=ids, delays=times)
        assert len(jobs) == count
        self.check_new(list(jobs))
        for job, payload in zip(jobs, payloads, strict=True):
            assert job.created == (ids is None or job.id not in known)
            known.add(job.id)
            if job.created:
                model.add(job, own=ids is not None, wall=False, payload=payload)

    @rule(
        h=handles,
        kinds=st.lists(st.tuples(priorities, lanes, seconds, st.none() | own_ids), min_size=1, max_size=8),
        times=st.sampled_from([1, 1, 40]),
        all_new=st.booleans(),
    )
    def enqueue_all(self, h: int, kinds: list[Any], times: int, all_new: bool) -> None:
        model = self.write()
        jobs = [
            NewJob(self.payload(), priority=priority, lane=lane, delay=delay, job_id=own)
            for priority, lane, delay, own in kinds
            for _ in range(times)
        ]
        known = set(model.ids)
        own_ones = [job.job_id for job in jobs if job.job_id is not None]
        if all_new and (known.intersection(own_ones) or len(set(own_ones)) < len(own_ones)):
            with pytest.raises(JobExistsError):
                self.queue(h).enqueue_all(jobs, all_new=True)
            return
        made = self.queue(h).enqueue_all(jobs, all_new=all_new)
        self.check_new(made)
        created = [job.seq for job in made if job.created]
        assert created == list(range(created[0], created[0] + len(created))) if created else True
        for new, job in zip(jobs, made, strict=True):
            assert job.created == (new.job_id is None or new.job_id not in known)
            known.add(job.id)
            if job.created:
                model.add(job, own=new.job_id is not None, wall=False, payload=new.payload)

    # -- taking out

    @rule(
        h=handles,
        count=st.sampled_from([1, 1, 2, 3, 50, 300]),
        timeout=st.sampled_from([1, 10, 60]),
        lanes=some_lanes,
    )
    def lease(self, h: int, count: int, timeout: int, lanes: list[str] | Lanes | None) -> None:
        model = self.write()
        expected = model.lease(count, lanes)
        jobs = self.queue(h).lease(count, visibility_timeout=timeout, lanes=lanes)
        assert [job.seq for job in jobs] == [record.seq for record in expected]
        for job, record in zip(jobs, expected, strict=True):
            assert job.lease_token is not None
            assert job.lease_token > self.top_token, "a token was given twice"
            self.top_token = job.lease_token
            model.take(record, job.lease_token, timeout * 1_000_000)
            assert shown(job) == record.shown(model.now)
        self.held = [*self.held, *jobs][-40:]

    def some(self, picked: list[int]) -> list[Job]:
        return list(
            {self.held[n % len(self.held)].id: self.held[n % len(self.held)] for n in picked}.values()
        )

    def apply(self, jobs: list[Job], many: bool, verb: Any, effect: Any, *, for_ack: bool = False) -> None:
        """Do a verb that a holder does, and require its verdict on each job."""
        model = self.write()
        verdicts = [model.verdict(job, for_ack=for_ack) for job in jobs]
        for job, verdict in zip(jobs, verdicts, strict=True):
            if verdict == "held":
                effect(job.seq)
        refused = [job for job, verdict in zip(jobs, verdicts, strict=True) if verdict in ("lost", "missing")]
        if not refused:
            verb(jobs if many else jobs[0])
        elif many:
            with pytest.raises(NotLeasedError) as caught:
                verb(jobs)
            assert caught.value.jobs == refused
        else:
            expected = JobNotFoundError if verdicts[0] == "missing" else NotLeasedError
            with pytest.raises(expected):
                verb(jobs[0])

    @precondition(lambda self: self.held)
    @rule(h=handles, picked=st.lists(picks, min_size=1, max_size=30))
    def ack_many(self, h: int, picked: list[int]) -> None:
        self.apply(
            self.some(picked),
            True,
            self.queue(h).ack_many,
            lambda seq: self.model.ack(seq, None),
            for_ack=True,
        )

    @precondition(lambda self: self.held)
    @rule(h=handles, pick=picks, result=values)
    def ack(self, h: int, pick: int, result: Any) -> None:
        queue = self.queue(h)
        self.apply(
            self.some([pick]),
            False,
            lambda job: queue.ack(job, result=result),
            lambda seq: self.model.ack(seq, result),
            for_ack=True,
        )

    @precondition(lambda self: self.held)
    @rule(
        h=handles,
        picked=st.lists(picks, min_size=1, max_size=10),
        error=st.none() | st.sampled_from(["e", "f"]),
        delay=st.none() | seconds,
        dead=st.sampled_from([None, None, True, False]),
        state=values,
    )
    def nack(
        self, h: int, picked: list[int], error: str | None, delay: float | None, dead: bool | None, state: Any
    ) -> None:
        queue, jobs = self.queue(h), self.some(picked)
        many = len(jobs) > 1

        def effect(seq: int) -> None:
            wait = queue.backoff.delay_for(self.model.jobs[seq].attempts) if delay is None else delay
            self.model.nack(seq, error, round(wait * 1e6), dead, state)

        verb = queue.nack_many if many else queue.nack
        said = {"error": error, "delay": delay, "dead": dead, "state": state}
        self.apply(jobs, many, lambda jobs: verb(jobs, **said), effect)

    @precondition(lambda self: self.held)
    @rule(
        h=handles,
        picked=st.lists(picks, min_size=1, max_size=10),
        timeout=st.sampled_from([1, 30]),
        progress=values,
        state=values,
    )
    def extend(self, h: int, picked: list[int], timeout: int, progress: Any, state: Any) -> None:
        queue, jobs = self.queue(h), self.some(picked)
        many = len(jobs) > 1
        verb = queue.extend_many if many else queue.extend
        self.apply(
            jobs,
            many,
            lambda jobs: verb(jobs, timeout, progress=progress, state=state),
            lambda seq: self.model.extend(seq, timeout * 1_000_000, progress, state),
        )

    @precondition(lambda self: self.held)
    @rule(h=handles, picked=st.lists(picks, min_size=1, max_size=10), delay=seconds, state=values)
    def release(self, h: int, picked: list[int], delay: float, state: Any) -> None:
        queue, jobs = self.queue(h), self.some(picked)
        many = len(jobs) > 1
        verb = queue.release_many if many else queue.release
        self.apply(
            jobs,
            many,
            lambda jobs: verb(jobs, delay=delay, state=state),
            lambda seq: self.model.release(seq, round(delay * 1e6), state),
        )

    # -- managing

    @precondition(lambda self: self.made)
    @rule(h=handles, pick=picks)
    def cancel(self, h: int, pick: int) -> None:
        model = self.write()
        job_id = self.made[pick % len(self.made)].id
        if job_id not in model.ids:
            with pytest.raises(JobNotFoundError):
                self.queue(h).cancel(job_id)
            return
        seq = model.ids[job_id]
        model.cancel(seq)
        assert shown(self.queue(h).cancel(job_id)) == model.jobs[seq].shown(model.now)

    @precondition(lambda self: self.made)
    @rule(h=handles, pick=picks, delay=seconds, dated=st.booleans())
    def reschedule(self, h: int, pick: int, delay: float, dated: bool) -> None:
        model = self.write()
        job_id = self.made[pick % len(self.made)].id
        when: dict[str, Any] = {"run_at": model.wall / 1e6 + delay} if dated else {"delay": delay}
        if job_id not in model.ids:
            with pytest.raises(JobNotFoundError):
                self.queue(h).reschedule(job_id, **when)
            return
        seq = model.ids[job_id]
        model.reschedule(seq, (model.wall if dated else model.now) + round(delay * 1e6), dated)
        assert shown(self.queue(h).reschedule(job_id, **when)) == model.jobs[seq].shown(model.now)

    @rule(h=handles)
    def requeue_dead(self, h: int) -> None:
        model = self.write()
        dead = [job for job in model.jobs.values() if job.state == "dead"]
        for job in dead:
            model.requeue(job.seq)
        assert self.queue(h).requeue_dead() == len(dead)

    @rule(h=handles, pick=picks)
    def drop_one_dead(self, h: int, pick: int) -> None:
        model = self.write()
        dead = [job for job in model.jobs.values() if job.state == "dead"]
        if dead:
            doomed = dead[pick % len(dead)]
            assert self.queue(h).drop_dead(doomed.id) == 1
            model.forget(lambda job: job is doomed)

    @rule(h=handles)
    def drop_dead(self, h: int) -> None:
        model = self.write()
        assert self.queue(h).drop_dead() == model.forget(lambda job: job.state == "dead")

    @rule(h=handles, lane=st.none() | lanes, pause=st.booleans())
    def pause_or_resume(self, h: int, lane: str | None, pause: bool) -> None:
        self.write()
        if pause:
            self.queue(h).pause(lane=lane)
            self.model.paused.add(lane)
        else:
            self.queue(h).resume(lane=lane)
            self.model.paused.discard(lane)

    @rule(h=handles, lane=st.sampled_from([None, *LANES]), really=st.integers(0, 3))
    def purge(self, h: int, lane: str | None, really: int) -> None:
        if really:
            return
        model = self.write()
        expected = model.forget(lambda job: lane is None or job.lane == lane)
        assert self.queue(h).purge(lane=lane) == expected

    @rule(h=handles)
    def compact(self, h: int) -> None:
        model = self.write()
        model.compact()
        result = self.queue(h).compact()
        assert result.jobs_kept == len(model.jobs)


QueueMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestQueueMachine = QueueMachine.TestCase
