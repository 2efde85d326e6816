"""Heads that verify and cannot be true are refused before anything is done by them."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker.state import fitting, kinds


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
