"""No character that a terminal obeys or hides gets past `escape`."""

from __future__ import annotations

import json
import unicodedata

import pytest

from nobroker.cli.text import escape, escape_lines, gist, shorten

C0_AND_C1 = [*range(0x20), *range(0x7F, 0xA0)]
BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
SEPARATORS = [0x2028, 0x2029]
SURROGATES = [0xD800, 0xDBFF, 0xDC00, 0xDC80, 0xDFFF]
HIDDEN = [0x200B, 0x2060, 0xFEFF, 0xE0001, 0xE0041]


@pytest.mark.parametrize("code", C0_AND_C1 + BIDI + SEPARATORS + SURROGATES + HIDDEN)
def test_it_is_spelt_out(code: int) -> None:
    char = chr(code)
    safe = escape(f"a{char}b")
    assert char not in safe
    assert safe.startswith("a\\")
    assert safe.endswith("b")
    assert safe.isascii()
    # As a JSON escape: a line of JSON stays valid and says the same.
    assert json.loads(f'"{safe}"') == f"a{char}b"


def test_nothing_of_these_kinds_is_left_anywhere_in_unicode() -> None:
    kinds = {"Cc", "Cs", "Zl", "Zp"}
    directions = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for code in range(0x110000):
        char = chr(code)
        if unicodedata.category(char) in kinds or unicodedata.bidirectional(char) in directions:
            assert escape(char) != char, hex(code)


@pytest.mark.parametrize(
    "text", ["", "plain", "Grüße, 日本語", "👩\u200d🚀", 'back\\slash "quotes"', "[bold]x[/bold]"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert escape(text) == text


def test_escape_is_one_line_and_escape_lines_keeps_lines() -> None:
    assert escape("a\r\nb\nc\td") == "a\\r\\nb\\nc\\td"
    assert escape_lines("a\r\nb\x1b\nc") == "a\nb\\u001b\nc"


def test_gist_is_what_went_wrong() -> None:
    assert gist("Traceback:\n  File x\nValueError: \x1b[2Jno\n\n") == "ValueError: \\u001b[2Jno"
    assert gist("ValueError: no\n  File x\n") == "ValueError: no"
    assert gist(" \n") == ""


def test_shorten() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
