"""Stored text made safe to print.

Payloads, ids, error texts and file names come from anywhere. Printed as they are they could move the cursor,
rewrite what stands above, or change the order in which a line is read. Everything that reaches a person goes
through `escape`, which writes such characters as the JSON escapes of themselves: `\\u001b` for ESC. A line of
JSON stays valid JSON, and nothing that was there is hidden.
"""

from __future__ import annotations

import re

# C0 and DEL and C1; the Arabic letter mark and the other marks, embeddings, overrides and isolates that steer
# the direction of writing; line and paragraph separator; invisible operators and the byte order mark; lone
# surrogates, which no encoding can print; interlinear marks; the tag characters, which no terminal shows.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_ELLIPSIS = "…"


def _spell(match: re.Match[str]) -> str:
    char = match.group()
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def escape(text: str) -> str:
    """Return `text` as one line without any character that a terminal would obey or hide."""
    return _UNSAFE.sub(_spell, text)


def escape_lines(text: str) -> str:
    """As `escape`, but line breaks (`\\n`, `\\r\\n`) remain line breaks: for tracebacks shown in full."""
    return "\n".join(escape(line) for line in text.replace("\r\n", "\n").split("\n"))


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, the last one an ellipsis where something was left out."""
    return text if len(text) <= width else text[: width - 1] + _ELLIPSIS


def gist(text: str) -> str:
    """Return the one line of an error text that says what went wrong, escaped: of a traceback the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return escape(lines[-1] if lines[0].startswith("Traceback") else lines[0])
