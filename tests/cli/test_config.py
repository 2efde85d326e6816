"""`nobroker config`: what is in force, and who says so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click import Group

from nobroker.cli.main import build
from nobroker.running.settings import ALL
from nobroker.running.sources import load

from .conftest import CommandLine

Here = Callable[[str], None]

FILE = """
workers:
- queues: [urgent, "mail*"]
  threads: 4
  memory_recycle_at: 512M
- queues: cash$$
  max_jobs: 1000
shutdown_timeout: 1h
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Type commands in a directory with this ``queue.yml``."""
    for name in [name for name in os.environ if name.startswith("NOBROKER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return lambda text: (tmp_path / "queue.yml").write_text(text) and None


def test_values_and_where_they_are_from(
    nobroker: CommandLine, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(FILE)
    monkeypatch.setenv("NOBROKER_BATCH", "5")
    ran = nobroker("config", "--shutdown-timeout", "90s", "--no-scheduler")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("file         queue.yml\nenvironment  development\nKEY\tVALUE\tFROM\n")
    for line in (
        "workers[0].queues\turgent, mail*\tqueue.yml, line 3",
        "workers[0].threads\t4\tqueue.yml, line 4",
        "workers[0].memory_recycle_at\t512.0 MiB\tqueue.yml, line 5",
        "workers[0].batch\t5\tNOBROKER_BATCH",
        "workers[1].queues\tcash$\tqueue.yml, line 6",
        "workers[1].order\tordered\tdefault",
        "workers[1].max_jobs\t1000\tqueue.yml, line 7",
        "workers[1].cgroup_memory_max\tnone\tdefault",
        "scheduler.enabled\tfalse\t--scheduler",
        "shutdown_timeout\t90s\t--shutdown-timeout",
    ):
        assert f"{line}\n" in ran.out
    assert "once" not in ran.out
    assert not nobroker.dir.exists()


def test_what_is_printed_loads_back(nobroker: CommandLine, here: Here, tmp_path: Path) -> None:
    here(FILE)
    first = load(tmp_path, environment={}).config
    printed = nobroker("config", "--yaml").out
    document = nobroker.json("config")
    assert document["file"] == "queue.yml"
    assert document["environment"] == "development"
    assert document["origins"]["workers[0].threads"] == "queue.yml, line 4"
    for text in (printed, json.dumps(document["config"])):
        here(text)
        assert load(tmp_path, environment={}).config == first
        assert nobroker("config", "--yaml").out == printed


def test_a_forced_queue_and_a_doubtful_variable(
    nobroker: CommandLine, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(FILE)
    monkeypatch.setenv("NOBROKER_FORCE_QUEUE", "branch/*")
    monkeypatch.setenv("NOBROKER_THREDS", "5")
    ran = nobroker("config")
    assert ran.err == "warning: nobody reads NOBROKER_THREDS; did you mean NOBROKER_THREADS?\n"
    assert "all queues   branch/_ (NOBROKER_FORCE_QUEUE)\n" in ran.out
    assert "workers[1].queues\tbranch/_\tNOBROKER_FORCE_QUEUE\n" in ran.out
    assert nobroker.json("config")["forced_queue"] == "branch/_"


def test_all_that_is_wrong_a_line_each(nobroker: CommandLine, here: Here) -> None:
    here("workers:\n- thread: 4\n- order: x\n")
    ran = nobroker("config")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error: queue.yml, line 2, workers[0].thread: there is no such key; did you mean threads?",
        "error: queue.yml, line 3, workers[1].order: it is one of ordered, priority, fair, not 'x'",
    ]


@pytest.mark.parametrize(
    "words, variables, says",
    [
        (["--queues", "a**"], {}, "--queues: 'a**': an asterisk"),
        (["--max-jobs", "-5"], {}, "--max-jobs: it is a whole number from 1 to"),
        (["--config", "none.yml"], {}, "--config: there is no file 'none.yml'"),
        ([], {"NOBROKER_CONFIG": "none.yml"}, "NOBROKER_CONFIG: there is no file 'none.yml'"),
        ([], {"NOBROKER_POLLING_INTERVAL": "0"}, "NOBROKER_POLLING_INTERVAL: it is 1ms to 366d, not '0'"),
        (
            [],
            {"NOBROKER_FORCE_QUEUE": "*"},
            "NOBROKER_FORCE_QUEUE: nothing of '*' can be the name of a queue",
        ),
    ],
)
def test_wrong_arguments_and_variables(
    nobroker: CommandLine,
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    variables: dict[str, str],
    says: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ran = nobroker("config", *words)
    assert ran.code == 2
    assert ran.said_in_one_line().startswith(f"error: {says}")


@pytest.mark.parametrize("command", ["run", "config"])
def test_each_setting_has_an_option_of_both_commands(command: str) -> None:
    group = build()
    assert isinstance(group, Group)
    found = group.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    options = {word for parameter in found.params for word in parameter.opts}
    assert {setting.option for setting in ALL} | {"--config"} <= options
