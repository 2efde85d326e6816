"""What is served, and in which order; and the one queue that everything may be pinned to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, BaseJob, ConfigError, Lanes, Queue, after, chain
from nobroker.app.queue_lists import OWN, lanes_of
from nobroker.app.serving import Service
from nobroker.stores.leasing import Leaser


class World:
    """An application whose jobs note that they ran."""

    def __init__(self, path: Path) -> None:
        self.app = App(path, fsync=False)
        self.ran: list[str] = []
        self.more: Callable[[str], None] = lambda name: None

        @self.app.job
        def note(name: str) -> None:
            self.ran.append(name)
            self.more(name)

        self.note = note

    def put(self, words: str) -> None:
        """Jobs by a text such as ``a0 b0 a1+5``: the letters are the queue, ``+5`` the priority."""
        for word in words.split():
            name, _, priority = word.partition("+")
            queue = name.rstrip("0123456789")
            self.note.set(queue=queue, priority=int(priority or 0)).perform_later(name)

    def run(self, *queues: str, **options: Any) -> str:
        """What runs when only these queues are served, in its order."""
        self.app.run(queues=queues or None, once=True, handle_signals=False, poll_interval=0.01, **options)
        ran, self.ran[:] = " ".join(self.ran), []
        return ran

    def queues(self) -> list[str]:
        return [job.lane for job in self.app.queue.list_jobs() if job.lane not in OWN]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    made = World(tmp_path / "jobs")
    yield made
    assert made.app.queue.check() == []
    made.app.close()


WORDS = "c0+9 a0 b0+1 a1+2 c1 b1 a2"


def test_orders(world: World) -> None:
    world.put(WORDS)
    assert world.run("a", "b", "c") == "a1 a0 a2 b0 b1 c0 c1"
    world.put(WORDS)
    assert world.run("b", "*", order="ordered") == "b0 b1 c0 a1 a0 c1 a2"
    world.put(WORDS)
    assert world.run("a", "b", "c", order="priority") == "c0 a1 b0 a0 c1 b1 a2"
    world.put(WORDS)
    assert world.run("b", "a", "c", order="fair") == "b0 a1 c0 b1 a0 c1 a2"
    world.put(WORDS)
    assert world.run() == "c0 a1 b0 a0 c1 b1 a2", "all queues are one by priority"


def test_batches_respect_the_order(world: World) -> None:
    world.put(WORDS)
    assert world.run("a", "b*", "c", batch=3) == "a1 a0 a2 b0 b1 c0 c1"


def test_a_job_that_comes_while_others_run_has_its_turn_next(world: World) -> None:
    world.more = lambda name: world.put("urgent0") if name == "a0" else None
    world.put("a0 a1 a2")
    assert world.run("urgent", "*") == "a0 urgent0 a1 a2"


def test_queues_that_come_while_it_runs(world: World) -> None:
    world.more = lambda name: world.put({"a0": "beta_new0 other0", "beta_new0": "beta1"}.get(name, ""))
    world.put("a0")
    assert world.run("a", "beta*") == "a0 beta_new0 beta1"


def test_raw_jobs_and_records_of_the_library_are_no_jobs_of_an_application(world: World) -> None:
    world.app.queue.enqueue("raw")
    for lane in OWN:
        world.app.queue.enqueue({"odd": lane}, lane=lane)
    world.put("a0")
    for queues in ([], ["*"], ["nobroker*", "*"], ["a", "n*"]):
        world.put("a1")
        assert "a1" in world.run(*queues)
    assert [job.state for job in world.app.queue.list_jobs() if job.lane in OWN] == ["ready"] * 4


@pytest.mark.parametrize("queues", [["nobroker.watch"], [""], ["a**"], ["a", "a"], [5], "a**"])
def test_what_is_no_list_of_queues(world: World, queues: Any) -> None:
    with pytest.raises(ConfigError, match=r"^queues: "):
        world.app.run(queues=queues, once=True)
    with pytest.raises((TypeError, ValueError)):
        lanes_of(queues)


def test_a_paused_queue_does_not_hold_up_those_behind_it(world: World) -> None:
    world.put("a0 b0")
    world.app.queue.pause(lane="a")
    assert world.run("a", "b") == "b0"


def test_an_idle_worker_sleeps_while_jobs_wait_that_are_not_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    sure = Leaser._surely_nothing

    def counted(self: Leaser, lanes: Any) -> bool:
        nonlocal looks
        looks += 1
        return sure(self, lanes)

    monkeypatch.setattr(Leaser, "_surely_nothing", counted)
    with Queue(tmp_path, fsync=False) as queue, Queue(tmp_path, fsync=False) as other:
        wanted = {"wait": 1.5, "lanes": Lanes(["*"], without=[""])}
        waiting = threading.Thread(target=queue.lease, kwargs=wanted)
        waiting.start()
        log: Any = other._store._session.log  # type: ignore[attr-defined]
        while not log.has_waiters():
            waiting.join(0.01)
        other.enqueue("raw")
        waiting.join()
    assert looks <= 10, "it passes the word on a few times, and then sleeps"


# -- forced


@pytest.fixture
def forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOBROKER_FORCE_QUEUE", "branch/*x")
    made = World(tmp_path / "jobs")
    yield made
    assert set(made.queues()) == {"branch/_x"}
    assert made.app.queue.check() == []
    made.app.close()


def test_every_call_goes_through_the_forced_queue(forced: World) -> None:
    note = forced.note

    @forced.app.register
    class Report(BaseJob):
        @staticmethod
        def queue(number: int) -> str:
            return f"reports{number}"

        def perform(self, number: int) -> None:
            assert self.queue_name == "branch/_x"
            forced.ran.append(f"report{number}")

    note.perform_later("plain")
    note.set(queue="mails").perform_later("set")
    Report.perform_later(7)
    forced.app.perform_all_later([note.build("all"), note.set(queue="x").build("all2"), Report.build(8)])
    assert forced.run().split() == ["plain", "set", "report7", "all", "all2", "report8"]


def test_batches_chains_and_recurring_tasks_go_through_it(forced: World) -> None:
    note = forced.note.set(queue="mails")
    with forced.app.batch(on_success=note.build("success"), on_finish=note.build("finish")):
        note.perform_later("member")
    first, *_ = chain(note.build("one"), note.build("two"))
    after(first, run=note.build("three"))
    forced.app.recurring("every 15 minutes", forced.note, name="often", args=["tick"], queue="nightly")
    forced.app.run_recurring_now("often")
    assert {task.queue for task in forced.app.recurring_tasks()} == {"branch/_x"}
    assert sorted(forced.run().split()) == ["finish", "member", "one", "success", "three", "tick", "two"]


def test_nothing_else_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = World(tmp_path / "jobs")
    plain.put("mails0 branch0")
    plain.app.close()
    monkeypatch.setenv("NOBROKER_FORCE_QUEUE", "branch")
    pinned = World(tmp_path / "jobs")
    assert pinned.run("mails", "*") == "branch0"
    assert Service(pinned.app, queues=["*"]).worker.lanes == Lanes(["branch"], without=OWN)
    pinned.app.close()
    monkeypatch.delenv("NOBROKER_FORCE_QUEUE")
    plain = World(tmp_path / "jobs")
    assert plain.run() == "mails0"
    plain.app.close()


def test_a_queue_that_can_not_be_forced_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOBROKER_FORCE_QUEUE", "*")
    with pytest.raises(ConfigError, match="NOBROKER_FORCE_QUEUE: nothing of"):
        App(tmp_path / "jobs")
    assert not (tmp_path / "jobs").exists()
