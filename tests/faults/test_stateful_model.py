"""Random verbs on several handles against a plain-dict model, in larger sizes than the property tests have.

The rules are those of tests/property: enqueueing in all forms, leases and their ends, cancelling, pausing,
purging, requeueing, dropping, compaction, several handles, clean and unclean ends, copies without caches,
reboots, clock steps. Here besides: rotation, single steps of compaction, and kills in the midst of it.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.faults.dying import Killed, killed_at
from tests.faults.stores import leave
from tests.faults.trial import Trial
from tests.property.handles import handles
from tests.property.test_queue_machine import QueueMachine

SLICE = 20
STEPS = 50


class HarshMachine(QueueMachine):
    """What only the log can do, too."""

    def session(self, h: int) -> Any:
        store: Any = self.queue(h)._store
        return store._session

    @rule(h=handles)
    def rotate(self, h: int) -> None:
        self.write_down_what_time_ended(self.queue(h))
        session = self.session(h)
        with session.transaction():
            session.log.seal()

    @rule(h=handles)
    def one_step_of_compaction(self, h: int) -> None:
        """Finished jobs may go with a segment, or not yet: ask the queue which are left."""
        self.write_down_what_time_ended(self.queue(h))
        store: Any = self.queue(h)._store
        store._mover.step(self.session(h).log.active_number - 1)
        self.learn_who_was_forgotten(h)

    @rule(h=handles, call=st.integers(1, 12))
    def killed_in_compaction(self, h: int, call: int) -> None:
        self.write_down_what_time_ended(self.queue(h))
        try:
            with killed_at(call):
                self.queue(h).compact()
        except Killed:
            queue, self.queues[h] = self.queues[h], None
            assert queue is not None
            leave(queue)
        self.learn_who_was_forgotten(h)

    def learn_who_was_forgotten(self, h: int) -> None:
        left = {job.seq for job in self.queue(h).list_jobs()}
        gone = [job for job in self.model.jobs.values() if job.seq not in left]
        for job in gone:
            assert job.state == "done", "compaction dropped a job that is not finished"
            assert job.keep_until is None or job.keep_until <= self.model.now, "forgotten too early"
        self.model.forget(lambda job: job in gone)


def test_random_verbs(trial: Trial) -> None:
    for _, rng in trial.rounds(2, least=500 // SLICE):
        machine = seed(rng.randrange(2**32))(type("Machine", (HarshMachine,), {}))
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            machine,
            settings=settings(
                max_examples=SLICE,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                derandomize=False,
                print_blob=False,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
        trial.count("sequences", SLICE)
