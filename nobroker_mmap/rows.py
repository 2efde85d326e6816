"""Rows of the index in memory, and as the bytes of sidecars and snapshots: columns, as small as they can be.

Invariants
- Rows are sorted by first key; of those with the same one, later records come after earlier ones.
- Nothing is added to packed rows.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import Final, cast, overload

COUNT: Final = 0xFFFF
"""Most keys of one row; and the bits of a span that say how many it has."""
_SPAN, _OFFSET = (2, 3) if sys.byteorder == "little" else (3, 2)
"""Where these are among the four words of a packed row, in the machine's order."""


_AT_ONCE: Final = 1024
"""Rows are turned into bytes piece by piece: copies of a whole table would stay with the allocator."""


class Rows:
    """Columns: first key; offset of the record in its segment; index in the record << 16 | number of keys.

    A row takes 16 bytes. When the records of a whole segment have the same number of keys each, without a
    gap, as enqueueing one by one or in equal batches makes them, `packed` takes 4.
    """

    __slots__ = ("firsts", "offsets", "spans")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.offsets = array("I")
        self.spans = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def put(self, first: int, offset: int, span: int) -> None:
        """Add a row in its place, which is the end for keys that rise."""
        if not self.firsts or first >= self.firsts[-1]:
            self.firsts.append(first)
            self.offsets.append(offset)
            self.spans.append(span)
        else:
            at = bisect_right(self.firsts, first)
            self.firsts.insert(at, first)
            self.offsets.insert(at, offset)
            self.spans.insert(at, span)

    def until(self, key: int) -> int:
        """Number of rows whose first key is at most `key`."""
        return bisect_right(self.firsts, key)

    def packed(self) -> Rows:
        """The same rows in less space."""
        found = Rows()
        found.firsts, found.offsets, found.spans = self.firsts[:], self.offsets[:], self.spans[:]
        if self.firsts and self.spans.count(self.spans[0]) == len(self):
            step = self.spans[0] & COUNT
            regular = range(self.firsts[0], self.firsts[0] + step * len(self), step or 1)
            if self.firsts == array("Q", regular):
                found.firsts = cast("array[int]", regular)
                found.spans = cast("array[int]", _Same(self.spans[0], len(self)))
        return found

    def to_bytes(self) -> bytes:
        """Little-endian pairs of 64 bits: first key; offset << 32 | span."""
        return b"".join(self._bytes_of(slice(at, at + _AT_ONCE)) for at in range(0, len(self), _AT_ONCE))

    def _bytes_of(self, part: slice) -> bytes:
        offsets = self.offsets[part]
        words = array("I", bytes(16 * len(offsets)))
        words[_SPAN::4] = array("I", self.spans[part])
        words[_OFFSET::4] = offsets
        pairs = array("Q", words.tobytes())
        pairs[::2] = array("Q", self.firsts[part])
        return _little(pairs).tobytes()


class _Same:
    """A column with one value in all rows."""

    __slots__ = ("_length", "_value")

    def __init__(self, value: int, length: int) -> None:
        self._value = value
        self._length = length

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> array[int]: ...
    def __getitem__(self, at: int | slice) -> int | array[int]:
        if isinstance(at, slice):
            return array("I", [self._value]) * len(range(self._length)[at])
        if not -self._length <= at < self._length:
            raise IndexError(at)
        return self._value

    def __len__(self) -> int:
        return self._length


def rows_of_bytes(raw: bytes) -> Rows:
    """The reverse of `Rows.to_bytes`."""
    pairs = _little(array("Q", raw))
    words = array("I", pairs.tobytes())
    found = Rows()
    found.firsts, found.offsets, found.spans = pairs[::2], words[_OFFSET::4], words[_SPAN::4]
    return found


def _little(pairs: array[int]) -> array[int]:
    if sys.byteorder != "little":
        pairs.byteswap()
    return pairs
