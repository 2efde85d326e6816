"""What a supervisor decides: no process, and a clock that is a number."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from nobroker import ConfigError
from nobroker.running import settings
from nobroker.running.config import RunConfig, SchedulerConfig, WorkerConfig
from nobroker.running.inside import SWITCHES
from nobroker.running.plans import (
    FIRST_PAUSE_S,
    End,
    How,
    MemoryWatch,
    Restarts,
    needs_supervisor,
    no_room,
    places,
)

from .conftest import Load


def config(*workers: WorkerConfig, **more: Any) -> RunConfig:
    return RunConfig(workers=workers or (WorkerConfig(),), **more)


def test_one_process_needs_no_supervisor() -> None:
    assert not needs_supervisor(RunConfig())
    assert not needs_supervisor(config(WorkerConfig(threads=8, queues=("a", "b*"), batch=5)))


@pytest.mark.parametrize(
    "worker",
    [{"processes": 2}, {"isolation": "process"}, {"memory_recycle_at": 2**30}, {"max_jobs": 5},
     {"cgroup_memory_max": 2**30}],
    ids=str,
)  # fmt: skip
def test_what_is_replaced_or_more_than_one_needs_one(worker: dict[str, Any]) -> None:
    assert needs_supervisor(config(WorkerConfig(**worker)))


def test_every_variable_that_makes_one_needed_is_taken_from_the_children(loaded: Load) -> None:
    found = set()
    for setting in settings.ALL:
        for value in ("2", "1G", "process", "true", "a"):
            try:
                said = loaded(None, {setting.variable: value}).config
            except ConfigError:
                continue  # of another kind
            if needs_supervisor(said):
                found.add(setting.variable)
    assert found == set(SWITCHES)


def test_workers_of_two_kinds_need_one() -> None:
    assert needs_supervisor(config(WorkerConfig(), WorkerConfig()))


def names(config: RunConfig, *, scheduler: bool = True) -> list[str]:
    return [place.name for place in places(config, scheduler=scheduler)]


def test_places() -> None:
    two = config(WorkerConfig(processes=2))
    assert names(two) == ["worker-1", "worker-2", "scheduler"]
    assert names(two, scheduler=False) == ["worker-1", "worker-2"]
    off = config(WorkerConfig(processes=2), scheduler=SchedulerConfig(enabled=False))
    assert names(off) == ["worker-1", "worker-2"]
    both = config(
        WorkerConfig(processes=1, threads=4), WorkerConfig(isolation="process", threads=2, processes=2)
    )
    assert names(both) == ["worker-1.1", *(f"worker-2.{n}" for n in (1, 2, 3, 4)), "scheduler"]
    assert [place.isolated for place in places(both, scheduler=False)] == [False, True, True, True, True]


def test_in_a_run_that_ends_by_itself_the_first_worker_looks_at_the_schedules() -> None:
    found = places(config(WorkerConfig(processes=2), once=True), scheduler=True)
    assert [(place.name, place.scheduler) for place in found] == [("worker-1", True), ("worker-2", False)]


@pytest.mark.parametrize(
    "code, how, words",
    [
        (0, How.DONE, "exit code 0"),
        (75, How.RECYCLED, "exit code 75"),
        (1, How.DIED, "exit code 1"),
        (-signal.SIGKILL, How.DIED, "SIGKILL"),
        (-signal.SIGSEGV, How.DIED, "SIGSEGV"),
        (-200, How.DIED, "signal 200"),
    ],
)
def test_ends_in_words(code: int, how: How, words: str) -> None:
    assert (End(code).how, str(End(code))) == (how, words)


def crash(restarts: Restarts, lived: float = 0.1, place: str = "a", **more: Any) -> float:
    return restarts.pause(place, How.DIED, lived=lived, **{"ready": lived >= 5, "useful": False, **more})


def test_pauses_double_up_to_half_a_minute() -> None:
    restarts = Restarts()
    found = [round(crash(restarts), 3) for _ in range(12)]
    assert found == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
    for _ in range(5000):
        assert crash(restarts) == 30.0


def test_who_lived_a_while_is_replaced_at_once_and_who_lived_long_begins_anew() -> None:
    restarts = Restarts()
    for _ in range(5):
        crash(restarts)
    assert crash(restarts, lived=5.0) == 0.0
    assert crash(restarts) == 3.2, "five seconds of life forgive nothing"
    assert crash(restarts, lived=59.9) == 0.0
    assert crash(restarts, lived=60.0) == 0.0
    assert crash(restarts) == 0.1


@pytest.mark.parametrize("lived", [6.0, 100.0])
def test_who_never_was_ready_failed_however_long_that_took(lived: float) -> None:
    restarts = Restarts()
    found = [crash(restarts, lived=lived, ready=False) for _ in range(10)]
    assert found[:4] == [0.1, 0.2, 0.4, 0.8]
    assert restarts.hopeless


def test_each_place_has_its_own_pauses() -> None:
    restarts = Restarts()
    assert [crash(restarts, place=place) for place in "aab"] == [0.1, 0.2, 0.1]


def test_whom_a_job_took_down_or_who_asked_for_it_is_replaced_at_once() -> None:
    restarts = Restarts()
    for _ in range(20):
        assert crash(restarts, blameless=True) == 0.0
        assert restarts.pause("a", How.RECYCLED, lived=0.1, ready=True, useful=True) == 0.0
    assert not restarts.hopeless


def test_a_replacement_that_wants_to_be_replaced_at_once_makes_no_storm() -> None:
    restarts = Restarts()
    found = [restarts.pause("a", How.RECYCLED, lived=0.1, ready=True, useful=False) for _ in range(10)]
    assert found[:3] == [0.1, 0.2, 0.4]
    assert restarts.hopeless


def test_ten_ends_in_vain_are_enough_whatever_their_places() -> None:
    restarts = Restarts()
    for number in range(9):
        crash(restarts, place="abc"[number % 3])
        assert not restarts.hopeless
    crash(restarts)
    assert restarts.hopeless


@pytest.mark.parametrize("sign", ["a job ended", "a job took it down", "told"])
def test_anything_that_works_gives_hope(sign: str) -> None:
    restarts = Restarts()
    for _ in range(9):
        crash(restarts)
    if sign == "a job ended":
        crash(restarts, useful=True)
    elif sign == "a job took it down":
        crash(restarts, blameless=True)
    else:
        restarts.hope()
    for _ in range(9):
        crash(restarts)
    assert not restarts.hopeless
    crash(restarts)
    assert restarts.hopeless


def test_memory_has_to_be_too_much_several_times_in_a_row() -> None:
    watch = MemoryWatch(100, 3)
    assert [watch.look(n) is None for n in (100, 150, 99, 100, 100)] == [True] * 5
    assert watch.look(2000) == "2,000 bytes of memory in use, memory_recycle_at is 100"
    assert MemoryWatch(100, 1).look(None) is None


def test_a_limit_of_memory_has_to_be_above_what_is_taken_anyway() -> None:
    assert [no_room(limit, 1000) is None for limit in (None, 1001, 1000, 999)] == [True, True, False, False]
    assert no_room(1000, 0) is None, "on systems that do not tell"
    assert str(no_room(1000, 2000)).startswith("memory_recycle_at is 1,000 bytes, and a worker that has run")


def test_one_that_gets_jobs_done_is_back_soon_however_often_it_dies() -> None:
    restarts = Restarts()
    for _ in range(4):
        crash(restarts)
    assert [crash(restarts, useful=True) for _ in range(40)] == [FIRST_PAUSE_S] * 40
    assert crash(restarts) == 2 * FIRST_PAUSE_S
