"""What a record says of a job, where a snapshot or another record refers to it: that, or a typed error."""

from __future__ import annotations

from typing import Any

import pytest

from nobroker.errors import CorruptLogError
from nobroker.state import kinds
from nobroker.stores.reading import Reader
from nobroker.values import pack_plain, pack_value
from nobroker_mmap.record import Place, Record, encode, parse

LSN = 1000


class OneRecord:
    """A log of one record."""

    log_id = 7

    def __init__(self, kind: int, head: dict[str, Any], tail: bytes = b"") -> None:
        raw, _ = encode(kind, 1, pack_plain({"t": 1, "q": [1, 2], **head}), tail, 1, 7, LSN, 0, 0)
        record = parse(raw, 0, Place(1, 7, LSN - 128), 128)
        assert record is not None
        self.record: Record = record

    def read_at(self, lsn: int) -> Record:
        assert lsn == LSN
        return self.record


def reader(kind: int, head: dict[str, Any], tail: bytes = b"") -> Reader:
    return Reader(OneRecord(kind, head, tail))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kinds.NACK, kinds.RELEASE])
class TestOfAState:
    def test_each_time_as_an_object_of_its_own(self, kind: int) -> None:
        found = reader(kind, {"a": [1, 1], "J": pack_value({"page": [3]})})
        first, second = found.said(LSN, 1, "J"), found.said(LSN, 2, "J")
        assert first == second == {"page": [3]}
        assert first is not second

    @pytest.mark.parametrize("more", [{}, {"J": b"\xc1"}, {"J": b""}])
    def test_that_is_not_there(self, kind: int, more: dict[str, Any]) -> None:
        with pytest.raises(CorruptLogError, match="segment 1"):
            reader(kind, {"a": [1, 1], **more}).said(LSN, 1, "J")


@pytest.mark.parametrize("what", "EPJR")
@pytest.mark.parametrize(
    ("kind", "head", "tail"),
    [
        (kinds.NACK, {"q": [8, 9], "a": [1, 1]}, pack_plain(["e", "e"])),
        (kinds.EXTEND, {"d": 5}, pack_plain([5])),
        (kinds.ACK, {"q": [8, 8]}, b""),
        (kinds.CANCEL, {"q": []}, b""),
        (kinds.RESERVE, {"s": 1, "k": 1}, b""),
    ],
)
def test_of_a_record_that_says_nothing_of_it(kind: int, head: dict[str, Any], tail: bytes, what: str) -> None:
    with pytest.raises(CorruptLogError, match="segment 1"):
        reader(kind, head, tail).said(LSN, 2, what)


@pytest.mark.parametrize("said", [5, [], [5, 5]])
def test_of_progress_that_is_none(said: Any) -> None:
    with pytest.raises(CorruptLogError, match="segment 1"):
        reader(kinds.EXTEND, {"d": 5, "g": [0, 1]}, pack_plain([said, said])).said(LSN, 1, "P")


def test_of_a_result() -> None:
    found = reader(kinds.ACK, {"k": 9}, pack_plain(["one", "two"]))
    assert [found.result(LSN, seq) for seq in (1, 2)] == ["one", "two"]
    with pytest.raises(CorruptLogError, match="job number 3"):
        found.result(LSN, 3)
