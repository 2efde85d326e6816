"""Arguments and results come back equal and of the same types; what would not is refused when given."""

from __future__ import annotations

import enum
import threading
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nobroker import App, Discard, JobState, SerializationError, UnknownJobError
from nobroker.app.errors import UnknownSerializerError
from nobroker.app.serializers import MAX_DEPTH, Serializers
from nobroker.clock import ManualClock
from nobroker.values import pack_value
from tests.app.working import same, work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@pytest.fixture
def note(app: App) -> Any:
    @app.job(name="note", max_attempts=1)
    def note(*args: Any, **kwargs: Any) -> Any:
        seen.extend([*args, *kwargs.values()])
        return args

    return note


def through(app: App, note: Any, *values: Any) -> list[Any]:
    """The values as the job got them, after a look at those that it returned."""
    handle = note.perform_later(*values)
    seen.clear()
    work(app)
    assert handle.status() == JobState.DONE, handle.job().last_error
    assert same(handle.result(), values)
    return list(seen)


LEAVES = [
    None, True, 0, 2**70, -1.5, "text", "2026-01-01T00:00:00", "", b"\x00\xff",
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1), date(2026, 1, 1), time(1, 2), timedelta(days=-1, microseconds=1), Decimal("1.10"),
    UUID(int=5), (), (1, (2,)), {1, "a"}, frozenset({(1, 2)}), [], {}, {"$": 1}, {"$": ["tuple", [1]]},
    {"$": {"$": 1}}, {"$": 1, "x": 2}, {1: "a", None: "b", 1.5: "c", b"x": "d"}, {True: "e"},
    {"args": [], "job": "x"},
]  # fmt: skip


def test_types_are_kept_at_every_depth(app: App, note: Any) -> None:
    shapes = [lambda x: x, lambda x: [x], lambda x: {"a": x}, lambda x: ({"a": [{"b": (x,)}]},)]
    values = [shape(leaf) for leaf in LEAVES for shape in shapes]
    assert same(through(app, note, *values), values)


def test_keyword_arguments_are_kept_too(app: App, note: Any) -> None:
    note.perform_later(a=(1,), **{"$": {2}})
    work(app)
    assert same(seen, [(1,), {2}])


hashables = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
values = st.recursive(
    hashables | st.sets(hashables, max_size=3) | st.just({}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["$", "a", "map", "tuple"]) | st.integers(), inner, max_size=3)
        | inner.map(lambda value: {"$": value})
        | inner.map(lambda value: {"$": ["set", value]})
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(values)
def test_whatever_is_packed_comes_back_the_same(value: Any) -> None:
    serializers = Serializers()
    packed = serializers.pack(value, "value")
    pack_value(packed)  # the queue stores it
    assert same(serializers.unpack(packed), value)


def test_what_is_not_stored_is_refused_with_its_place_and_what_to_do(app: App, note: Any) -> None:
    class Thing:
        pass

    class Text(str):
        pass

    class Number(enum.IntEnum):
        ONE = 1

    Point = namedtuple("Point", "x y")
    wrong: list[tuple[Any, str]] = [
        (Thing(), r"argument 0 of note is of type .*Thing, which is not stored; pass a plain value such as "
                  r"an id, or register it: app.serializer\(Thing\)"),
        ([1, {"a": Thing()}], r"argument 0 of note\[1\]\['a'\] is of type"),
        ((1, {Thing}), r"argument 0 of note\[1\]\[0\] is of type builtins.type"),
        (Text("x"), r"Text, which is not stored, although str is: only the exact type is"),
        (Number.ONE, r"although int is"),
        (Point(1, 2), r"although tuple is"),
        (OrderedDict(a=1), r"although dict is"),
        (Path("x"), r"is of type pathlib"),
        ({(1, 2): "x"}, r"argument 0 of note has the key \(1, 2\) of type tuple; keys of dicts may be str.*"
                        r"Pass a list of pairs instead"),
        ([{"a": {Text("k"): 1}}], r"argument 0 of note\[0\]\['a'\] has the key 'k' of type .*Text"),
        (threading.Lock(), r"argument 0 of note is of type _thread.lock"),
    ]  # fmt: skip
    for value, words in wrong:
        with pytest.raises(SerializationError, match=words):
            note.perform_later(value)
    with pytest.raises(SerializationError, match="argument 'user' of note is of type"):
        note.perform_later(1, user=Thing())
    with pytest.raises(SerializationError, match="argument 1 of note"):
        app.perform_all_later([note.build(1), note.build(1, Thing())])
    assert app.queue.stats().total == 0


def nested(depth: int, kind: type = list) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind is dict else kind([value])
    return value


def test_arguments_that_refer_to_themselves_or_nest_too_deeply_are_refused(app: App, note: Any) -> None:
    in_list: list[Any] = []
    in_list.extend([in_list, in_list])
    in_dict: dict[str, Any] = {}
    in_dict["a"] = (in_dict,)
    for value in (in_list, in_dict, nested(MAX_DEPTH + 1), nested(10_000), nested(10_000, dict)):
        with pytest.raises(SerializationError, match=f"refers to itself, or nests deeper than {MAX_DEPTH}"):
            note.perform_later(value)
    assert app.queue.stats().total == 0


@pytest.mark.parametrize(("kind", "depth"), [(list, MAX_DEPTH), (dict, MAX_DEPTH), (tuple, MAX_DEPTH // 2)])
def test_what_is_accepted_can_be_read_from_any_depth_of_stack(
    app: App, note: Any, kind: type, depth: int
) -> None:
    value = nested(depth, kind)

    def deeper(frames: int) -> Any:
        return note.perform_later(value) if frames == 0 else deeper(frames - 1)

    deeper(0)
    deeper(400)
    work(app)
    assert same(seen, [value, value])


# -- people's own types


def test_encode_and_decode(app: App, note: Any) -> None:
    class Point:
        def __init__(self, x: int, y: int) -> None:
            self.at = (x, y)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Point) and self.at == other.at

        __hash__ = None  # type: ignore[assignment]

    app.serializer(Point, encode=lambda point: point.at, decode=lambda at: Point(*at), name="point")
    assert through(app, note, Point(1, 2), [{"a": Point(3, 4)}]) == [Point(1, 2), [{"a": Point(3, 4)}]]
    payload = note.perform_later(Point(1, 2)).job().payload
    assert payload["args"] == [{"$": ["point", {"$": ["tuple", [1, 2]]}]}]

    class Below(Point):
        pass

    with pytest.raises(SerializationError, match=r"although .*Point is: only the exact type is"):
        note.perform_later(Below(1, 2))


def test_a_serializer_that_raises_names_the_argument(app: App, note: Any) -> None:
    class Thing:
        pass

    def broken(value: Any) -> Any:
        raise OSError("no disk")

    app.serializer(Thing, encode=broken, decode=broken, name="thing")
    with pytest.raises(
        SerializationError, match="argument 0 of note: the serializer 'thing' raised OSError: no disk"
    ):
        note.perform_later(Thing())
    app.serializer(complex, encode=lambda value: [value.real, object()], decode=complex)
    with pytest.raises(SerializationError, match=r"argument 0 of note\[1\] is of type builtins.object"):
        note.perform_later(1j)


def test_what_a_serializer_raises_in_the_worker_is_the_jobs_failure_and_rules_decide(app: App) -> None:
    class Row:
        pass

    class Gone(Exception):
        pass

    def load(key: int) -> Any:
        raise Gone(f"row {key}")

    app.serializer(Row, encode=lambda row: 7, decode=load)

    @app.job(name="rule", discard=[Discard(Gone)])
    def rule(row: Row) -> None:
        seen.append("ran")

    @app.job(name="plain", max_attempts=1)
    def plain(*, row: Row) -> None:
        seen.append("ran")

    plain.after_dead(lambda job, error: seen.append(("dead", str(error), job.arguments.args)))
    handles = [rule.perform_later(Row()), plain.perform_later(row=Row())]
    stats = work(app)
    assert (stats.succeeded, stats.dead) == (1, 1)
    assert handles[0].discarded == "Gone: row 7"
    assert "while restoring argument 'row' of plain" in str(handles[1].job().last_error)
    assert seen == [("dead", "row 7", ())]


def test_a_serializer_that_is_missing_here_is_like_a_class_that_is(
    app: App, note: Any, clock: ManualClock
) -> None:
    app.serializer(
        complex, encode=lambda value: [value.real, value.imag], decode=lambda pair: complex(*pair), name="c"
    )
    handle = note.perform_later(1j)
    known = app._serializers._by_name.pop("c")
    work(app)
    assert (handle.status(), handle.job().attempts) == (JobState.READY, 0)
    app._serializers._by_name["c"] = known
    clock.advance(15)
    work(app)
    assert seen == [1j]
    del app._serializers._by_name["c"]
    with pytest.raises(
        UnknownSerializerError, match="the serializer 'c', which this process has not registered"
    ):
        handle.result()
    other = note.perform_later(2j)
    work(app)
    clock.advance(3600)
    work(app)
    assert UnknownJobError.__name__ in str(other.job().last_error)
    assert "serializer 'c'" in str(other.job().last_error)


def test_serializers_that_can_not_be_meant_are_refused(app: App) -> None:
    class Thing:
        pass

    class Other:
        pass

    for kind in (int, dict, list, datetime):
        with pytest.raises(ValueError, match="is stored by the queue itself"):
            app.serializer(kind, encode=str, decode=str)
    with pytest.raises(ValueError, match="has a serializer already: 'tuple'"):
        app.serializer(tuple, encode=list, decode=tuple)
    with pytest.raises(TypeError, match="takes a type"):
        app.serializer(Thing())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="say how it travels"):
        app.serializer(Thing)
    for half in ({"encode": str}, {"decode": str}):
        with pytest.raises(TypeError, match="needs both encode and decode"):
            app.serializer(Thing, **half)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="encode must be a function"):
        app.serializer(Thing, encode=3, decode=str)  # type: ignore[arg-type]
    for name in ("", 3):
        with pytest.raises(TypeError, match="name must be a str"):
            app.serializer(Thing, encode=str, decode=str, name=name)  # type: ignore[arg-type]
    for name in ("map", "discarded", "set"):
        with pytest.raises(ValueError, match="a serializer of the name"):
            app.serializer(Thing, encode=str, decode=str, name=name)
    app.serializer(Thing, encode=str, decode=str, name="thing")
    with pytest.raises(ValueError, match="has a serializer already: 'thing'"):
        app.serializer(Thing, encode=str, decode=str)
    with pytest.raises(ValueError, match="a serializer of the name 'thing'"):
        app.serializer(Other, encode=str, decode=str, name="thing")
