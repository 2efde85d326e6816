"""C24: names that would leave the directory, or meet another queue's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nobroker import NobrokerError, Queue, drop_queue, list_queues

from .words import cli, drain

UNSAFE = [
    "../evil", "/abs", "a/b", "..", ".", "", "a\0b", "x" * 300, "*", " a ", "a\nb", "é", "e\u0301",
    "a\\b", "C:evil", "~", "-a",
    ".hidden", "a b", "a%", "a\u202eb", "con", "NUL", "com1.x",
]  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE, ids=ascii)
def test_unsafe_names_make_no_file(tmp_path: Path, name: str) -> None:
    base = tmp_path / "q"
    for verb in (
        lambda: Queue(base, name),
        lambda: Queue(base, name, read_only=True),
        lambda: drop_queue(base, name),
    ):
        with pytest.raises((ValueError, TypeError, NobrokerError)):
            verb()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
@pytest.mark.parametrize("name", ["../evil", "/abs", "", "a\nb", "*"], ids=ascii)
def test_unsafe_names_on_the_command_line(tmp_path: Path, name: str) -> None:
    ran = cli(tmp_path / "q", "-q", name, "enqueue", "1")
    assert ran.code in (1, 2)
    assert "Traceback" not in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("a.b", "a_b"),
        ("a", "a.1"),
        ("a", "a.000001"),
        ("a", "a.seg"),
        ("a", "a.lock"),
        ("a", "a-1"),
        ("a.000001", "a"),
    ],
)
def test_neighbours_do_not_meet(tmp_path: Path, one: str, two: str) -> None:
    options: dict[str, Any] = {"fsync": False, "segment_size": 65536}
    with Queue(tmp_path, one, **options) as first, Queue(tmp_path, two, **options) as second:
        for queue in (first, second):
            queue.enqueue_many([queue.name] * 5)
            queue.enqueue_many([b"x" * 1000] * 200, priority=-1)
        first.ack_many(first.lease(100))
        first.compact()
        first.purge()
        first.compact()
        assert first.stats().total == 0
        assert drain(second)[:5] == [two] * 5
        second.enqueue("kept")
    assert set(list_queues(tmp_path)) == {one, two}
    for name in (one, two):
        with Queue(tmp_path, name, **options) as queue:
            assert list(queue.check()) == []
    drop_queue(tmp_path, one)
    assert list_queues(tmp_path) == [two]
    with Queue(tmp_path, two, **options) as queue:
        assert drain(queue) == ["kept"]


def test_names_that_differ_only_in_case_are_one(tmp_path: Path) -> None:
    with Queue(tmp_path, "Mail", fsync=False) as queue:
        queue.enqueue(1)
        with pytest.raises((ValueError, NobrokerError)):
            Queue(tmp_path, "mail")
    assert list_queues(tmp_path) == ["Mail"]
    assert not list(tmp_path.glob("mail*"))
