"""Many lines that are alike, put together column by column.

The jobs of one record differ in a few places only. What they share is worded once, what differs is a column
of texts, and the loops over the lines are C's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any

import msgpack

from nobroker.values import unpack

from .jsontext import encode_each
from .jsonvalue import dumps, is_text

AT_ONCE = 1000
"""How many lines are put together at a time."""


class Lines:
    """`count` JSON objects, a line each, with the fields in the order in which they are added."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._columns: list[Iterable[str]] = []
        self._fixed = ""
        self._mark = "{"

    def same(self, fields: dict[str, Any]) -> None:
        """Fields that all lines share."""
        self.same_fields(dumps(fields)[1:-1])

    def same_fields(self, text: str) -> None:
        """As `same`, of the text between the braces."""
        self._fixed += self._mark + text
        self._mark = ","

    def same_text(self, name: str, text: str) -> None:
        """A field that all lines share, as JSON."""
        self._fixed += f'{self._mark}"{name}":{text}'
        self._mark = ","

    def texts(self, name: str, texts: Sequence[str], before: str = "", after: str = "") -> None:
        """A field with a text of its own in each line; `before` and `after` complete the texts to JSON."""
        self._fixed += f'{self._mark}"{name}":{before}'
        self.more(texts)
        self._fixed, self._mark = after, ","

    def more(self, texts: Sequence[str]) -> None:
        """Whole fields for each line, behind others: a text is empty or begins with a comma."""
        self._columns += (repeat(self._fixed, self._count), texts)
        self._fixed = ""

    def moments(self, name: str, value: int | list[int] | None) -> None:
        """A field of seconds, from microseconds since the epoch: one for all, or one for each line."""
        if isinstance(value, list):
            self.texts(name, [repr(us / 1e6) for us in value])
        else:
            self.same_text(name, "null" if value is None else repr(value / 1e6))

    def ids(self, prefix: str, seqs: Sequence[str], own: Sequence[str | None] | None) -> None:
        """The field `id`: the callers' own, and where there is none, the prefix and the sequence number."""
        if own is None:
            self.texts("id", seqs, f'"{prefix}', '"')
        else:
            pairs = zip(own, seqs, strict=True)
            self.texts("id", text_of_each([prefix + seq if mine is None else mine for mine, seq in pairs]))

    def text(self) -> str:
        """All of it, line breaks included.

        Raises `ValueError` when a column has not one text for each line.
        """
        rows = zip(*self._columns, repeat(self._fixed + "}\n", self._count), strict=True)
        return "".join(chain.from_iterable(rows))


def packed_texts(packed: bytes) -> list[str]:
    """The values of a packed array, each as `dumps` words it.

    Raises `ValueError` when the bytes are no array of values.
    """
    try:
        # What passes is what JSON has: the unpacker refuses tagged types, keys that are no text and lone
        # surrogates, the encoder bytes, NaN and whatever is left.
        values = msgpack.unpackb(packed, ext_hook=_refuse)
        if type(values) is list:
            texts = encode_each(values)
            if '{"$' not in "".join(texts):
                return texts
    except (ValueError, TypeError, RecursionError):
        pass  # it takes the long way, which is also the one that knows what to complain of
    values = unpack(packed)
    if type(values) is not list:
        raise ValueError("not an array of values")
    return [dumps(value) for value in values]


def packed_text(packed: bytes) -> str:
    """As `packed_texts`, of one value."""
    return packed_texts(b"\x91" + packed)[0]


def text_of_each(strings: list[str]) -> list[str]:
    """Each as `dumps` words it."""
    return encode_each(strings) if is_text("".join(strings)) else list(map(dumps, strings))


def _refuse(code: int, data: bytes) -> Any:
    raise ValueError(f"a value of type {code} has no JSON of its own")
