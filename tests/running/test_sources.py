"""Who is heard: arguments, environment, file, defaults."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nobroker import ConfigError
from nobroker.running.config import (
    ISOLATIONS,
    ORDERS,
    START_METHODS,
    RunConfig,
    SchedulerConfig,
    WorkerConfig,
)
from nobroker.running.kinds import Text
from nobroker.running.settings import ALL, SCHEDULER, WORKER, can_fork
from nobroker.running.sources import load
from nobroker.running.written import as_document, as_yaml

from .conftest import Load

Problems = Callable[..., list[str]]

SAID: dict[str, tuple[str, Any, str, Any]] = {
    "queues": ("a,b*", ("a", "b*"), "c", ("c",)),
    "order": ("fair", "fair", "priority", "priority"),
    "threads": ("2", 2, "3", 3),
    "processes": ("2", 2, "3", 3),
    "batch": ("2", 2, "3", 3),
    "polling_interval": ("2s", 2.0, "3", 3.0),
    "isolation": ("process", "process", "thread", "thread"),
    "memory_recycle_at": ("2M", 2 * 2**20, "none", None),
    "memory_confirmations": ("2", 2, "4", 4),
    "memory_interval": ("2", 2.0, "1m", 60.0),
    "max_jobs": ("2", 2, "none", None),
    "cgroup_memory_max": ("2MiB", 2 * 2**20, "3145728", 3 * 2**20),
    "scheduler": ("off", False, "1", True),
    "recurring": ("a.yml", "a.yml", "b.yml", "b.yml"),
    "start_method": ("spawn", "spawn", "spawn", "spawn"),
    "shutdown_timeout": ("0", 0.0, "1m", 60.0),
    "heartbeat_interval": ("2.5", 2.5, "3", 3.0),
    "quiet_then_exit": ("TRUE", True, "no", False),
}
"""By argument: what a variable says, what that is, and the same for an argument."""


def value_of(config: Any, argument: str) -> Any:
    if argument in [setting.argument for setting in WORKER]:
        return getattr(config.workers[0], argument)
    if argument in [setting.argument for setting in SCHEDULER]:
        return getattr(config.scheduler, "enabled" if argument == "scheduler" else argument)
    return getattr(config, argument)


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.argument)
def test_a_variable_and_an_argument_for_each_setting(loaded: Load, setting: Any) -> None:
    name = setting.argument
    in_variable, value, in_argument, better = SAID[name]
    assert setting.variable == f"NOBROKER_{name.upper()}"
    assert setting.option == f"--{name.replace('_', '-')}"
    file = f"workers: [{{threads: 5}}]\n{'shutdown_timeout: 9' if name == 'shutdown_timeout' else ''}"
    found = loaded(file, {setting.variable: in_variable})
    assert value_of(found.config, name) == value
    assert setting.variable in found.origins.values()
    found = loaded(None, {setting.variable: in_variable}, **{name: Text(in_argument)})
    assert value_of(found.config, name) == better
    assert setting.variable not in found.origins.values()
    assert "argument" in found.origins.values()


def test_values_of_python_as_arguments(loaded: Load) -> None:
    found = loaded(
        queues=["a", "b"],
        threads=2,
        shutdown_timeout=timedelta(seconds=90),
        recurring=Path("a.yml"),
        scheduler=False,
        max_jobs=None,
        once=True,
    )
    assert found.config == RunConfig(
        workers=(WorkerConfig(queues=("a", "b"), threads=2),),
        scheduler=SchedulerConfig(enabled=False, recurring="a.yml"),
        start_method=found.config.start_method,
        shutdown_timeout=90.0,
        once=True,
    )
    assert found.origins["once"] == "argument"
    assert found.origins["workers[0].max_jobs"] == "default"


def test_nothing_said(loaded: Load) -> None:
    found = loaded()
    assert found.config == RunConfig(start_method="fork" if can_fork() else "spawn")
    assert set(found.origins.values()) == {"default"}
    assert (found.file, found.environment, found.forced, found.warnings) == (None, "development", None, ())


def test_none_as_a_word(loaded: Load) -> None:
    found = loaded(
        None, {"NOBROKER_MAX_JOBS": "None"}, memory_recycle_at=Text("none"), recurring=Text("none")
    )
    assert found.config.workers == (WorkerConfig(),)
    assert found.origins["workers[0].max_jobs"] == "NOBROKER_MAX_JOBS"
    assert found.config.scheduler.recurring == "none", "there may be a file of this name"


def test_what_is_empty_says_nothing(loaded: Load) -> None:
    found = loaded("default: {shutdown_timeout: 7}", {"NOBROKER_THREADS": "", "NOBROKER_ENV": ""})
    assert (found.config.workers[0].threads, found.config.shutdown_timeout) == (1, 7.0)


def test_what_is_wrong_is_told_by_its_source(problems: Problems) -> None:
    assert problems(
        None, {"NOBROKER_THREADS": "x", "NOBROKER_QUEUES": "a**", "NOBROKER_QUIET_THEN_EXIT": "2"}
    ) == [
        "NOBROKER_QUEUES: 'a**': an asterisk stands at the end of a name only",
        "NOBROKER_THREADS: it is a whole number from 1 to 1,024, not 'x'",
        "NOBROKER_QUIET_THEN_EXIT: it is true or false, not '2'",
    ]
    assert problems(None, threads="8", order="x", batch=True) == [
        "order: it is one of ordered, priority, fair, not 'x'",
        "threads: it is a whole number from 1 to 1,024, not '8'",
        "batch: it is a whole number from 1 to 10,000, not true",
    ]


def test_an_argument_that_there_is_not(loaded: Load) -> None:
    with pytest.raises(TypeError, match="run has no option 'thread'; did you mean threads"):
        loaded(thread=1)


@pytest.mark.skipif(can_fork(), reason="there are forks here")
def test_no_forks(problems: Problems) -> None:
    assert problems("start_method: fork")[0].endswith("processes are not forked on this system: spawn")


def test_no_forks_as_on_other_systems(
    problems: Problems, loaded: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nobroker.running.settings.sys.platform", "darwin")
    assert loaded().config.start_method == "spawn"
    assert problems(None, {"NOBROKER_START_METHOD": "fork"}) == [
        "NOBROKER_START_METHOD: processes are not forked on this system: spawn"
    ]


# -- several workers

TWO = "workers:\n- {queues: fast, threads: 4, max_jobs: 9}\n- {queues: slow, isolation: process}\n"


def test_a_setting_of_workers_is_laid_over_each(loaded: Load) -> None:
    found = loaded(TWO, {"NOBROKER_BATCH": "5"}, threads=2)
    assert found.config.workers == (
        WorkerConfig(queues=("fast",), threads=2, max_jobs=9, batch=5),
        WorkerConfig(queues=("slow",), threads=2, isolation="process", batch=5),
    )


@pytest.mark.parametrize("variables, arguments", [({}, {"queues": "x"}), ({"NOBROKER_QUEUES": "x"}, {})])
def test_queues_put_one_worker_in_the_place_of_several(
    loaded: Load, variables: dict[str, str], arguments: dict[str, str]
) -> None:
    found = loaded(TWO, variables, **arguments, threads=2)
    assert found.config.workers == (WorkerConfig(queues=("x",), threads=2),)


def test_queues_of_the_only_worker(loaded: Load) -> None:
    found = loaded("workers: [{queues: fast, threads: 4}]", queues="x")
    assert found.config.workers == (WorkerConfig(queues=("x",), threads=4),)


# -- other variables


def test_variables_that_nobody_reads(loaded: Load) -> None:
    found = loaded(
        None, {"NOBROKER_THREAD": "1", "NOBROKER_SHUTDOWN_TIMOUT": "x", "NOBROKER_COLOUR": "red", "PATH": ""}
    )
    assert found.warnings == (
        "nobody reads NOBROKER_SHUTDOWN_TIMOUT; did you mean NOBROKER_SHUTDOWN_TIMEOUT?",
        "nobody reads NOBROKER_THREAD; did you mean NOBROKER_THREADS?",
    )


@pytest.mark.parametrize("name", ["DIR", "ENV", "FORCE_QUEUE", "TRACEBACK", "VENV", "INSIDE", "SPAWNED"])
def test_variables_that_somebody_reads(loaded: Load, name: str) -> None:
    assert loaded(None, {f"NOBROKER_{name}": "x"}).warnings == ()


@pytest.mark.parametrize(
    "said, name",
    [
        ("branch_x", "branch_x"),
        (" feature/x ", "feature/x"),
        ("a*b,c\td", "a_b_c_d"),
        ("*, *x", "__ _x"),
        ("ä" * 100, "ä" * 100),
    ],
)
def test_a_forced_queue(loaded: Load, said: str, name: str) -> None:
    found = loaded(TWO, {"NOBROKER_FORCE_QUEUE": said, "NOBROKER_QUEUES": "y"}, queues="x")
    assert found.forced == name
    assert [worker.queues for worker in found.config.workers] == [(name,)]
    assert found.origins["workers[0].queues"] == "NOBROKER_FORCE_QUEUE"
    found = loaded(None, {"NOBROKER_FORCE_QUEUE": said})
    assert [worker.queues for worker in found.config.workers] == [(name,), (name,)]


@pytest.mark.parametrize(
    "said", ["", " ", "*", ",*,", "\n", "nobroker.watch", "nobroker.recurring", "x" * 101]
)
def test_what_can_not_be_forced(problems: Problems, said: str) -> None:
    (line,) = problems(None, {"NOBROKER_FORCE_QUEUE": said})
    assert line.startswith("NOBROKER_FORCE_QUEUE: ")


# -- what is written loads back to the same

NAMES = st.text(st.characters(exclude_characters=",*"), min_size=1, max_size=20).filter(
    lambda name: name.isprintable() and name.strip() == name and not name.startswith("nobroker.")
)
QUEUES = st.lists(st.builds(lambda name, more: name + more, NAMES, st.sampled_from(["", "*"])) | st.just("*"),
                  min_size=1, max_size=4, unique=True)  # fmt: skip
SECONDS = st.floats(0.001, 366 * 86400.0) | st.integers(1, 1000).map(float)
SIZES = st.none() | st.integers(2**20, 2**60)
WORKERS = st.builds(
    WorkerConfig,
    queues=QUEUES.map(tuple),
    order=st.sampled_from(ORDERS),
    threads=st.integers(1, 1024),
    processes=st.integers(1, 1024),
    batch=st.integers(1, 10_000),
    polling_interval=SECONDS,
    isolation=st.sampled_from(ISOLATIONS),
    memory_recycle_at=SIZES,
    memory_confirmations=st.integers(1, 1000),
    memory_interval=SECONDS,
    max_jobs=st.none() | st.integers(1, 2**53),
    cgroup_memory_max=SIZES,
)
CONFIGS = st.builds(
    RunConfig,
    workers=st.lists(WORKERS, min_size=1, max_size=3).map(tuple),
    scheduler=st.builds(SchedulerConfig, enabled=st.booleans(), recurring=st.none() | NAMES),
    start_method=st.sampled_from(START_METHODS if can_fork() else ("spawn",)),
    shutdown_timeout=SECONDS | st.just(0.0),
    heartbeat_interval=SECONDS,
    quiet_then_exit=st.booleans(),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=CONFIGS)
def test_what_is_written_loads_back_to_the_same(tmp_path: Path, config: RunConfig) -> None:
    for text in (
        as_yaml(config),
        *[json.dumps(as_document(config), ensure_ascii=False, indent=indent) for indent in (None, 2)],
    ):
        (tmp_path / "queue.yml").write_text(text, encoding="utf-8")
        found = load(tmp_path, environment={})
        assert found.config == config
        del found.origins["once"]
        assert all("queue.yml, line " in origin for origin in found.origins.values())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("workers:schdul\n -[]{}&*a!$\"'#|>,0123456789.<tq"), max_size=80))
def test_any_text_loads_or_is_refused_in_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "queue.yml").write_text(text, encoding="utf-8")
    said: tuple[object, ...] = ()
    try:
        load(tmp_path, environment={})
    except ConfigError as error:
        said = error.problems
        assert said
    assert all(str(one).startswith(str(tmp_path)) and "\n" not in str(one) for one in said)
