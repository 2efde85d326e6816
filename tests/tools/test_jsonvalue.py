"""Payload values survive the way through strict JSON, at any depth."""

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nobroker_tools import jsontext
from nobroker_tools.jsonvalue import dumps, from_jsonable, loads, to_jsonable

zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.builds(
        timezone,
        st.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23)),
    ),
    st.builds(
        timezone, st.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23)), st.text()
    ),
)
texts = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["$bytes", "$map", "$", "\\ud800", "\ud83d\ude00"]
)
keys = st.one_of(texts, st.integers(), st.floats(), st.booleans(), st.binary(max_size=8), st.none())
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**9000), max_value=2**9000),
    st.floats(),
    texts,
    st.binary(max_size=40),
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(timezones=zones),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
)
payloads = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def same(one: Any, two: Any) -> bool:
    """Equal in value and type, NaN and the sign of zero, fold and zone included."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return len(one) == len(two) and all(
            same(a, b) and same(one[a], two[b]) for a, b in zip(one, two, strict=True)
        )
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(two)) or (
            one == two and math.copysign(1, one) == math.copysign(1, two)
        )
    if isinstance(one, Decimal):
        return str(one) == str(two)
    if isinstance(one, (datetime, time)):
        return (one.replace(tzinfo=None), one.fold, one.utcoffset(), one.tzname()) == (
            two.replace(tzinfo=None),
            two.fold,
            two.utcoffset(),
            two.tzname(),
        )
    return bool(one == two)


@given(payloads)
@example({"$bytes": "not really"})
@example({"$map": [[1, 2]]})
@example({1: "a", "1": "b", b"1": "c", None: "d", 2.5: "e", "\udcff": {"$str": {"$": {}}}})
@example(datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=timezone(timedelta(hours=1), "CET")))
@example([2**4096, -(2**4096), 10**40, -0.0, Decimal("sNaN"), Decimal("-0E+7")])
def test_every_payload_type_comes_back_with_its_type(value: Any) -> None:
    text = json.dumps(to_jsonable(value), allow_nan=False)
    assert same(from_jsonable(json.loads(text)), value)
    line = dumps(value)
    assert line.isascii()
    assert "\n" not in line
    assert same(loads(line), value)


def test_a_tuple_comes_back_as_a_list() -> None:
    assert loads(dumps((1, (2,)))) == [1, [2]]


def nested(kind: str, depth: int) -> Any:
    value: Any = b"deep"
    for _ in range(depth):
        value = {"list": [value], "dict": {"a": value}, "map": {7: value}, "tag": {"$map": value}}[kind]
    return value


def flat(value: Any) -> tuple[list[Any], Any]:
    """The chain of keys and the innermost value, compared without recursion."""
    chain: list[Any] = []
    while isinstance(value, (list, dict)):
        key = 0 if isinstance(value, list) else next(iter(value))
        chain.append((type(value), key, len(value)))
        value = value[key]
    return chain, value


@pytest.mark.parametrize("kind", ["list", "dict", "map", "tag"])
@pytest.mark.parametrize("depth", [200, 510, 5000])
def test_depth_is_no_limit(kind: str, depth: int) -> None:
    value = nested(kind, depth)
    assert flat(loads(dumps(value))) == flat(value)


@given(payloads)
def test_the_deep_writer_and_reader_agree_with_the_standard_library(value: Any) -> None:
    plain = to_jsonable(value)
    text = json.dumps(plain, separators=(",", ":"))
    assert "".join(jsontext._encode_pieces(plain)) == text
    assert jsontext._Parser(text).run() == json.loads(text)
    spaced = json.dumps(plain, indent=2)
    assert jsontext._Parser(spaced).run() == json.loads(spaced)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "[",
        "{",
        "[1",
        "[1,",
        "[1,]",
        "{]",
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        "{1:2}",
        "[1 2]",
        "1 2",
        "tru",
        '"',
        "-",
        "]",
        "[}",
    ],
)
def test_the_deep_reader_refuses_what_the_standard_library_refuses(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    with pytest.raises(json.JSONDecodeError):
        jsontext._Parser(text).run()


@pytest.mark.parametrize(
    "bad",
    [
        {"$what": 1},
        {"$": 1},
        {"$bytes": "***"},
        {"$bytes": 3},
        {"$float": "1.5"},
        {"$datetime": "yesterday"},
        {"$datetime": []},
        {"$datetime": ["2024-01-01T00:00:00", 7, None]},
        {"$date": 5},
        {"$timedelta": [10**12, 0, 0]},
        {"$timedelta": [1]},
        {"$decimal": "x"},
        {"$uuid": "x"},
        {"$int": "x"},
        {"$str": 1},
        {"$map": 1},
        {"$map": [[1]]},
        {"$map": [[[1], 2]]},
        {"$map": [[{"a": 1, "b": 2}, 2]]},
    ],
)
def test_a_bad_tag_is_a_value_error(bad: Any) -> None:
    with pytest.raises(ValueError):
        from_jsonable([{"in": bad}])


@pytest.mark.parametrize("bad", [object(), {1, 2}, 1j, [b"", bytearray(b"")]])
def test_what_is_no_payload_is_a_type_error(bad: Any) -> None:
    with pytest.raises(TypeError):
        to_jsonable(bad)


def test_the_tags_are_as_documented() -> None:
    assert to_jsonable(
        [
            float("nan"),
            b"ab",
            datetime(2024, 5, 1, 10, tzinfo=timezone(timedelta(hours=2))),
            date(2024, 5, 1),
            time(10),
            timedelta(1, 2, 3),
            Decimal("1.50"),
            UUID(int=1),
            "a\\\ud83d",
            {1: 2},
            {"$x": 1},
        ]
    ) == [
        {"$float": "nan"},
        {"$bytes": "YWI="},
        {"$datetime": "2024-05-01T10:00:00+02:00"},
        {"$date": "2024-05-01"},
        {"$time": "10:00:00"},
        {"$timedelta": [1, 2, 3]},
        {"$decimal": "1.50"},
        {"$uuid": "00000000-0000-0000-0000-000000000001"},
        {"$str": "a\\\\\\ud83d"},
        {"$map": [[1, 2]]},
        {"$map": [["$x", 1]]},
    ]
