"""Loading what is to run from a text, some variables and some arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker.app.errors import ConfigError
from nobroker.running.sources import Loaded, load

Load = Callable[..., Loaded]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """`load` in a directory with this ``queue.yml``; None: with none."""

    def make(text: str | None = None, variables: dict[str, str] | None = None, **arguments: Any) -> Loaded:
        if text is not None:
            (tmp_path / "queue.yml").write_text(text, encoding="utf-8")
        return load(tmp_path, environment=variables or {}, arguments=arguments)

    return make


@pytest.fixture
def problems(loaded: Load, tmp_path: Path) -> Callable[..., list[str]]:
    """What is wrong, a line each; the name of the directory left out."""

    def make(*words: Any, **arguments: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            loaded(*words, **arguments)
        lines = str(caught.value).splitlines()
        assert lines == [str(one) for one in caught.value.problems]
        return [line.replace(f"{tmp_path}/", "") for line in lines]

    return make
