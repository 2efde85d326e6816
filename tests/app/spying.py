"""Hooks that note that they were called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nobroker import JobContext

seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def around(name: str) -> Callable[[JobContext], Iterator[None]]:
    def hook(job: JobContext) -> Iterator[None]:
        seen.append(f"{name} in")
        yield
        seen.append(f"{name} out")

    return hook


def hook(name: str) -> Callable[..., None]:
    def hook(job: JobContext, *args: Any) -> None:
        seen.append(name)

    return hook
