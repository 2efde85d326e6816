"""A queue that is not there: a command that looks makes none, and says in one line what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import CommandLine, tree

LOOKING = [
    ["stats"],
    ["stats", "--watch", "1"],
    ["list"],
    ["show", "x"],
    ["dlq"],
    ["inspect"],
    ["inspect", "--follow"],
    ["dump"],
    ["check"],
    ["recover"],
]
CHANGING = [
    ["ack", "x"],
    ["nack", "x"],
    ["cancel", "x"],
    ["pause"],
    ["resume"],
    ["purge", "--yes"],
    ["drop", "default", "--yes"],
    ["compact"],
    ["dlq", "--requeue"],
    ["dlq", "--drop", "x"],
    ["recover", "--salvage"],
]


@pytest.mark.parametrize("words", LOOKING + CHANGING, ids=" ".join)
def test_no_directory(nobroker: CommandLine, words: list[str]) -> None:
    ran = nobroker(*words)
    assert ran.code == 1
    assert "no directory" in ran.said_in_one_line()
    assert "--dir" in ran.err
    assert not nobroker.dir.exists()


@pytest.mark.parametrize("words", [*LOOKING, *CHANGING, ["backup", "copy"]], ids=" ".join)
def test_a_directory_with_another_queue(nobroker: CommandLine, words: list[str], tmp_path: Path) -> None:
    nobroker("-q", "other", "enqueue", "1")
    before = tree(nobroker.dir)
    ran = nobroker(*[str(tmp_path / "copy") if word == "copy" else word for word in words])
    assert ran.code == 1
    assert "no queue 'default'" in ran.said_in_one_line()
    assert "other" in ran.err
    assert tree(nobroker.dir) == before
    assert not (tmp_path / "copy").exists()


def test_lease_from_no_queue_is_nothing_there(nobroker: CommandLine) -> None:
    assert nobroker("lease").code == 3
    assert nobroker.json("lease", code=3) == []
    assert not nobroker.dir.exists()


def test_queues_of_no_directory(nobroker: CommandLine) -> None:
    assert "no directory" in nobroker("queues").said_in_one_line()
    nobroker.dir.mkdir()
    assert nobroker.json("queues") == []
    assert nobroker.json("compact", "--all") == []


def test_the_directory_is_a_file(nobroker: CommandLine) -> None:
    nobroker.dir.write_text("not a directory")
    for words in (["stats"], ["enqueue", "1"], ["queues"], ["work", "os:getcwd", "--idle-timeout", "0.1"]):
        ran = nobroker(*words)
        assert ran.code == 1
        ran.said_in_one_line()
    assert nobroker.dir.read_text() == "not a directory"
