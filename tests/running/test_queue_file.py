"""``queue.yml``: each key, and each thing that can be wrong with the file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import ConfigError, MissingExtraError
from nobroker.running.config import RunConfig, WorkerConfig
from nobroker.running.settings import SCHEDULER, TOP, WORKER
from nobroker.running.sources import load

from .conftest import Load

Problems = Callable[..., list[str]]

WORKER_KEYS: list[tuple[str, str, Any]] = [
    ("queues", "mails", ("mails",)),
    ("queues", "urgent, beta*, '*'", ("urgent", "beta*", "*")),
    ("queues", "[urgent, beta*, '*']", ("urgent", "beta*", "*")),
    ("queues", "'*'", ("*",)),
    ("order", "fair", "fair"),
    ("threads", "8", 8),
    ("processes", "4", 4),
    ("batch", "100", 100),
    ("polling_interval", "0.5", 0.5),
    ("polling_interval", "250ms", 0.25),
    ("isolation", "process", "process"),
    ("memory_recycle_at", "512M", 512 * 2**20),
    ("memory_recycle_at", "536870912", 512 * 2**20),
    ("memory_recycle_at", "1.5GiB", 1536 * 2**20),
    ("memory_recycle_at", "null", None),
    ("memory_confirmations", "2", 2),
    ("memory_interval", "1m", 60.0),
    ("max_jobs", "1000", 1000),
    ("max_jobs", "~", None),
    ("cgroup_memory_max", "2G", 2 * 2**30),
    ("cgroup_memory_max", "4096k", 4 * 2**20),
]


@pytest.mark.parametrize("key, said, value", WORKER_KEYS)
def test_keys_of_workers(loaded: Load, key: str, said: str, value: Any) -> None:
    if said.startswith("urgent"):
        said = f'"{said}"'.replace("'*'", "*")
    found = loaded(f"workers:\n- {key}: {said}\n")
    assert found.config == RunConfig(workers=(WorkerConfig(**{key: value}),))
    assert found.origins.pop(f"workers[0].{key}").endswith("queue.yml, line 2")
    assert set(found.origins.values()) == {"default"}


KEYS: list[tuple[str, str, Any]] = [
    ("scheduler.enabled", "scheduler: {enabled: no}", False),
    ("scheduler.recurring", "scheduler: {recurring: config/nightly.yml}", "config/nightly.yml"),
    ("start_method", "start_method: spawn", "spawn"),
    ("shutdown_timeout", "shutdown_timeout: 1h30m", 5400.0),
    ("shutdown_timeout", "shutdown_timeout: 0", 0.0),
    ("heartbeat_interval", "heartbeat_interval: 2.5s", 2.5),
    ("quiet_then_exit", "quiet_then_exit: true", True),
]


@pytest.mark.parametrize("key, text, value", KEYS)
def test_other_keys(loaded: Load, key: str, text: str, value: Any) -> None:
    found = loaded(text)
    config: Any = found.config
    for part in key.split("."):
        config = getattr(config, part)
    assert config == value
    assert found.origins[key].endswith("queue.yml, line 1")


def test_every_key_is_tried_above() -> None:
    assert {setting.key for setting in WORKER} == {key for key, _, _ in WORKER_KEYS}
    rest = [*[f"scheduler.{setting.key}" for setting in SCHEDULER], *[setting.key for setting in TOP]]
    assert set(rest) == {key for key, _, _ in KEYS}


@pytest.mark.parametrize(
    "said, seconds",
    [
        ("5s", 5),
        ("2m", 120),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1d", 86400),
        ("90 s", 90),
        ("1m 30s", 90),
        ("0.5h", 1800),
    ],
)
def test_lengths_of_time(loaded: Load, said: str, seconds: float) -> None:
    assert loaded(f"shutdown_timeout: {said}").config.shutdown_timeout == seconds
    assert loaded(None, {"NOBROKER_SHUTDOWN_TIMEOUT": said}).config.shutdown_timeout == seconds


FULL = """
workers:
- queues: [urgent, "*"]
  threads: 4
- queues: slow
  isolation: process
scheduler:
  enabled: false
"""


def test_several_workers(loaded: Load) -> None:
    found = loaded(FULL)
    assert found.config.workers == (
        WorkerConfig(queues=("urgent", "*"), threads=4),
        WorkerConfig(queues=("slow",), isolation="process"),
    )
    assert found.origins["workers[1].isolation"].endswith("line 6")
    assert found.origins["workers[1].threads"] == "default"


# -- what is wrong

KEYS_OF_A_FILE = "workers, scheduler, start_method, shutdown_timeout, heartbeat_interval, quiet_then_exit"
KEYS_OF_A_WORKER = ", ".join(setting.key for setting in WORKER)
TO_1024 = "it is a whole number from 1 to 1,024, not"
SECONDS = "it is seconds, or such as 5s, 2m, 1h30m, 250ms, not"


@pytest.mark.parametrize(
    "text, where, reason",
    [
        ("worker:\n- threads: 1", "1, worker", "there is no such key; did you mean workers?"),
        ("threads: 1", "1, threads", "there is no such key here; it belongs to one of workers"),
        ("enabled: 1", "1, enabled", "there is no such key here; it belongs to scheduler"),
        ("zzz: 1", "1, zzz", f"there is no such key; there are: {KEYS_OF_A_FILE}"),
        ("scheduler: {on: 1}", "1, scheduler.on", "there is no such key; there are: enabled, recurring"),
        ("scheduler: off", "1, scheduler", "it has keys with values: enabled, recurring"),
        ("workers: []", "1, workers", "it is a list of workers, at least one: '- queues: ...'"),
        ("workers:", "1, workers", "it is a list of workers, at least one: '- queues: ...'"),
        ("workers: {threads: 1}\n", "1, workers", "it is a list of workers, at least one: '- queues: ...'"),
        ("workers:\n- threads: 0", "2, workers[0].threads", f"{TO_1024} 0"),
        ("workers:\n- threads: '8'", "2, workers[0].threads", f"{TO_1024} '8'"),
        ("workers:\n- threads: yes", "2, workers[0].threads", f"{TO_1024} true"),
        (
            "workers:\n- threads: 010",
            "2, workers[0].threads",
            "YAML takes 010 for 8; write that, or put it in quotes",
        ),
        ("workers:\n- threads:", "2, workers[0].threads", f"{TO_1024} nothing"),
        ("workers:\n- threads: [1]", "2, workers[0].threads", f"{TO_1024} [1]"),
        ("workers:\n- threads: {a: 1}", "2, workers[0].threads", f"{TO_1024} a mapping"),
        (
            "workers:\n- batch: 99999",
            "2, workers[0].batch",
            "it is a whole number from 1 to 10,000, not 99999",
        ),
        (
            "workers:\n- order: random",
            "2, workers[0].order",
            "it is one of ordered, priority, fair, not 'random'",
        ),
        (
            "workers:\n- isolation: fork",
            "2, workers[0].isolation",
            "it is one of thread, process, not 'fork'",
        ),
        (
            "workers:\n- memory_recycle_at: 512",
            "2, workers[0].memory_recycle_at",
            "it is 1M at least, not 512, which is 512 bytes",
        ),
        (
            "workers:\n- memory_recycle_at: 512MB",
            "2, workers[0].memory_recycle_at",
            "it is bytes, or such as 512M, 2G, 512MiB (1,024 each), not '512MB'",
        ),
        (
            "workers:\n- max_jobs: 0",
            "2, workers[0].max_jobs",
            "it is a whole number from 1 to 9,007,199,254,740,992, not 0",
        ),
        (
            "workers:\n- queues: []",
            "2, workers[0].queues",
            "names with commas between them, or a list of names, not []",
        ),
        (
            "workers:\n- queues: a,",
            "2, workers[0].queues",
            "names with commas between them, or a list of names, not 'a,'",
        ),
        ("workers:\n- queues: [a, a]", "2, workers[0].queues", "a is there twice"),
        (
            "workers:\n- queues: [a*b]",
            "2, workers[0].queues",
            "'a*b': an asterisk stands at the end of a name only",
        ),
        (
            "workers:\n- queues: [no]",
            "2, workers[0].queues",
            "False is not the name of a queue; perhaps it needs quotes",
        ),
        (
            "workers:\n- queues: ['a,b']",
            "2, workers[0].queues",
            "the name of a queue has 1 to 100 printable characters and no comma, not 'a,b'",
        ),
        (
            "workers:\n- queues: [nobroker.watch]",
            "2, workers[0].queues",
            "in 'nobroker.watch' this library keeps records; no jobs are there",
        ),
        ("workers:\n- queues: 5", "2, workers[0].queues", "it is a list of queues, not 5"),
        (
            "workers:\n- queues: *",
            "2",
            "malformed: did not find expected alphabetic or numeric character; a value that begins"
            " with one of * @ % & ! stands in quotes",
        ),
        ("workers:\n- mails", "2, workers[0]", f"a worker has keys with values: {KEYS_OF_A_WORKER}"),
        ("shutdown_timeout: -1", "1, shutdown_timeout", "it is 0, or 1ms to 366d, not -1"),
        ("shutdown_timeout: .nan", "1, shutdown_timeout", "it is 0, or 1ms to 366d, not nan"),
        ("shutdown_timeout: .inf", "1, shutdown_timeout", "it is 0, or 1ms to 366d, not inf"),
        (
            "shutdown_timeout: 1:30",
            "1, shutdown_timeout",
            "YAML takes 1:30 for 90; write that, or put it in quotes",
        ),
        ("shutdown_timeout: 5 minutes", "1, shutdown_timeout", f"{SECONDS} '5 minutes'"),
        ("shutdown_timeout: ''", "1, shutdown_timeout", f"{SECONDS} ''"),
        ("heartbeat_interval: 0", "1, heartbeat_interval", "it is 1ms to 366d, not 0"),
        ("quiet_then_exit: maybe", "1, quiet_then_exit", "it is true or false, not 'maybe'"),
        ("scheduler: {recurring: 5}", "1, scheduler.recurring", "it is the name of a file, not 5"),
        (
            "quiet_then_exit: yes\n\nquiet_then_exit: no",
            "3, quiet_then_exit",
            "it is there twice; first in line 1",
        ),
        ("a: {}\na: {}\ndefault: {}\n", "2, a", "it is there twice; first in line 1"),
        ("{}", "", f"it is empty; it may say {KEYS_OF_A_FILE}"),
        ("", "", f"it is empty; it may say {KEYS_OF_A_FILE}"),
        ("# nothing\n", "", f"it is empty; it may say {KEYS_OF_A_FILE}"),
        ("- a\n", "1", f"it has keys with values: {KEYS_OF_A_FILE}"),
        ("a: [", "1", "malformed: did not find expected node content"),
        (
            "quiet_then_exit: !!python/name:os.system x",
            "1, quiet_then_exit",
            "could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'",
        ),
        ("quiet_then_exit: 2026-13-45", "1, quiet_then_exit", "month must be in 1..12"),
        (
            "<<: 5\nquiet_then_exit: no",
            "1, <<",
            "malformed: expected a mapping or list of mappings for merging, but found scalar",
        ),
        ("a: 1\n---\nb: 2", "2", "malformed: but found another document"),
        ("? [a]\n: 1", "1", "a key is a word"),
    ],
)
def test_one_thing_is_wrong(problems: Problems, text: str, where: str, reason: str) -> None:
    (said,) = problems(text)
    assert said == f"queue.yml{', line ' if where else ''}{where}: {reason}"


def test_all_that_is_wrong_is_told_by_its_line(problems: Problems) -> None:
    text = "quiet_then_exit: 5\nworkers:\n- thread: 1\n- order: x\n  batch: 0\nscheduler: {enabled: 7}"
    assert [line.partition(":")[0] for line in problems(text)] == [
        "queue.yml, line 1, quiet_then_exit",
        "queue.yml, line 3, workers[0].thread",
        "queue.yml, line 4, workers[1].order",
        "queue.yml, line 5, workers[1].batch",
        "queue.yml, line 6, scheduler.enabled",
    ]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text, says",
    [
        (BOMB, "it has more than 100,000 values"),
        ("workers: &w\n- *w\n", "an alias that contains itself"),
        ("workers:\n- queues: " + "[" * 400 + "]" * 400, "is not the name of a queue"),
        ("workers:\n- queues: " + "[" * 5000 + "]" * 5000, ""),
        ("x" * 1_100_000, "it has 1,100,000 bytes; 1,048,576 are enough"),
    ],
    ids=["aliases", "circle", "nested", "nested deeply", "large"],
)
def test_files_that_were_made_to_harm(problems: Problems, text: str, says: str) -> None:
    (line,) = problems(text)
    assert says in line
    assert len(line) < 300


def test_what_can_not_be_read(tmp_path: Path, problems: Problems) -> None:
    (tmp_path / "queue.yml").write_bytes(b"\xff\xfe\x00")
    assert problems() == ["queue.yml: can't be read: it is no text in UTF-8: invalid start byte, 0 bytes in"]
    (tmp_path / "queue.yml").write_bytes(b"a: \x00")
    (line,) = problems()
    assert "malformed" in line
    (tmp_path / "queue.yml").unlink()
    (tmp_path / "queue.yml").mkdir()
    assert problems() == ["queue.yml: can't be read: it is a directory"]
    (tmp_path / "queue.yml").rmdir()
    (tmp_path / "queue.yml").symlink_to("nowhere")
    assert problems() == ["queue.yml: can't be read: No such file or directory"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_file_that_never_ends(tmp_path: Path, problems: Problems) -> None:
    os.mkfifo(tmp_path / "queue.yml")
    assert problems() == ["queue.yml: can't be read: it is no file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything may be read")
def test_a_file_that_may_not_be_read(tmp_path: Path, problems: Problems) -> None:
    (tmp_path / "queue.yml").write_text("quiet_then_exit: no")
    (tmp_path / "queue.yml").chmod(0)
    assert problems() == ["queue.yml: can't be read: Permission denied"]


def test_without_yaml(tmp_path: Path, loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert loaded(None).file is None
    with pytest.raises(MissingExtraError, match=r"pip install 'nobroker\[yaml\]'"):
        loaded("quiet_then_exit: no")


# -- which file


def test_where_a_file_is_looked_for(tmp_path: Path) -> None:
    assert load(tmp_path, environment={}).file is None
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "queue.yml").write_text("shutdown_timeout: 1")
    assert load(tmp_path, environment={}).config.shutdown_timeout == 1
    (tmp_path / "queue.yml").write_text("shutdown_timeout: 2")
    assert load(tmp_path, environment={}).config.shutdown_timeout == 2
    (tmp_path / "my.yml").write_text("shutdown_timeout: 3")
    found = load(tmp_path, environment={"NOBROKER_CONFIG": "my.yml"})
    assert (found.config.shutdown_timeout, found.file) == (3, str(tmp_path / "my.yml"))
    found = load(tmp_path, file="config/queue.yml", environment={"NOBROKER_CONFIG": "my.yml"})
    assert found.config.shutdown_timeout == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^config: there is no file '.*none.yml'$"):
        load(tmp_path, file="none.yml", environment={})
    with pytest.raises(ConfigError, match=r"^NOBROKER_CONFIG: there is no file '.*none.yml'$"):
        load(tmp_path, environment={"NOBROKER_CONFIG": "none.yml"})
