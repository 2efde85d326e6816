"""What the document says of settings is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nobroker.running.config import RunConfig, WorkerConfig
from nobroker.running.settings import ALL, Setting, defaults
from nobroker.running.sources import load

TEXT = (Path(__file__).parents[2] / "docs" / "jobs" / "running.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.argument)
def test_a_row_for_each_setting(setting: Setting) -> None:
    row = re.search(rf"^\| `{setting.key}` \| (.*) \| (.*) \| `(.*)` \| `(.*?)`.*\|$", TEXT, re.MULTILINE)
    assert row is not None
    _, said, variable, option = row.groups()
    assert (variable, option) == (setting.variable, setting.option)
    usual: Any = defaults()[setting.argument]
    if setting.argument != "start_method":
        assert (None if said == "none" else setting.kind(_typed(said.strip("`"), usual))) == usual


def _typed(said: str, usual: Any) -> Any:
    if isinstance(usual, bool):
        return said == "true"
    return int(said) if isinstance(usual, int) else said


def test_the_examples_load(tmp_path: Path) -> None:
    shop, keyed = EXAMPLES
    (tmp_path / "queue.yml").write_text(shop)
    first, second = load(tmp_path, environment={}).config.workers
    assert first == WorkerConfig(queues=("urgent", "mail*", "default"), threads=8)
    assert second.memory_recycle_at == 2**29
    (tmp_path / "queue.yml").write_text(keyed)
    start = load(tmp_path, environment={}).config
    assert start == RunConfig(workers=(WorkerConfig(threads=4),), start_method=start.start_method)
    found = load(tmp_path, environment={"NOBROKER_ENV": "production", "SLOW_QUEUES": "a,b"}).config
    assert [(worker.queues, worker.processes) for worker in found.workers] == [
        (("urgent", "*"), 4),
        (("a", "b"), 1),
    ]


@pytest.mark.parametrize("order, runs", re.findall(r"^\| `(\w+)` \| ([A-E ]+) \|", TEXT, re.MULTILINE))
def test_the_example_of_orders(tmp_path: Path, order: str, runs: str) -> None:
    from nobroker import Lanes, Queue

    def row(name: str) -> list[str]:
        found = re.search(rf"^\| {name} \| (.*) \|$", TEXT, re.MULTILINE)
        assert found is not None
        return found[1].replace("`", "").split(" | ")

    with Queue(tmp_path, fsync=False) as queue:
        for name, lane, priority in zip(row("job"), row("queue"), row("priority"), strict=True):
            queue.enqueue(name, lane=lane, priority=int(priority))
        lanes = Lanes(["urgent", "mail", "*"], order=order)
        assert " ".join(job.payload for job in queue.lease(9, lanes=lanes)) == runs
        assert queue.check() == []


def test_there_are_examples_of_all_orders() -> None:
    assert len(re.findall(r"^\| `(\w+)` \| ([A-E ]+) \|", TEXT, re.MULTILINE)) == 3
