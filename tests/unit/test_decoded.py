"""What one record says, when it verifies and still cannot be read."""

from __future__ import annotations

import pytest

from nobroker.errors import CorruptLogError
from nobroker.state import kinds
from nobroker.stores.decoded import Decoded
from nobroker.values import pack_plain, pack_value
from nobroker_mmap.record import Place, encode, parse


def released(state: bytes) -> Decoded:
    head = pack_plain({"t": 1, "q": [1, 1], "a": [1], "J": state})
    raw, _ = encode(kinds.RELEASE, 1, head, b"", 1, 7, 1000, 0, 0)
    record = parse(raw, 0, Place(1, 7, 872), 128)
    assert record is not None
    return Decoded(record)


def test_a_job_state_is_an_object_of_the_callers_own() -> None:
    found = released(pack_value({"page": [3]}))
    assert found.stated() == {"page": [3]}
    assert found.stated() is not found.stated()


def test_a_job_state_that_cannot_be_unpacked() -> None:
    with pytest.raises(CorruptLogError, match="segment 1"):
        released(b"\xc1").stated()
