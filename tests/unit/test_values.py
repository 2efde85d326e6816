"""Every type that is stored, and what is refused and where."""

from __future__ import annotations

import enum
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobroker.errors import NobrokerError, SerializationError
from nobroker.values import (
    pack_batches,
    pack_list,
    pack_value,
    split_array,
    unpack,
)

BERLIN = ZoneInfo("Europe/Berlin")

LEAVES: list[Any] = [
    None, True, False,
    0, -1, 127, 128, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64,
    -(2**63), -(2**63) - 1, 10**40, -(10**40), 1 << 8000,
    0.0, -0.0, 1.5, 1e308, 5e-324, float("inf"), float("-inf"),
    "", "text", "2026-01-01T00:00:00", "\ud83d", "f\udcff", "a\0b", "\U0001f600", "x" * 70_000,
    b"", b"\x00\xff", b"text", b"x" * 70_000,
    datetime(2026, 1, 1), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2026, 1, 1, fold=1), datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1))),
    date(2026, 1, 1), date.min, date.max,
    time(1, 2, 3, 4), time(23, 59, fold=1), time(12, tzinfo=UTC), time(12, tzinfo=BERLIN),
    timedelta(0), timedelta.min, timedelta.max, timedelta(days=-1, microseconds=1),
    Decimal("1.10"), Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E+1000"), Decimal("-0"),
    UUID(int=0), UUID(int=2**128 - 1),
    [], {}, [[]], {"a": {}}, [None], {"": None},
]  # fmt: skip

KEYS: list[Any] = [
    "",
    "a",
    "\ud800",
    0,
    1,
    -5,
    2**64,
    10**40,
    1.5,
    float("inf"),
    True,
    False,
    None,
    b"",
    b"k",
]


BATCHES: list[Callable[[Any], dict[Any, Any]]] = [
    lambda value: {"n": value},
    lambda value: {"n": value, "k": "x", "list": [1]},
    lambda value: {"k": [value], "n": {"in": value}},
    lambda value: {1: value, b"k": 2},
    lambda value: {} if type(value) is int and value == 0 else {"n": value},
    lambda value: {f"n{value!r:.9}": value, "k": {"in": 1}},
]
"""Payloads of one batch: alike, and not."""


def same(one: Any, other: Any) -> bool:
    """Equal, of the same types, at every depth; -0.0 is not 0.0; a fold and an offset count."""
    if type(one) is not type(other):
        return False
    if type(one) is list:
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is dict:
        return len(one) == len(other) and all(map(same, one.items(), other.items()))
    if type(one) is tuple:
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) in (float, Decimal):
        return repr(one) == repr(other)
    if type(one) in (datetime, time):
        return one.replace(tzinfo=None) == other.replace(tzinfo=None) and (
            (one.utcoffset(), one.fold) == (other.utcoffset(), other.fold)
        )
    return bool(one == other)


def shapes(value: Any) -> list[Any]:
    return [value, {"a": value}, [value], {"a": [{"b": value}]}, [1, {"x": [value, value]}, "z"]]


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    YES = "yes"


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Table(dict[str, int]):
    pass


class Row(list[int]):
    pass


class Bytes(bytes):
    pass


class Moment(datetime):
    pass


class Money(Decimal):
    pass


Point = namedtuple("Point", "x y")


class Lost(tzinfo):
    """A time zone that fails."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise LookupError("no such place")


REFUSED: list[Any] = [
    {1}, frozenset(), Colour.RED, Word.YES, Text("s"), Number(1), Table(), Row(), Bytes(b"b"),
    OrderedDict(),
    Moment(2026, 1, 1), Money(1), Point(1, 2), object(), print, int, 1j, Fraction(1, 2),
    bytearray(b"x"), memoryview(b"x"), msgpack.ExtType(7, b"x"), msgpack.Timestamp(1, 2),
    range(3), iter([]), PurePosixPath("a"), ..., NotImplemented, sys, ValueError("v"),
    lambda: None, UTC, BERLIN,
    datetime(2026, 1, 1, tzinfo=Lost()),
]  # fmt: skip


class TestRoundTrip:
    @pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: repr(leaf)[:30])
    def test_every_leaf_in_every_shape(self, leaf: Any) -> None:
        for value in shapes(leaf):
            assert same(unpack(pack_value(value)), value)
            assert same(unpack(pack_list([value, value])), [value, value])

    @pytest.mark.parametrize("make", BATCHES, ids=range(len(BATCHES)))
    @pytest.mark.parametrize("number", [0, 1, 3, 50])
    def test_batches(self, make: Callable[[Any], dict[Any, Any]], number: int) -> None:
        for leaf in (1, "x", [1, {"a": None}], {"b": [2.5]}, None):
            batch = [make(leaf)] + [make(n) for n in range(number)]
            assert same(unpack(pack_list(batch)), batch)

    def test_nan(self) -> None:
        found = unpack(pack_value([float("nan")]))
        assert found[0] != found[0]
        assert type(found[0]) is float

    @pytest.mark.parametrize("key", KEYS, ids=repr)
    def test_keys_are_kept_as_they_are(self, key: Any) -> None:
        for value in shapes({key: [key]}):
            assert same(unpack(pack_value(value)), value)

    def test_a_nan_key(self) -> None:
        (key,) = unpack(pack_value({float("nan"): 1}))
        assert key != key

    @pytest.mark.parametrize("value", [(), (1, 2), (1, (2, [3])), {"a": (b"x",)}, [(None,)]])
    def test_a_tuple_comes_back_as_a_list(self, value: Any) -> None:
        def listed(part: Any) -> Any:
            if isinstance(part, (tuple, list)):
                return [listed(item) for item in part]
            return {key: listed(item) for key, item in part.items()} if isinstance(part, dict) else part

        for shape in shapes(value):
            assert same(unpack(pack_value(shape)), listed(shape))

    def test_a_zone_by_its_name(self) -> None:
        moment = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)
        found = unpack(pack_value(moment))
        assert found == moment
        assert found.tzinfo is BERLIN
        assert found.fold == 1
        assert unpack(pack_value(datetime(2026, 1, 1, tzinfo=UTC))).tzinfo is UTC

    def test_a_zone_that_this_machine_does_not_know_keeps_its_offset(self) -> None:
        class Mine(tzinfo):
            key = "Nowhere/Land"

            def utcoffset(self, moment: datetime | None) -> timedelta:
                return timedelta(hours=5, seconds=1)

        moment = datetime(2026, 1, 1, tzinfo=Mine())
        found = unpack(pack_value(moment))
        assert found == moment
        assert found.utcoffset() == timedelta(hours=5, seconds=1)

    def test_a_zone_whose_name_lies_keeps_its_offset(self) -> None:
        class Liar(tzinfo):
            key = "Europe/Berlin"

            def utcoffset(self, moment: datetime | None) -> timedelta:
                return timedelta(hours=9)

        moment = datetime(2026, 1, 1, tzinfo=Liar())
        assert unpack(pack_value(moment)).utcoffset() == timedelta(hours=9)

    @pytest.mark.parametrize("key", ["../../etc/passwd", "", "a" * 1000, "/etc/hosts", "\0"])
    def test_a_zone_with_a_hostile_name(self, key: str) -> None:
        class Odd(tzinfo):
            def utcoffset(self, moment: datetime | None) -> timedelta:
                return timedelta(hours=1)

        zone = Odd()
        zone.key = key  # type: ignore[attr-defined]
        moment = datetime(2026, 1, 1, tzinfo=zone)
        assert unpack(pack_value(moment)).utcoffset() == timedelta(hours=1)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary()
            | st.text(st.characters(codec=None, exclude_categories=()))
            | st.datetimes(timezones=st.none() | st.timezones()) | st.dates() | st.times() | st.timedeltas()
            | st.decimals() | st.uuids(),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
                | st.text() | st.binary(),
                inner, max_size=4,
            ),
            max_leaves=20,
        )
    )  # fmt: skip
    def test_anything_of_those_types(self, value: Any) -> None:
        assert same(unpack(pack_value(value)), value)
        assert split_array(pack_list([value, 1])) == [pack_value(value), pack_value(1)]


class TestRefusals:
    @pytest.mark.parametrize("leaf", REFUSED, ids=lambda leaf: type(leaf).__name__)
    def test_the_answer_is_the_same_at_every_depth(self, leaf: Any) -> None:
        places = ["", r"['a']", "[0]", r"['a'][0]['b']", r"[1]['x'][0]"]
        for value, place in zip(shapes(leaf), places, strict=True):
            with pytest.raises(SerializationError) as caught:
                pack_value(value)
            message = str(caught.value)
            assert message.startswith(f"payload{place} "), message
            assert type(leaf).__name__ in message
            with pytest.raises(SerializationError):
                pack_value((value,))

    @pytest.mark.parametrize(
        "key",
        [(1, 2), date(2026, 1, 1), UUID(int=0), Decimal(1), Text("k"), Colour.RED, Word.YES, frozenset()],
    )
    def test_keys(self, key: Any) -> None:
        for value in shapes({"ok": 1, key: 2}):
            with pytest.raises(SerializationError, match="key of type"):
                pack_value(value)

    @pytest.mark.parametrize("leaf", REFUSED, ids=lambda leaf: type(leaf).__name__)
    @pytest.mark.parametrize("make", BATCHES, ids=range(len(BATCHES)))
    def test_one_among_many(self, make: Callable[[Any], dict[Any, Any]], leaf: Any) -> None:
        for value in (leaf, [leaf], {"in": leaf}, [{"in": [leaf]}]):
            batch = [make(number) for number in range(20)] + [make(value)] + [make(0)]
            with pytest.raises(SerializationError, match=r"^payloads\[20\]"):
                pack_list(batch)

    @pytest.mark.parametrize(
        "key", [memoryview(b"k"), Text("k"), Word.YES, Colour.RED, (1, "x"), msgpack.ExtType(1, b"x")]
    )
    def test_a_key_that_equals_an_allowed_one(self, key: Any) -> None:
        plain = [{other: 1, "a": 2} for other in ("k", b"k", "yes", 1)]
        for batch in ([*plain, {key: 1, "a": 2}], [{key: 1, "a": 2}, *plain], [*plain[:2], {"a": 2, key: 1}]):
            with pytest.raises(SerializationError, match=r"^payloads\[\d\] has a key of type"):
                pack_list(batch)
            with pytest.raises(SerializationError, match="has a key of type"):
                pack_list([{"in": batch}])

    def test_names(self) -> None:
        with pytest.raises(SerializationError, match=r"^metadata\['k'\] is a set"):
            pack_value({"k": set()}, "metadata")
        with pytest.raises(SerializationError, match=r"^payloads\[2\]\[0\] is a set"):
            pack_list([1, 2, [set()]])
        with pytest.raises(SerializationError, match=r"^payloads\[1234\] is a set"):
            pack_batches([*range(1234), set()])

    def test_a_long_key_is_shortened(self) -> None:
        with pytest.raises(SerializationError) as caught:
            pack_value({"k" * 10_000: object()})
        assert len(str(caught.value)) < 500

    def test_it_is_a_value_error_of_the_family(self) -> None:
        assert issubclass(SerializationError, ValueError)
        assert issubclass(SerializationError, NobrokerError)

    def test_a_value_that_lies_about_itself(self) -> None:
        class Liar:
            @property
            def __class__(self) -> type:  # type: ignore[override]
                return str

        with pytest.raises(SerializationError, match="Liar"):
            pack_value([Liar()])
