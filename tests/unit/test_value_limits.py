"""Limits of depth and size, reading junk, and error texts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobroker.errors import SerializationError
from nobroker.values import (
    BATCH_BYTES,
    BATCH_JOBS,
    MAX_DEPTH,
    MAX_VALUE_BYTES,
    join_array,
    pack_batches,
    pack_list,
    pack_value,
    split_array,
    storable_text,
    unpack,
)


class Text(str):
    __slots__ = ()


def nested(depth: int, kind: str) -> Any:
    value: Any = [] if kind == "list" else () if kind == "tuple" else {}
    for level in range(depth - 1):
        if kind == "list" or (kind == "mixed" and level % 2):
            value = [value]
        elif kind == "tuple":
            value = (value,)
        else:
            value = {"k": value}
    return value


def depth_of(value: Any) -> int:
    depth = 0
    while type(value) in (list, dict):
        depth += 1
        value = (value[0] if type(value) is list else value["k"]) if value else None
    return depth


class TestDepth:
    @pytest.mark.parametrize("kind", ["list", "dict", "tuple", "mixed"])
    @pytest.mark.parametrize("depth", [1, 100, 200, 255, 256, MAX_DEPTH - 1, MAX_DEPTH])
    def test_up_to_the_limit_both_ways(self, kind: str, depth: int) -> None:
        for pack in (
            pack_value,
            lambda value: pack_list([value])[1:],
            lambda value: pack_batches([value])[0][1][1:],
        ):
            assert depth_of(unpack(pack(nested(depth, kind)))) == depth

    @pytest.mark.parametrize("kind", ["list", "dict", "tuple", "mixed"])
    @pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 505, 510, 511, 512, 513, 1000, 100_000])
    def test_beyond_it(self, kind: str, depth: int) -> None:
        value = nested(depth, kind)
        try:
            for pack in (
                pack_value,
                lambda value: pack_list([1, value]),
                lambda value: pack_batches([value]),
            ):
                with pytest.raises(SerializationError, match=f"more than {MAX_DEPTH} deep"):
                    pack(value)
        finally:
            while value:  # taken apart step by step: freeing it at once could exhaust the stack
                value = value["k"] if type(value) is dict else value[0]

    def test_the_limit_is_the_documented_one(self) -> None:
        assert MAX_DEPTH == 500

    @pytest.mark.parametrize("leaf", [1, "x", b"y", date(2026, 1, 1), 2**70, None])
    def test_a_leaf_at_the_bottom_is_no_level(self, leaf: Any) -> None:
        value = leaf
        for _ in range(MAX_DEPTH):
            value = [value]
        found = unpack(pack_value(value))
        for _ in range(MAX_DEPTH):
            (found,) = found
        assert found == leaf

    def test_what_contains_itself(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        table: dict[str, Any] = {}
        table["t"] = [table]
        for value in (loop, table, {"x": loop}):
            with pytest.raises(SerializationError, match="contains itself"):
                pack_value(value)

    def test_wide_is_not_deep(self) -> None:
        shared = [1]
        value = [shared] * 10_000
        assert unpack(pack_value(value)) == value


class TestSize:
    @pytest.mark.parametrize("over", [0, 1])
    def test_the_packed_size_is_what_counts(self, over: int) -> None:
        value = b"x" * (MAX_VALUE_BYTES - 5 + over)
        if not over:
            assert len(pack_value(value)) == MAX_VALUE_BYTES
            assert unpack(pack_value(value)) == value
            assert pack_batches([value, value, 1])[0][0] == 1
            return
        for pack in (pack_value, lambda value: pack_list([value]), lambda v: pack_batches([1, v])):
            with pytest.raises(SerializationError, match="bytes packed"):
                pack(value)

    def test_many_that_are_large_together(self) -> None:
        values = [b"x" * (MAX_VALUE_BYTES // 2)] * 5
        batches = pack_batches(values)
        assert sum(count for count, _ in batches) == 5
        assert [part for _, packed in batches for part in unpack(packed)] == values

    def test_batches_are_bounded(self) -> None:
        batches = pack_batches(b"x" * 1500 for _ in range(2500))
        assert sum(count for count, _ in batches) == 2500
        assert max(count for count, _ in batches) <= BATCH_JOBS
        assert max(len(packed) for _, packed in batches) <= BATCH_BYTES

    def test_an_iterable_that_raises(self) -> None:
        def walk() -> Iterator[int]:
            yield 1
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            pack_batches(walk())

    def test_a_value_that_changes_its_mind_in_the_middle_does_no_harm(self) -> None:
        """Another thread fills the list while it is packed: a list comes out, or a typed error."""
        value: list[int] = [0] * 1000
        stop = threading.Event()

        def change() -> None:
            while not stop.is_set():
                value.append(1)
                if len(value) > 5000:
                    del value[1000:]

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(200):
                try:
                    found = unpack(pack_value(value))
                except SerializationError:
                    continue
                assert type(found) is list
        finally:
            stop.set()
            thread.join()


class TestUnpacking:
    @pytest.mark.parametrize(
        "data",
        [b"", b"\xc1", b"\x91",
         b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x01\x01", b"\xd4\x63\x00",
         b"\xd4\x02\x00", b"\xd4\x03\x00", b"\xd4\x06\xff", b"\xd4\x07\x00", b"\xd4\x05\xc0", b"\xa1\xff",
  b"\x81\x90\x01", b"\xc7\x00\x01", b"\xd6\xff\x00\x00\x00\x00"],
    )  # fmt: skip
    def test_junk_is_a_value_error_or_a_value(self, data: bytes) -> None:
        try:
            unpack(data)
        except ValueError:
            return
        assert data in (b"\xc7\x00\x01", b"\xd6\xff\x00\x00\x00\x00")

    @given(st.binary(max_size=60))
    def test_any_junk(self, data: bytes) -> None:
        for reader in (unpack, split_array):
            with contextlib.suppress(ValueError):
                reader(data)

    def test_split_and_join(self) -> None:
        values = [None, {"a": [1]}, b"x" * 100, 2**80, "\ud800"]
        packed = pack_list(values)
        parts = split_array(packed)
        assert [unpack(part) for part in parts] == values
        assert join_array(parts) == packed
        assert split_array(join_array([])) == []
        with pytest.raises(ValueError):
            split_array(pack_value({"a": 1}))
        with pytest.raises(ValueError):
            split_array(packed[:-1])

    def test_each_thread_packs_for_itself(self) -> None:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for n in range(300):
                    value = {"n": [number, n, date(2026, 1, 1), 2**70 + n]}
                    assert unpack(pack_value(value)) == value
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


class TestStorableText:
    @pytest.mark.parametrize(
        ("error", "text"),
        [
            ("plain", "plain"), ("", ""), ("bad \udcff \x00", "bad \\udcff \\x00"), (ValueError("v"), "v"),
            (None, "None"),
            (b"x", "b'x'"), ("\ud83d\ude00", "\\ud83d\\ude00"), ("é😀", "é😀"),
        ],
    )  # fmt: skip
    def test_of_anything(self, error: object, text: str) -> None:
        assert storable_text(error) == text

    def test_of_what_cannot_say(self) -> None:
        class Sulky(Exception):
            def __str__(self) -> str:
                raise RecursionError

        class Lying(Exception):
            def __str__(self) -> str:
                return 5  # type: ignore[return-value]

        class Shouting(Exception):
            def __str__(self) -> str:
                return Text("sub-class")

        assert "Sulky" in storable_text(Sulky())
        assert "Lying" in storable_text(Lying())
        found = storable_text(Shouting())
        assert found == "sub-class"
        assert type(found) is str

    @given(st.text(st.characters(codec=None, exclude_categories=()), max_size=80), st.integers(1, 60))
    def test_never_too_long_and_always_storable(self, text: str, limit: int) -> None:
        found = storable_text(text, limit)
        assert len(found.encode()) <= limit
        assert "\0" not in found
        assert unpack(pack_value(found)) == found

    def test_the_end_is_kept(self) -> None:
        found = storable_text("x" * 10**6 + "the cause")
        assert found.endswith("the cause")
        assert len(found) == 65536
