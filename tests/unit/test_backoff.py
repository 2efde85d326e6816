"""How long a failed job waits."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobroker import BackoffPolicy


def test_defaults() -> None:
    policy = BackoffPolicy()
    assert (policy.base, policy.factor, policy.max_delay, policy.jitter) == (1.0, 2.0, 300.0, 0.5)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 3), (2, 6), (3, 12), (4, 24), (5, 40), (6, 40), (2000, 40)]
)
def test_without_jitter_it_is_exact(attempt: int, seconds: float) -> None:
    assert BackoffPolicy(base=3, factor=2, max_delay=40, jitter=0).delay_for(attempt) == seconds


@pytest.mark.parametrize("attempt", [0, -1, -(10**9)])
def test_without_a_failure_there_is_no_wait(attempt: int) -> None:
    assert BackoffPolicy().delay_for(attempt) == 0.0


def test_the_random_share_is_below_the_delay_never_above() -> None:
    policy = BackoffPolicy(base=10, factor=1, jitter=0.25)
    found = [policy.delay_for(1) for _ in range(500)]
    assert 7.5 <= min(found) < 8
    assert 9.5 < max(found) <= 10


def test_full_jitter() -> None:
    found = [BackoffPolicy(base=10, factor=1, jitter=1).delay_for(1) for _ in range(500)]
    assert min(found) < 1
    assert max(found) > 9


def test_a_random_source_of_ones_own_makes_it_repeatable() -> None:
    policy = BackoffPolicy()
    one = [policy.delay_for(n, random.Random(5)) for n in range(1, 10)]
    assert one == [policy.delay_for(n, random.Random(5)) for n in range(1, 10)]


def test_delays_are_spread() -> None:
    assert statistics.stdev(BackoffPolicy().delay_for(1) for _ in range(200)) > 0.05


@given(
    st.floats(0, 1e308),
    st.floats(1, 1e308),
    st.floats(0, 1e308),
    st.floats(0, 1),
    st.integers(1, 2**31),
)
def test_bounded_for_every_attempt(
    base: float, factor: float, max_delay: float, jitter: float, attempt: int
) -> None:
    delay = BackoffPolicy(base, factor, max_delay, jitter).delay_for(attempt)
    assert math.isfinite(delay)
    assert 0 <= delay <= max_delay


@pytest.mark.parametrize("name", ["base", "factor", "max_delay", "jitter"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, "1", True, None])
def test_arguments(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        BackoffPolicy(**{name: value})


def test_more_arguments() -> None:
    for wrong in ({"factor": 0.99}, {"jitter": 1.01}):
        with pytest.raises(ValueError):
            BackoffPolicy(**wrong)


def test_zero_is_no_wait() -> None:
    for policy in (BackoffPolicy(base=0), BackoffPolicy(max_delay=0), BackoffPolicy(base=0, factor=1e300)):
        assert all(policy.delay_for(attempt) == 0.0 for attempt in (1, 2, 100, 10**6))
