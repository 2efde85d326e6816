"""A payload is strict JSON or text; nothing in between."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker.cli.failures import CommandError
from nobroker.cli.payloads import parse_payload


@pytest.mark.parametrize(
    "text, value",
    [
        ('{"a": [1, 2.5, null, true]}', {"a": [1, 2.5, None, True]}),
        ("7", 7),
        ('"quoted"', "quoted"),
        (" 1 ", 1),
        ("null", None),
        (str(2**200), 2**200),
    ],
)
def test_json(text: str, value: Any) -> None:
    assert parse_payload(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "[NaN]",
        '{"a": Infinity}',
        "hello",
        "",
        "{'a': 1}",
        "[1,]",
        "01",
        "1 2",
        "\udcff",
    ],
)
def test_what_is_not_strict_json_is_text(text: str) -> None:
    assert parse_payload(text) == text


@pytest.mark.parametrize("text", ["1e999", "[-1e999]", "9" * 5000, "[" * 100_000 + "]" * 100_000])
def test_json_that_can_not_be_kept_as_it_stands_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        parse_payload(text)
