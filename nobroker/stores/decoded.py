"""One record with its values at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nobroker.errors import CorruptLogError
from nobroker.state.machine import Head
from nobroker.state.numbers import each
from nobroker.stores.rows import fitting_head
from nobroker.values import split_array, unpack
from nobroker_mmap.record import Record

_TAKEN: Final = object()


class Decoded:
    """One record with its head decoded, and its tail when somebody asks."""

    __slots__ = ("_elements", "_places", "_values", "head", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        try:
            self.head: Head = fitting_head(record)
        except (TypeError, ValueError, LookupError) as error:
            raise self.corrupt(repr(error)) from error
        self._values: list[Any] | None = None
        self._elements: list[bytes] | None = None
        self._places: dict[int, int] | None = None

    def value(self, index: int) -> Any:
        """The value at `index` of the tail, as an object of the caller's own."""
        values = self._values
        if values is None:
            values = self._values = self._unpacked()
        if not 0 <= index < len(values):
            raise self._lacks(index, values)
        value = values[index]
        if value is _TAKEN:
            values = self._values = self._unpacked()
            value = values[index]
        values[index] = _TAKEN
        return value

    def _unpacked(self) -> list[Any]:
        try:
            values = unpack(self.record.tail_bytes)
        except ValueError as error:
            raise self.corrupt(str(error)) from error
        if type(values) is not list:
            raise self.corrupt("its tail is not an array")
        return values

    def element(self, index: int) -> bytes:
        """The packed value at `index` of the tail."""
        if self._elements is None:
            try:
                self._elements = split_array(bytes(self.record.tail_bytes))
            except ValueError as error:
                raise self.corrupt(str(error)) from error
        if not 0 <= index < len(self._elements):
            raise self._lacks(index, self._elements)
        return self._elements[index]

    def _lacks(self, index: int, values: Sequence[Any]) -> CorruptLogError:
        return self.corrupt(f"it holds {len(values)} values, and one at {index} was looked for")

    def place_of(self, seq: int) -> int:
        """Index of a job among those the record speaks of."""
        if self._places is None:
            self._places = {number: index for index, number in enumerate(each(self.head.get("q", [])))}
        place = self._places.get(seq)
        if place is None:
            raise self.corrupt(f"it says nothing of job number {seq}")
        return place

    def corrupt(self, why: str) -> CorruptLogError:
        return CorruptLogError(
            f"record at offset {self.record.offset} of segment {self.record.segment} cannot be read: {why}. "
            "Run `nobroker check`, then `nobroker recover --salvage`",
            path=f"segment {self.record.segment}",
            offset=self.record.offset,
        )
