"""Each format is read in pieces of any size with the values that `json` gives, and errors say where."""

import io
import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobroker_tools import readers
from nobroker_tools.failures import BadInputError
from nobroker_tools.readers import Batch, Parser, read_json, read_jsonl
from nobroker_tools.tables import read_csv, read_msgpack

Reader = Callable[[IO[bytes], int], Iterator[Batch]]


def read(reader: Reader, data: bytes, size: int = 1000) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    total = 0
    for batch in reader(io.BytesIO(data), size):
        assert len(batch.values) <= size
        found += zip(batch.places, batch.values, strict=True)
        assert batch.bytes_read >= total
        total = batch.bytes_read
    assert total == len(data)
    return found


def fails(reader: Reader, data: bytes) -> BadInputError:
    with pytest.raises(BadInputError) as caught:
        read(reader, data)
    return caught.value


@pytest.fixture(params=["orjson", "json"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything with the faster parser and without it."""
    if request.param == "orjson":
        pytest.importorskip("orjson")
    else:
        monkeypatch.setattr(readers, "_find_fast_loads", lambda: None)
    return str(request.param)


@pytest.fixture(params=[2**20, 7, 1])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces so small that everything is cut everywhere."""
    monkeypatch.setattr(readers, "CHUNK_BYTES", request.param)
    return int(request.param)


def test_json_lines(chunk: int) -> None:
    data = '{"a": 1}\n\n  \n"zwei"\r\n[3, null]\n \t4 \n5.0\n"é😀"'.encode()
    expected = [(1, {"a": 1}), (4, "zwei"), (5, [3, None]), (6, 4), (7, 5.0), (8, "é😀")]
    for size in (1, 2, 1000):
        assert read(read_jsonl, data, size) == expected
    assert read(read_jsonl, b"\xef\xbb\xbf1\n2") == [(1, 1), (2, 2)]
    assert read(read_jsonl, b"") == []
    assert read(read_jsonl, b"\n\n") == []


ODD = [
    "NaN", "-Infinity", "1e999", "18446744073709551616", "-9223372036854775809", "1" * 400,
    '{"a":1,"b":2,"a":3}', '"\\ud83d"', '"\\ud83d\\ude00"',
    "-0", "-0.0", "1E5", "0.12345678901234567890123",
    "123456789012345678", '"\\u0000"', "[" * 900 + "]" * 900, "[" * 5000 + "]" * 5000,
    '"\x7f\u2028"', '""', "{}", "[]",
]  # fmt: skip


@pytest.mark.parametrize("line", ODD, ids=lambda line: line[:25])
def test_odd_lines_are_read_as_the_standard_library_reads_them(line: str) -> None:
    for lines in ([line], ["1", line, "2"]):
        batch = Parser().batch(lines, 1, 0)
        assert len(batch.values) == len(lines)
        found = batch.values[len(lines) // 2]
        if line.startswith("[" * 900):
            assert isinstance(found, list)
            continue
        expected = json.loads(line)
        assert type(found) is type(expected)
        assert repr(found) == repr(expected)
        if isinstance(expected, float) and expected == 0:
            assert math.copysign(1, found) == math.copysign(1, expected)


@given(st.lists(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=10,
), max_size=8))  # fmt: skip
def test_any_json_is_read_as_the_standard_library_reads_it(values: list[Any]) -> None:
    lines = [json.dumps(value) for value in values]
    assert repr(Parser().batch(lines, 1, 0).values) == repr([json.loads(line) for line in lines])


@given(st.text(alphabet='[]{},:"1-.e tnul\\', max_size=12))
def test_what_is_not_json_is_refused_alike(line: str) -> None:
    try:
        expected: Any = [json.loads(line)]
    except ValueError:
        expected = [] if line.strip() == "" else None
    if expected is None:
        with pytest.raises(BadInputError):
            Parser().batch(["1", line], 1, 0)
    else:
        assert repr(Parser().batch(["1", line], 1, 0).values) == repr([1, *expected])


@pytest.mark.parametrize(
    "bad", [b"{'a': 1}", b"1,2", b"1 2", b"[1", b"2]", b"tru", b"{}{}", b"\xff\xfe", b"9" * 5000]
)
def test_a_bad_line_is_named(bad: bytes, chunk: int) -> None:
    error = fails(read_jsonl, b"1\n\n{}\n" + bad + b"\n[]\n")
    assert error.line == 4
    assert "line 4" in str(error)


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "CHUNK_BYTES", 10)
    monkeypatch.setattr(readers, "MAX_ITEM_BYTES", 100)
    for reader in (read_jsonl, read_json):
        assert "longer than 100 bytes" in str(fails(reader, b'"' + b"x" * 1000))


def test_json_arrays(chunk: int) -> None:
    data = '[{"a": 1}, "zw,]ei",\n[3, null] , 45,\n-6.25e1, true, "é\\n😀\\ud83d", [], {}]\n'.encode()
    expected = list(zip([1, 1, 2, 2, 3, 3, 3, 3, 3], json.loads(data), strict=True))
    for size in (1, 2, 1000):
        assert read(read_json, data, size) == expected
    assert read(read_json, b"[ ]") == []
    assert read(read_json, b" ") == []
    assert read(read_json, b'\xef\xbb\xbf{"one": 1} ') == [(1, {"one": 1})]
    assert read(read_json, b"12") == [(1, 12)]
    assert read(read_json, b'["' + b"x" * 3000 + b'"]') == [(1, "x" * 3000)]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[1,\n2", 2),
        (b"[1,\n", 2),
        (b"[", 1),
        (b"[1,\n2]\n3", 3),
        (b"1\n2\n", 2),
        (b"[1,\n2 3]", 2),
        (b'[1,\n{"a":\n oops, "b": "' + b"x" * 100 + b'"}]', 3),
        (b'[1,\n"never ends]', 2),
        (b"[1,]", 1),
        (b'[1,\n"\xff"]', 2),
        (b"[1,\n" + b"9" * 5000 + b"]", 2),
        (b"[" * 100000, 1),
    ],
)
def test_a_bad_array_is_told_with_its_line(data: bytes, line: int) -> None:
    assert fails(read_json, data).line == line


def test_csv(chunk: int) -> None:
    data = '\ufeffname,n,"odd, name"\r\nann,1,\n\n"b\n""ö""",2,x\n'.encode()
    assert read(read_csv, data) == [
        (2, {"name": "ann", "n": "1", "odd, name": ""}),
        (5, {"name": 'b\n"ö"', "n": "2", "odd, name": "x"}),
    ]
    assert read(read_csv, b"") == []
    assert read(read_csv, b"a,b\n") == []
    assert read(read_csv, b"a\n" + b"x" * 200_000 if chunk > 7 else b"a\nx")[0][0] == 2


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"a,b\n1,2\n3\n", 3),
        (b"a,b\n1,2,3\n", 2),
        (b"a,a\n1,2\n", 1),
        (b'a\n"x" y\n', 2),
        (b"a\n1\n\xff\n", 2),
        (b'a\n"x', 2),
    ],
)
def test_a_bad_csv_row_is_told_with_its_line(data: bytes, line: int) -> None:
    found = fails(read_csv, data).line
    assert found is not None
    assert abs(found - line) <= (1 if b"\xff" in data else 0)


def test_msgpack(chunk: int) -> None:
    moment = datetime(2024, 5, 1, 10, tzinfo=UTC)
    values = [
        {"a": b"\0"},
        [1, {2: None}],
        "é",
        2**64 - 1,
        {b"k": 1.5},
        msgpack.Timestamp.from_datetime(moment),
    ]
    data = b"".join(map(msgpack.packb, values))
    expected = list(enumerate([*values[:-1], moment], 1))
    for size in (1, 4, 1000):
        assert read(read_msgpack, data, size) == expected
    assert read(read_msgpack, b"") == []


@pytest.mark.parametrize(
    "bad",
    [
        b"\xc1",
        msgpack.packb("text")[:-1],
        msgpack.packb(msgpack.ExtType(5, b"x")),
        b"\xa1\xff",
        b"\x81\x90\x01",
        b"\x91" * 5000,
    ],
)
def test_bad_msgpack_is_told_with_the_number_of_the_object(bad: bytes, chunk: int) -> None:
    error = fails(read_msgpack, msgpack.packb(1) + msgpack.packb({}) + bad)
    assert error.item == 3
    assert "object 3" in str(error)
