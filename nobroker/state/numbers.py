"""Flat ranges and columns of numbers, as records carry them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator


def each(spans: list[int]) -> Iterator[int]:
    """The numbers of flat ranges `[first, last, first, last, …]`."""
    for at in range(0, len(spans), 2):
        yield from range(spans[at], spans[at + 1] + 1)


def ranges_of(numbers: Iterable[int]) -> list[int]:
    """Flat ranges of numbers, in their order."""
    spans: list[int] = []
    for number in numbers:
        if spans and number == spans[-1] + 1:
            spans[-1] = number
        else:
            spans += (number, number)
    return spans


def pack_words(code: str, values: Iterable[int]) -> bytes:
    """Numbers as little-endian items of an array type: `q` and `Q` have 8 bytes."""
    words = array(code, values)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def unpack_words(code: str, data: bytes) -> array[int]:
    """The reverse of `pack_words`."""
    words = array(code)
    words.frombytes(data)
    if sys.byteorder == "big":
        words.byteswap()
    return words


def column(value: int | bytes, index: int) -> int:
    """One for all, or the one at `index` of packed words `q`."""
    if isinstance(value, bytes):
        return int.from_bytes(value[8 * index : 8 * index + 8], "little", signed=True)
    return value


def columns(value: int | bytes, start: int, stop: int) -> int | list[int]:
    """As `column`, for the indexes from `start` to before `stop`: one for all, or one for each."""
    if isinstance(value, bytes):
        return unpack_words("q", value[8 * start : 8 * stop]).tolist()
    return value
