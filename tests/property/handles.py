"""Handles opened, closed, abandoned and copied under the feet of random verbs; clocks; what must hold."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nobroker import BackoffPolicy, Job, JobNotFoundError, Queue
from nobroker.clock import ManualClock

from .model import KEEP_DONE_US, Model, Record, shown

LANES = ("", "a", "b")
handles = st.integers(0, 2)
NEVER_USED_LANE = "nobody"


class Handles(RuleBasedStateMachine):
    """Up to three handles on one directory: closes, abandoned handles, copies without caches, clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="nobroker-property-"))
        self.dir = self.root / "0"
        self.clock = ManualClock()
        self.model = Model(self.clock.wall_us())
        self.queues: list[Queue | None] = [None, None, None]
        self.abandoned: list[Queue] = []
        self.held: list[Job] = []
        self.made: list[Job] = []
        self.serial = 0
        self.top_seq = self.top_token = 0
        self.copies = 0
        self.turn = 0

    # -- handles

    def open(self) -> Queue:
        return Queue(
            self.dir,
            fsync=False,
            clock=self.clock,
            segment_size=65536,
            keep_done=KEEP_DONE_US / 1e6,
            max_attempts=2,
            backoff=BackoffPolicy(base=2.0, factor=2.0, jitter=0.0),
        )

    def queue(self, number: int) -> Queue:
        found = self.queues[number]
        if found is None:
            found = self.queues[number] = self.open()
        return found

    def teardown(self) -> None:
        try:
            if any(self.queues):
                queue = next(queue for queue in self.queues if queue is not None)
                assert [found for found in queue.check() if found.severity != "note"] == []
        finally:
            self.close_all()
            shutil.rmtree(self.root)

    def close_all(self) -> None:
        for queue in [*self.queues, *self.abandoned]:
            if queue is not None:
                queue.close()
        self.queues = [None, None, None]
        self.abandoned = []

    def write(self) -> Model:
        """Before every verb that writes."""
        self.model.settle()
        return self.model

    def payload(self, size: int = 0) -> dict[str, Any]:
        self.serial += 1
        return {"n": self.serial, "pad": "x" * size}

    def write_down_what_time_ended(self, queue: Queue) -> None:
        self.model.settle()
        queue.lease(1, lanes=[NEVER_USED_LANE])

    def check_new(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.created:
                assert job.seq > self.top_seq, "a sequence number was given twice"
                self.top_seq = job.seq
        self.made = [*self.made, *jobs][-40:]

    # -- time

    @rule(by=st.sampled_from([0.5, 1, 2.5, 11, 61, 101]))
    def advance(self, by: float) -> None:
        self.clock.advance(by)
        self.model.now += round(by * 1e6)
        self.model.wall += round(by * 1e6)

    @rule(by=st.sampled_from([-3600, -5, 5, 3600]))
    def step_wall(self, by: int) -> None:
        if by < 0 and any(job.wall and job.state == "ready" for job in self.model.jobs.values()):
            return  # whether a job with a date was due before depends on who looked when
        self.clock.step_wall(by)
        self.model.wall += by * 1_000_000

    # -- ends and beginnings

    @rule(h=handles)
    def close_cleanly(self, h: int) -> None:
        queue, self.queues[h] = self.queues[h], None
        if queue is not None:
            queue.close()

    @rule()
    def close_all_cleanly(self) -> None:
        self.close_all()

    @rule(h=handles)
    def abandon(self, h: int) -> None:
        """As a killed process: no close."""
        queue, self.queues[h] = self.queues[h], None
        if queue is not None:
            self.abandoned.append(queue)

    @rule(closed=st.booleans(), lost=st.sets(st.sampled_from([".snap", ".idx", ".lock", ".manifest"])))
    def go_on_with_a_copy(self, closed: bool, lost: set[str]) -> None:
        """As after a restore from a copy of the directory, some caches gone."""
        if self.copies == 4 or not self.dir.exists():
            return
        self.copies += 1
        target = self.root / str(self.copies)
        if closed:
            self.close_all()
        ignored = (*lost, ".wake", ".sync")
        shutil.copytree(self.dir, target, ignore=lambda _, names: [n for n in names if n.endswith(ignored)])
        self.close_all()
        self.dir = target

    @rule()
    def reboot(self) -> None:
        """A new boot, by a wall clock that is not behind."""
        if self.model.wall < self.model.now:
            return
        self.close_all()
        self.model.settle()
        self.clock.reboot()
        self.model.reboot(self.clock.wall_us())
        self.queue(0).lease(1, lanes=[NEVER_USED_LANE])

    # -- what must hold

    @initialize()
    def start(self) -> None:
        self.queue(0)

    @invariant()
    def same_answers(self) -> None:
        self.turn += 1
        queue = self.queue(self.turn % 3)
        if self.turn % 2:
            self.write_down_what_time_ended(queue)
        view = self.model.seen()
        expected = [job.shown(view.now) for job in sorted(view.jobs.values(), key=lambda job: job.seq)]
        found = [shown(job) for job in queue.list_jobs()]
        if found != expected:
            note(str([pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]][:1]))
        assert found == expected
        due = [record.seq for record in view.order()]
        assert [job.seq for job in queue.list_jobs("ready")][: len(due)] == due
        for lane in (None, "", "a"):
            stats = queue.stats(lane=lane)
            assert (stats.ready, stats.delayed, stats.leased, stats.done, stats.dead) == view.counts(lane)
        some = range(self.top_seq // 3, self.top_seq - self.top_seq // 4)
        stats = queue.stats(seqs=some)
        assert (stats.ready, stats.delayed, stats.leased, stats.done, stats.dead) == view.counts(seqs=some)
        self._oldest(queue, view.order(), view)
        for job in self.made[-2:]:
            if job.id in view.ids:
                assert queue.get(job.id).seq == view.ids[job.id]
            else:
                with pytest.raises(JobNotFoundError):
                    queue.get(job.id)

    def _oldest(self, queue: Queue, due: list[Record], view: Model) -> None:
        age = queue.stats().oldest_ready_age
        if not due:
            assert age is None
        else:
            assert age == max(0, view.now - min(job.avail for job in due)) / 1e6
