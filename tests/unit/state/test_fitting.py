"""Heads that verify and cannot be true are refused before anything is done by them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from nobroker.state import fitting, kinds


class TestRescheduled:
    head: Mapping[str, Any] = MappingProxyType({"t": 1, "q": [1, 3], "a": 9})

    @pytest.mark.parametrize("more", [{}, {"p": -5, "m": 1, "x": 7, "w": True}])
    def test_as_it_is_written(self, more: dict[str, Any]) -> None:
        fitting.check(kinds.RESCHEDULE, {**self.head, **more}, 0, 100)

    @pytest.mark.parametrize(
        "wrong",
        [{"a": -1}, {"a": 2**63}, {"a": b"12345678"}, {"x": -1}, {"x": None}, {"p": "1"}, {"m": None},
         {"w": 1}, {"q": [3, 1]}, {"q": [1]}, {"q": [1, 10**6]}],
    )  # fmt: skip
    def test_otherwise(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError):
            fitting.check(kinds.RESCHEDULE, {**self.head, **wrong}, 0, 100)

    def test_without_a_time(self) -> None:
        with pytest.raises(KeyError):
            fitting.check(kinds.RESCHEDULE, {"t": 1, "q": [1, 1]}, 0, 100)


@pytest.mark.parametrize("kind", [kinds.NACK, kinds.RECLAIM, kinds.RELEASE])
class TestGivenBack:
    def test_with_a_packed_state_or_none(self, kind: int) -> None:
        head: dict[str, Any] = {"t": 1, "q": [1, 1], "a": [1]}
        fitting.check(kind, head, 0, 100)
        fitting.check(kind, {**head, "J": b"\xc0"}, 0, 100)

    @pytest.mark.parametrize("state", [None, 1, "text", [1]])
    def test_with_a_state_that_is_not_packed(self, kind: int, state: Any) -> None:
        with pytest.raises(ValueError, match="state"):
            fitting.check(kind, {"t": 1, "q": [1, 1], "a": [1], "J": state}, 0, 100)
