"""C4: dates, bytes, tuples and the like: the same answer at every depth."""

from __future__ import annotations

import enum
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from nobroker import Queue, SerializationError

from .words import drain


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


KEPT = [
    datetime(2026, 1, 1, 12, 30, 1, 5),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    date(2026, 1, 1),
    time(1, 2, 3),
    timedelta(days=-1, microseconds=1),
    b"\x00\xff",
    b"text",
    Decimal("1.10"),
    UUID(int=5),
    "2026-01-01T00:00:00",
    "b'x'",
    1.0,
    True,
    None,
]
REFUSED = [{1}, Level.HIGH, Text("s"), object(), bytearray(b"x"), 1j]


def shapes(leaf: Any) -> list[Any]:
    return [leaf, {"a": leaf}, {"a": [{"b": leaf}]}, [[leaf]], {"x": {"y": {"z": [0, leaf]}}}]


@pytest.mark.parametrize("leaf", KEPT, ids=lambda leaf: f"{type(leaf).__name__}-{str(leaf)[:12]}")
def test_kept_equal_in_value_and_type(tmp_path: Path, leaf: Any) -> None:
    with Queue(tmp_path, fsync=False) as queue:
        for shape in shapes(leaf):
            queue.enqueue(shape)
    with Queue(tmp_path, fsync=False) as queue:
        found = drain(queue)
    assert found == shapes(leaf)
    assert [repr(shape) for shape in found] == [repr(shape) for shape in shapes(leaf)]


@pytest.mark.parametrize("leaf", REFUSED, ids=lambda leaf: type(leaf).__name__)
def test_refused_at_every_depth_with_nothing_written(tmp_path: Path, leaf: Any) -> None:
    with Queue(tmp_path, fsync=False) as queue:
        before = (len(queue), queue.stats().bytes)
        for shape in shapes(leaf):
            with pytest.raises(SerializationError, match=type(leaf).__name__):
                queue.enqueue(shape)
            with pytest.raises(SerializationError):
                queue.enqueue_many([1, shape])
            with pytest.raises(SerializationError):
                queue.enqueue(1, metadata=shape)
        assert (len(queue), queue.stats().bytes) == before


def test_a_tuple_comes_back_as_a_list_as_documented(tmp_path: Path) -> None:
    with Queue(tmp_path, fsync=False) as queue:
        for shape in shapes((1, (2, b"x"))):
            queue.enqueue(shape)
        assert drain(queue) == shapes([1, [2, b"x"]])
    assert "tuple comes back as a list" in " ".join(str(Queue.enqueue.__doc__).split())
