"""As `test_queue_machine`, with jobs that bring limits."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from nobroker import Limit

from .handles import handles
from .test_queue_machine import EXAMPLES, STEPS, QueueMachine, lanes, own_ids, priorities, seconds

keys = st.sampled_from(["k", "k", "l", "m"])
limits = st.lists(
    st.builds(Limit, keys, st.sampled_from([1, 1, 2, 3]), st.sampled_from(["wait", "wait", "discard"])),
    min_size=1,
    max_size=3,
    unique_by=lambda limit: limit.key,
)


class LimitsMachine(QueueMachine):
    """Verbs on up to three handles, and limits."""

    @rule(
        h=handles,
        count=st.sampled_from([1, 1, 1, 3, 70]),
        priority=priorities,
        delay=seconds,
        lane=lanes,
        own=st.none() | own_ids,
        limits=limits,
    )
    def enqueue_limited(
        self, h: int, count: int, priority: int, delay: float, lane: str, own: str | None, limits: list[Limit]
    ) -> None:
        model = self.write()
        rooms = [
            limit.limit - model.live(limit.key, "ready", "leased")
            for limit in limits
            if limit.on_conflict == "discard"
        ]
        room = max(0, min(rooms, default=count))
        if own is not None:
            payload = self.payload()
            job = self.queue(h).enqueue(
                payload, priority=priority, delay=delay, lane=lane, job_id=own, limits=limits
            )
            assert job.created == (own not in model.ids and room > 0)
            jobs, payloads = [job], [payload]
            room = int(job.created)
        else:
            payloads = [self.payload() for _ in range(count)]
            jobs = list(
                self.queue(h).enqueue_many(payloads, priority=priority, delay=delay, lane=lane, limits=limits)
            )
            assert [job.created for job in jobs] == [index < room for index in range(count)]
        self.check_new(jobs[:room])
        for job, payload in zip(jobs[:room], payloads, strict=False):
            model.add(job, own=own is not None, wall=False, payload=payload)


LimitsMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLimitsMachine = LimitsMachine.TestCase
