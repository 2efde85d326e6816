"""Segments leave in every order with acks, kills and lost caches: what a full scan says is what the snapshot
says, nothing that waits is lost, and nothing that is finished comes back.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nobroker import Job, NobrokerError, Queue
from nobroker.stores import moving
from tests.faults.dying import Killed, killed_at
from tests.faults.stores import Place, leave, said, scratch
from tests.faults.trial import Trial

STEPS = 10


class Schedule:
    """One queue, random steps, and what must be true of it."""

    def __init__(self, directory: Path, rng: Random) -> None:
        self.place = Place(directory)
        self.rng = rng
        self.queue = self.open()
        self.waiting: dict[int, Any] = {}
        """Payloads of the jobs that must be there, by sequence number."""
        self.held: dict[int, Job] = {}
        self.finished: set[int] = set()
        self.doubtful: set[int] = set()
        """Jobs whose ack was under way at a kill."""
        self.serial = 0
        self.kills = 0

    def open(self) -> Queue:
        return self.place.queue(visibility_timeout=1e6, keep_done=0.0, fsync=self.rng.random() < 0.5)

    # -- steps

    def enqueue(self) -> None:
        payloads = [{"n": self.serial + i} for i in range(self.rng.choice([1, 2, 7, 12]))]
        self.serial += len(payloads)
        named = self.rng.random() < 0.3
        ids = [f"own-{payload['n']}" for payload in payloads] if named else None
        for job in self.queue.enqueue_many(payloads, job_ids=ids):
            self.waiting[job.seq] = job.payload

    def lease(self) -> None:
        for job in self.queue.lease(self.rng.choice([1, 3, 9])):
            assert job.seq in self.waiting, "a finished job came back"
            assert job.seq not in self.held, "leased twice"
            assert job.payload == self.waiting[job.seq]
            self.held[job.seq] = job

    def ack(self) -> None:
        jobs = self.some_held()
        self.doubtful = {job.seq for job in jobs}
        results = self.rng.random() < 0.2
        if results:
            for job in jobs:
                self.queue.ack(job, result=job.seq)
        else:
            self.queue.ack_many(jobs)
        self.settle(self.doubtful)

    def settle(self, done: set[int]) -> None:
        for seq in done:
            del self.held[seq], self.waiting[seq]
            self.finished.add(seq)
        self.doubtful = set()

    def nack(self) -> None:
        self.queue.nack_many(jobs := self.some_held(), error="again", delay=0, dead=False)
        for job in jobs:
            del self.held[job.seq]

    def release(self) -> None:
        self.queue.release_many(jobs := self.some_held())
        for job in jobs:
            del self.held[job.seq]

    def reschedule(self) -> None:
        """Waiting jobs get an entry of their own, and are due at once."""
        waiting = [job for job in self.queue.list_jobs("ready", limit=30) if job.seq not in self.held]
        for job in self.rng.sample(waiting, min(len(waiting), 3)):
            assert self.queue.reschedule(job.id).available_at >= job.available_at

    def give_back(self) -> None:
        """Lease and release, twice: the same jobs come again, in their old place."""
        for _ in range(2):
            self.lease()
            self.queue.release_many(list(self.held.values()))
            self.held.clear()

    def some_held(self) -> list[Job]:
        held = list(self.held.values())
        return self.rng.sample(held, self.rng.randint(0, len(held)))

    def rotate(self) -> None:
        session: Any = self.session
        with session.transaction():
            session.log.seal()

    def step(self) -> None:
        store: Any = self.queue._store
        store._mover.step(self.session.log.active_number - 1)

    def compact(self) -> None:
        self.queue.compact()

    @property
    def session(self) -> Any:
        store: Any = self.queue._store
        return store._session

    def reopen(self) -> None:
        self.queue.close()
        self.queue = self.open()

    def lose_caches(self) -> None:
        """The machine stops, and some caches with it."""
        leave(self.queue)
        kinds = self.rng.sample([".snap", ".idx", ".manifest", ".lock", ".new"], self.rng.randint(1, 5))
        for path in self.place.files():
            if path.suffix in kinds:
                path.unlink()
        self.queue = self.open()

    def kill(self) -> None:
        leave(self.queue)
        self.queue = self.open()

    def killed(self) -> None:
        """A step that does not end."""
        step = self.rng.choice([self.ack, self.step, self.step, self.compact, self.compact, self.rotate])
        try:
            with killed_at(self.rng.randint(1, 24)):
                step()
        except Killed:
            self.kills += 1
            leave(self.queue)
            self.queue = self.open()
            held = {job.seq for job in self.queue.list_jobs("leased")}
            self.settle(self.doubtful - held)

    # -- what must hold

    def check(self) -> None:
        """By the handle, and by a scan of the segments alone."""
        jobs = self.queue.list_jobs()
        live = {job.seq: job.payload for job in jobs if job.state != "done"}
        assert live == self.waiting
        assert {job.seq for job in jobs if job.state == "leased"} == set(self.held)
        assert {job.seq for job in jobs if job.state == "done"} <= self.finished
        for job in self.queue.list_jobs("leased"):
            assert job.lease_token == self.held[job.seq].lease_token
        copy = Place(self.place.directory.with_suffix(".scan"), self.place.clock)
        kept = shutil.ignore_patterns("*.snap", "*.idx", "*.lock", "*.wake", "*.manifest", "*.new", "*.sync")
        shutil.copytree(self.place.directory, copy.directory, ignore=kept)
        try:
            assert copy.answers(read_only=True) == said(self.queue)
        finally:
            shutil.rmtree(copy.directory)

    def run(self) -> None:
        steps = [
            self.enqueue,
            self.lease,
            self.ack,
            self.ack,
            self.nack,
            self.release,
            self.give_back,
            self.reschedule,
            self.rotate,
            self.rotate,
        ]
        steps += [self.step, self.step, self.compact, self.reopen, self.lose_caches, self.kill, self.killed]
        self.enqueue()
        for _ in range(STEPS):
            self.rng.choice(steps)()
        before = said(self.queue)
        self.reopen()
        assert said(self.queue) == before
        self.check()
        assert [found for found in self.queue.check() if found.severity != "note"] == []
        self.queue.close()


def test_orders(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_BREATH_S", 0.0)
    with scratch(tmp_path) as directory:
        for number, rng in trial.rounds(500):
            schedule = Schedule(directory / str(number), rng)
            try:
                schedule.run()
            except NobrokerError as error:
                raise AssertionError(f"{error!r}") from error
            trial.count("steps", STEPS)
            trial.count("kills", schedule.kills)
            shutil.rmtree(schedule.place.directory)
