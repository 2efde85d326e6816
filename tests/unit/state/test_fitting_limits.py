"""Heads of records with limits: what the library writes is taken, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from nobroker.state import fitting, kinds


class TestLimits:
    head: Mapping[str, Any] = MappingProxyType({"t": 1, "n": 1, "s": 1})
    said: Mapping[str, Any] = MappingProxyType(
        {"k": [["a", 1], ["b", 2, 1]], "r": [["a", 1, 5], ["b", 2, 5, 1]], "x": True, "f": ["t", 3]}
    )

    def test_as_they_are_written(self) -> None:
        fitting.check(kinds.ENQUEUE, {**self.head, "c": dict(self.said)}, 9, 100)
        fitting.check(kinds.MOVE, {"t": 1, "n": 1, "q": [1, 1], "c": dict(self.said), "C": {}}, 9, 100)

    @pytest.mark.parametrize(
        "wrong",
        [{"k": [["a"]]}, {"k": [["a", 0]]}, {"k": [["a", 1, 1, 1]]}, {"k": [[1, 1]]}, {"k": [["a", "b"]]},
         {"k": 5}, {"r": [["a", 1]]}, {"r": [["a", 1, 0]]}, {"r": [["a", 1, 2**63]]}, {"x": False}, {"x": 1},
         {"f": ["t"]}, {"f": [1, 1]}, {"f": ["t", 0]}, {"f": None}],
    )  # fmt: skip
    def test_otherwise(self, wrong: dict[str, Any]) -> None:
        for key in "cC":
            with pytest.raises((ValueError, TypeError)):
                fitting.check(kinds.ENQUEUE, {**self.head, key: {**self.said, **wrong}}, 9, 100)

    def test_no_map(self) -> None:
        with pytest.raises(ValueError, match="map"):
            fitting.check(kinds.ENQUEUE, {**self.head, "c": ["k"]}, 9, 100)


class TestLanesAndWhatOutlivesJobs:
    base: Mapping[str, Any] = MappingProxyType(dict.fromkeys("skSKt", 1) | {"p": []})

    def test_as_they_are_written(self) -> None:
        fitting.check(kinds.LANE_LIMIT, {"t": 1, "l": "a", "n": 2}, 0, 100)
        fitting.check(kinds.LANE_LIMIT, {"t": 1, "l": "", "n": None}, 0, 100)
        more = {"L": [["a", 1]], "w": [["k", 5, [1, 2]]], "f": [["a", -1, 5]], "F": [["a", -1, "k", 5]]}
        fitting.check(kinds.RETIRE, {"B": {**self.base, **more}}, 0, 100)

    @pytest.mark.parametrize("wrong", [{"l": 1}, {"n": 0}, {"n": -1}, {"n": "1"}])
    def test_otherwise(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError):
            fitting.check(kinds.LANE_LIMIT, {"t": 1, "l": "a", "n": 2, **wrong}, 0, 100)

    @pytest.mark.parametrize(
        "wrong",
        [{"L": [["a", 0]]}, {"L": [[1, 1]]}, {"L": [1]}, {"w": [["k", 5, [1]]]}, {"w": [[1, 5, []]]},
         {"w": [["k", -5, []]]}, {"w": [["k", 5, ["a", 1]]]}, {"f": [[1, 1, 1]]}, {"f": [["a", 1, -1]]},
         {"F": [["a", 1, 2, 1]]}, {"F": [["a", "1", "k", 1]]}],
    )  # fmt: skip
    def test_a_base_that_is_none(self, wrong: dict[str, Any]) -> None:
        with pytest.raises((ValueError, TypeError)):
            fitting.check(kinds.RETIRE, {"B": {**self.base, **wrong}}, 0, 100)


class TestReplaced:
    head: Mapping[str, Any] = MappingProxyType({"t": 1, "n": 1, "q": [1, 1], "a": 9})

    def test_as_it_is_written(self) -> None:
        fitting.check(kinds.REPLACE, dict(self.head), 9, 100)

    @pytest.mark.parametrize("wrong", [{"n": 2, "q": [1, 2]}, {"a": b"12345678"}, {"q": [1, 2]}])
    def test_otherwise(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError):
            fitting.check(kinds.REPLACE, {**self.head, **wrong}, 9, 100)
