"""What callers pass: units, ranges, types."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobroker import arguments

CENTURY = 100 * 366 * 86400


class TestSeconds:
    @pytest.mark.parametrize(
        ("value", "micros"),
        [
            (0, 0),
            (1, 10**6),
            (0.5, 500_000),
            (1e-6, 1),
            (1e-7, 0),
            (-0.0, 0),
            (CENTURY, CENTURY * 10**6),
            (0.1 + 0.2, 300_000),
        ],
    )
    def test_microseconds(self, value: float, micros: int) -> None:
        found = arguments.seconds("delay", value)
        assert found == micros
        assert type(found) is int

    @pytest.mark.parametrize(
        "value",
        [
            math.nan,
            math.inf,
            -math.inf,
            -1,
            -1e-9,
            CENTURY + 1,
            1e308,
            10**400,
            "5",
            None,
            True,
            False,
            b"",
            [1],
        ],
    )
    def test_refused(self, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="delay"):
            arguments.seconds("delay", value)

    def test_positive(self) -> None:
        assert arguments.seconds("t", 1e-9, positive=True) == 1
        for value in (0, 0.0, -0.0, -1):
            with pytest.raises(ValueError, match="greater than 0"):
                arguments.seconds("t", value, positive=True)

    def test_optional(self) -> None:
        assert arguments.optional_seconds("t", None) is None
        assert arguments.optional_seconds("t", 1) == 10**6
        with pytest.raises(TypeError):
            arguments.optional_seconds("t", False)

    def test_wait(self) -> None:
        assert arguments.wait_seconds("wait", 0) == 0.0
        assert arguments.wait_seconds("wait", math.inf) >= CENTURY
        for value in (math.nan, -1, -math.inf, "1", None, True):
            with pytest.raises((TypeError, ValueError), match="wait"):
                arguments.wait_seconds("wait", value)

    @given(st.floats(0, CENTURY))
    def test_within_a_microsecond(self, value: float) -> None:
        assert abs(arguments.seconds("delay", value) / 1e6 - value) <= 1e-6


class TestWallTime:
    @pytest.mark.parametrize(
        ("value", "micros"),
        [
            (0, 0),
            (1.5, 1_500_000),
            (datetime(1970, 1, 2, tzinfo=UTC), 86400 * 10**6),
            (datetime(1970, 1, 1, 5, tzinfo=timezone(timedelta(hours=5))), 0),
            (datetime(9999, 12, 31, tzinfo=UTC), 253402214400 * 10**6),
            (None, None),
        ],
    )
    def test_moments(self, value: Any, micros: int | None) -> None:
        assert arguments.wall_time("run_at", value) == micros

    @pytest.mark.parametrize(
        "value",
        [-1, math.nan, math.inf, 253402300800, 1e300, 10**400, "now", True, datetime(2026, 1, 1), b"", [1]],
    )
    def test_refused(self, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="run_at"):
            arguments.wall_time("run_at", value)

    def test_a_naive_datetime_says_why(self) -> None:
        with pytest.raises(ValueError, match="time zone"):
            arguments.wall_time("run_at", datetime(2026, 1, 1))

    def test_before_1970(self) -> None:
        with pytest.raises(ValueError):
            arguments.wall_time("run_at", datetime(1969, 12, 31, tzinfo=UTC))


class TestWholeAndFlag:
    @pytest.mark.parametrize("value", [1.0, True, "1", None, math.nan, b"1"])
    def test_no_whole_number(self, value: Any) -> None:
        with pytest.raises(TypeError, match="n must be a whole number"):
            arguments.whole("n", value, 0, 10)

    def test_range(self) -> None:
        assert arguments.whole("n", 0, 0, 10) == 0
        assert arguments.whole("n", 10, 0, 10) == 10
        for value in (-1, 11, 10**400):
            with pytest.raises(ValueError, match="between 0 and 10"):
                arguments.whole("n", value, 0, 10)

    def test_flag(self) -> None:
        assert arguments.flag("f", True) is True
        for value in (0, 1, None, "true"):
            with pytest.raises(TypeError, match="f must be True or False"):
                arguments.flag("f", value)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or what it raises."""
    try:
        return list(call())
    except (TypeError, ValueError) as error:
        return type(error), str(error)


class Word(str):
    __slots__ = ()


class Real(float):
    pass


ODD_NUMBERS = [
    0, 1, CENTURY, 0.5, 1e-7, -0.0, 0.1 + 0.2, 2.5e-6, 3.5e-6, Real(1.5), math.nan, math.inf, -1, -1e-9,
    CENTURY + 1, float(CENTURY), 10**400, True, False, None, "5", [1],
]  # fmt: skip
ODD_TEXTS = [
    "a", "é", "\u200b", "a b", "\U0001f600", "x" * 255, "nb-", "n", "b-1", "nb-0123456789abc-7",
    "\u0100nb-0123456789abc-7", "", "x" * 256, "a\n", "\x7f", "\x9f", "é\x00", "\ud800", "\udc00", Word("w"),
    5, None, b"a", True,
]  # fmt: skip


class TestMany:
    """Many at once are what they are one by one: values and errors."""

    @given(st.lists(st.sampled_from(ODD_NUMBERS) | st.floats(0, CENTURY) | st.integers(0, CENTURY)))
    def test_seconds(self, values: list[Any]) -> None:
        one_by_one = outcome(lambda: [arguments.seconds("delays", value) for value in values])
        assert outcome(lambda: arguments.all_seconds("delays", iter(values))) == one_by_one

    @given(st.lists(st.sampled_from(ODD_TEXTS) | st.text(max_size=5)))
    def test_own_ids(self, values: list[Any]) -> None:
        one_by_one = outcome(lambda: [arguments.own_id(value) for value in values])
        assert outcome(lambda: arguments.own_ids(iter(values))) == one_by_one


class TestText:
    @pytest.mark.parametrize(
        "value", ["a", "é", "a b", "\U0001f600", "x" * 255, " ", "../", "nb-", "nb-abc-1"]
    )
    def test_own_ids(self, value: str) -> None:
        assert arguments.own_id(value) == value

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "x" * 256,
            "a\n",
            "\t",
            "\x7f",
            "\x9f",
            "\ud800",
            "a\udfffb",
            5,
            None,
            b"a",
            True,
            "nb-0123456789abc-7",
        ],
    )
    def test_no_own_ids(self, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="job_id"):
            arguments.own_id(value)

    @pytest.mark.parametrize(
        ("value", "made"),
        [
            ("nb-0123456789abc-1", True),
            ("nb-vvvvvvvvvvvvv-0", True),
            ("nb-0123456789abc-", False),
            ("nb-0123456789abw-1", False),
            ("nb-0123456789ab-1", False),
            ("nb-0123456789ABC-1", False),
            ("NB-0123456789abc-1", False),
            ("nb-0123456789abc-1x", False),
            ("nb-0123456789abc-\u0661", False),
            ("nb-0123456789abc-1-2", False),
            ("xnb-0123456789abc-1", False),
            ("nb-01234-789abc0-1", False),
        ],
    )
    def test_form_of_made_ids(self, value: str, made: bool) -> None:
        assert arguments.looks_made(value) is made

    def test_lanes(self) -> None:
        assert arguments.lane("lane", "") == ""
        assert arguments.optional_lane(None) is None
        assert arguments.lane_list(None) is None
        assert arguments.lane_list(["b", "a", "b"]) == ("b", "a")
        assert arguments.lane_list(iter("ab")) == ("a", "b")
        for value in ("ab", b"ab", [], [1], ["x" * 101], ["a\n"], 5):
            with pytest.raises((TypeError, ValueError)):
                arguments.lane_list(value)


@pytest.mark.parametrize(
    ("value", "size"), [(65536, 65536), (65537, 131072), (2**20, 2**20), (2**28 - 1, 2**28), (2**28, 2**28)]
)
def test_segment_size_is_rounded_up_to_a_power_of_two(value: int, size: int) -> None:
    assert arguments.segment_size(value) == size


@pytest.mark.parametrize("value", [65535, 0, -1, 2**28 + 1, 65536.0, True, "65536", None])
def test_no_segment_size(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="segment_size"):
        arguments.segment_size(value)
