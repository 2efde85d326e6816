"""JSON text to values and back at any depth.

The standard library's encoder and decoder recurse, and how deep they get depends on the interpreter and on
the caller's own
stack. Job payloads may be nested deeper than that, so after a `RecursionError` the same work is done here
with a list as stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import repeat
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_WORD = re.compile("|".join(_WORDS))
_STRICT = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
# What `_STRICT` makes anew for each value, which takes longer than the value. Some interpreters have none.
_PIECES: Any = c_make_encoder and c_make_encoder(
    None, _STRICT.default, encode_basestring_ascii, None, ":", ",", False, False, False
)


def encode(value: Any) -> str:
    """Strict JSON, in ASCII without line breaks, of dicts with str keys, lists, str, int, float, bool, None.

    Raises `ValueError` for NaN and infinities and `TypeError` for other types.
    """
    try:
        return _STRICT.encode(value)
    except RecursionError:
        return "".join(_encode_pieces(value))


def encode_each(values: list[Any]) -> list[str]:
    """As `encode`, of each of many values, but `RecursionError` is raised as well."""
    if _PIECES is None:
        return list(map(_STRICT.encode, values))
    return list(map("".join, map(_PIECES, values, repeat(0))))


def decode(text: str) -> Any:
    """The value of a JSON text; NaN and Infinity are taken, as the standard library does.

    Raises `JSONDecodeError`.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return _Parser(text).run()


def _encode_pieces(value: Any) -> Iterator[str]:
    leaf = _STRICT.encode
    stack: list[tuple[Iterator[Any], bool, str]] = [(iter((value,)), False, "")]
    first = True
    while stack:
        items, keyed, closer = stack[-1]
        try:
            item = next(items)
        except StopIteration:
            stack.pop()
            first = False
            yield closer
            continue
        if not first:
            yield ","
        first = False
        if keyed:
            key, item = item
            yield leaf(key) + ":"
        if isinstance(item, dict) and item:
            yield "{"
            stack.append((iter(item.items()), True, "}"))
            first = True
        elif isinstance(item, (list, tuple)) and item:
            yield "["
            stack.append((iter(item), False, "]"))
            first = True
        else:
            yield leaf(item)


class _Parser:
    """One text, read once from left to right with the open arrays and objects on a list."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open: list[Any] = []
        self.key: list[str] = []

    def run(self) -> Any:
        found: Any = None
        while True:
            found, complete = self._value()
            while complete:
                if not self.open:
                    if self._skip() != len(self.text):
                        raise JSONDecodeError("Extra data", self.text, self.at)
                    return found
                found, complete = self._place(found)

    def _skip(self) -> int:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def _peek(self) -> str:
        return self.text[self._skip() : self.at + 1]

    def _value(self) -> tuple[Any, bool]:
        """Read one value, or the opening of one; the flag tells whether it is complete."""
        mark = self._peek()
        if mark == '"':
            found, self.at = scanstring(self.text, self.at + 1, True)
            return found, True
        if mark == "{":
            self.at += 1
            return self._opened({}, "}")
        if mark == "[":
            self.at += 1
            return self._opened([], "]")
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            whole, fraction, exponent = number.groups()
            return (float(number.group()) if fraction or exponent else int(whole)), True
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise JSONDecodeError("Expecting value", self.text, self.at)
        self.at = word.end()
        return _WORDS[word.group()], True

    def _opened(self, container: Any, closer: str) -> tuple[Any, bool]:
        if self._peek() == closer:
            self.at += 1
            return container, True
        self.open.append(container)
        if closer == "}":
            self._key()
        return None, False

    def _key(self) -> None:
        if self._peek() != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self.text, self.at)
        key, self.at = scanstring(self.text, self.at + 1, True)
        if self._peek() != ":":
            raise JSONDecodeError("Expecting ':' delimiter", self.text, self.at)
        self.at += 1
        self.key.append(key)

    def _place(self, value: Any) -> tuple[Any, bool]:
        """Put a complete value where it belongs and read the comma or the end after it."""
        container = self.open[-1]
        keyed = isinstance(container, dict)
        if keyed:
            container[self.key.pop()] = value
        else:
            container.append(value)
        mark = self._peek()
        self.at += 1
        if mark == ",":
            if keyed:
                self._key()
            return None, False
        if mark == ("}" if keyed else "]"):
            self.open.pop()
            return container, True
        raise JSONDecodeError("Expecting ',' delimiter", self.text, self.at - 1)
