"""Many calls with one write: what arrives is what was given, whichever way the arguments are looked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from nobroker import App, SerializationError
from nobroker.app import envelope
from nobroker.app.serializers import TAG, Serializers

PLAIN: list[Any] = [
    None, True, 0, -1.5, "text", b"bytes", [], {}, [1, [2, [3]]], {"a": {"b": [{"c": None}]}}, {1: 2},
    date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.10"), UUID(int=5), [{"a": Decimal(1)}],
]  # fmt: skip
TAGGED: list[Any] = [
    (1, 2), {3}, frozenset({4}), [(1,)], {"a": (1,)}, {TAG: 1}, [{TAG: [1]}], {"deep": {TAG: {TAG: 2}}},
]  # fmt: skip


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path / "q", fsync=False)


def arrived(app: App, given: list[Any]) -> list[Any]:
    """What jobs get of these arguments, by position and by name."""
    found: list[Any] = []

    @app.job
    def take(value: Any, *, named: Any = None) -> None:
        found.append((value, named))

    app.perform_all_later([take.build(value, named=value) for value in given])
    app.run(once=True, handle_signals=False)
    assert app.queue.check() == []
    app.close()
    return found


@pytest.mark.parametrize("given", [PLAIN, TAGGED, PLAIN + TAGGED, PLAIN * 150])
def test_arguments_arrive_as_they_are(app: App, given: list[Any]) -> None:
    found = arrived(app, given)
    assert found == [(value, value) for value in given]
    assert [type(value) for value, _ in found] == [type(value) for value in given]


@pytest.mark.parametrize("value", PLAIN)
def test_a_quick_look_is_enough_for_what_the_queue_stores(value: Any) -> None:
    assert Serializers.leaves_alone([value])


@pytest.mark.parametrize(
    "value", [*TAGGED, object(), {(1, 2): 3}, {"a": {date(2026, 1, 1): 1}}, type("S", (str,), {})()]
)
def test_a_quick_look_is_not_enough_for_others(value: Any) -> None:
    assert not Serializers.leaves_alone([1, value])


def test_both_ways_make_the_same_payloads() -> None:
    serializers = Serializers()
    calls = [envelope.Call("job", (value, 1), {"x": value} if value else {}) for value in PLAIN + TAGGED]
    alone = [envelope.seal(serializers, call) for call in calls]
    assert envelope.seal_all(serializers, calls) == alone
    plain = [call for call in calls if call.args[0] in PLAIN]
    assert envelope.seal_all(serializers, plain) == [envelope.seal(serializers, call) for call in plain]


def _itself() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def _wide() -> Any:
    """One thing over and over: 2 ** 60 by the time it is at the bottom."""
    found: Any = [1]
    for _ in range(60):
        found = [found, found]
    return found


def test_what_refers_to_itself_is_refused_and_named(app: App) -> None:
    @app.job
    def take(value: Any) -> None:
        """Nothing."""

    with pytest.raises(SerializationError, match=r"argument 0 of .*take"):
        app.perform_all_later([take.build(1), take.build(_itself())])
    assert app.queue.stats().total == 0
    app.close()


@pytest.mark.parametrize("make", [_itself, _wide])
def test_a_quick_look_stays_quick(make: Callable[[], Any]) -> None:
    assert not Serializers.leaves_alone([make()])


@pytest.mark.parametrize(
    "options", [{"priority": 3}, {"wait": 60}, {"queue": "other"}, {"metadata": {"a": 1}}, {"job_id": "own"}]
)
def test_what_is_said_of_one_of_many_counts_for_that_one(app: App, options: dict[str, Any]) -> None:
    @app.job(queue="usual")
    def take(value: int) -> None:
        """Nothing."""

    app.perform_all_later([take.build(0), take.build(1)])
    handles = app.perform_all_later([take.build(2), take.set(**options).build(3), take.build(4)])
    plain, said, after = (handle.job() for handle in handles)
    assert (plain.lane, plain.priority, plain.metadata) == (after.lane, after.priority, after.metadata)
    assert (plain.lane, plain.priority, plain.metadata) == ("usual", 0, None)
    seen = {"priority": said.priority, "queue": said.lane, "metadata": said.metadata, "job_id": said.id}
    for name, value in options.items():
        if name == "wait":
            assert said.available_at - plain.available_at > 59
        else:
            assert seen[name] == value
    app.close()
