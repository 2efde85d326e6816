"""As `test_queue_machine`, with jobs that bring limits."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from nobroker import Limit, Rate

from .handles import handles
from .model import shown
from .test_queue_machine import EXAMPLES, STEPS, QueueMachine, lanes, own_ids, priorities, seconds

keys = st.sampled_from(["k", "k", "l", "m"])
limits = st.lists(
    st.builds(Limit, keys, st.sampled_from([1, 1, 2, 3]), st.sampled_from(["wait", "wait", "discard"])),
    max_size=3,
    unique_by=lambda limit: limit.key,
)
rates = st.lists(
    st.builds(
        Rate,
        keys,
        st.sampled_from([1, 2, 3]),
        st.sampled_from([2, 20.5, 200]),
        st.sampled_from(["reschedule", "reschedule", "discard"]),
    ),
    max_size=2,
    unique_by=lambda rate: rate.key,
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
        rates=st.just([]) | rates,
        exclusive=st.sampled_from([None] * 7 + ["app"]),
        fair=st.sampled_from([None, None, ("A", 1), ("B", 1), ("B", 3), ("C", 2)]),
    )
    def enqueue_limited(
        self,
        h: int,
        count: int,
        priority: int,
        delay: float,
        lane: str,
        own: str | None,
        limits: list[Limit],
        rates: list[Rate],
        exclusive: str | None,
        fair: tuple[str, int] | None,
    ) -> None:
        options = {"priority": priority, "delay": delay, "lane": lane, "exclusive": exclusive}
        self.enter(h, count, own, limits, rates, fair, **options)

    @rule(
        h=handles,
        lane=lanes,
        priority=priorities,
        limit=st.sampled_from([1, 2]),
        exclusive=st.sampled_from([None, "app"]),
    )
    def enqueue_beside_those_that_run_alone(
        self, h: int, lane: str, priority: int, limit: int, exclusive: str | None
    ) -> None:
        """They share a key, and nothing else holds them back."""
        options = {"priority": priority, "lane": lane, "exclusive": exclusive}
        self.enter(h, 1, None, [Limit("k", limit)], [], None, **options)

    def enter(
        self,
        h: int,
        count: int,
        own: str | None,
        limits: list[Limit],
        rates: list[Rate],
        fair: tuple[str, int] | None,
        **options: Any,
    ) -> None:
        model = self.write()
        rooms = [
            model.may_enter(limit.key, (limit.limit,)) for limit in limits if limit.on_conflict == "discard"
        ]
        rooms += [
            model.may_enter(f"/{rate.key}", (rate.max, round(rate.duration * 1e6)))
            for rate in rates
            if rate.on_throttle == "discard"
        ]
        room = max(0, min(rooms, default=count))
        options |= {"limits": limits, "rates": rates}
        if fair is not None:
            options |= {"fair_key": fair[0], "fair_weight": fair[1]}
        if own is not None:
            payload = self.payload()
            job = self.queue(h).enqueue(payload, job_id=own, **options)
            assert job.created == (own not in model.ids and room > 0)
            jobs, payloads = [job], [payload]
            room = int(job.created)
        else:
            payloads = [self.payload() for _ in range(count)]
            jobs = list(self.queue(h).enqueue_many(payloads, **options))
            assert [job.created for job in jobs] == [index < room for index in range(count)]
        self.check_new(jobs[:room])
        for job, payload in zip(jobs[:room], payloads, strict=False):
            model.add(job, own=own is not None, wall=False, payload=payload)

    @rule(h=handles, own=own_ids, wait=st.sampled_from([1, 10]), longest=st.sampled_from([None, 15, 60]))
    def debounce(self, h: int, own: str, wait: int, longest: int | None) -> None:
        model = self.write()
        payload = self.payload()
        job = self.queue(h).enqueue(payload, job_id=own, debounce=wait, debounce_max=longest)
        known = model.jobs.get(model.ids.get(own, 0))
        if known is not None and known.state == "done":
            model.forget(lambda job: job is known)
            known = None
        assert job.created == (known is None)
        if known is None:
            self.check_new([job])
            model.add(job, own=True, wall=False, payload=payload)
            return
        if known.state == "ready":
            known.payload = payload
            if not known.attempts:
                known.avail = model.now + wait * 1_000_000
                if longest is not None:
                    known.avail = min(known.avail, known.enqueued + longest * 1_000_000)
                known.wall = False
        assert shown(job) == known.shown(model.now)

    @rule(h=handles, lane=lanes, limit=st.sampled_from([None, 1, 2, 5]))
    def lane_limit(self, h: int, lane: str, limit: int | None) -> None:
        self.write()
        self.queue(h).lane_limit(lane, limit)
        self.model.lane_limits.pop(lane, None)
        if limit is not None:
            self.model.lane_limits[lane] = limit
        assert self.queue(h).lane_limits == self.model.lane_limits


LimitsMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLimitsMachine = LimitsMachine.TestCase
