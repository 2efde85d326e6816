"""Many lengths of time in little memory, as exact as is said."""

from __future__ import annotations

import random

import pytest

from nobroker.running import metrics
from nobroker.running.histogram import ERROR, Histogram


def test_sums_take_no_more_memory_for_more_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_NAMES", 3)
    kept: dict[str, Histogram] = {}
    for number in range(10):
        metrics._of(kept, f"job-{number}", Histogram).add(1)
    assert {name: one.count for name, one in kept.items()} == {
        "job-0": 1, "job-1": 1, "job-2": 1, metrics.OTHERS: 7,
    }  # fmt: skip


def test_quantiles_are_as_exact_as_is_said() -> None:
    draw = random.Random(5)
    for scale in (1e-3, 1e-2, 10.0, 1e5):
        values = [draw.lognormvariate(0, 1.5) * scale for _ in range(2000)]
        one = Histogram()
        for value in values:
            one.add(value)
        values.sort()
        for share in (0.01, 0.5, 0.95, 0.99, 1.0):
            exact = values[max(0, int(share * len(values) + 0.9999999) - 1)]
            assert one.quantile(share) == pytest.approx(exact, rel=ERROR)
        assert one.mean == pytest.approx(sum(values) / len(values))
        assert one.longest == values[-1]
        assert len(one._counts) < 400


def test_quantiles_of_the_extremes() -> None:
    one = Histogram()
    assert (one.quantile(0.5), one.mean, one.longest) == (0.0, 0.0, 0.0)
    for value in (0.0, 1e-9, 1e30):
        one.add(value)
    assert one.quantile(0.1) <= 1e-6
    assert one.quantile(1) > 1e9
