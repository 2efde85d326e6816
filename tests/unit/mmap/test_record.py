"""Records: what is believed, and what is not."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from xxhash import xxh3_64_intdigest

from nobroker_mmap import format as fmt
from nobroker_mmap.errors import CorruptLogError
from nobroker_mmap.record import Place, Record, Scan, encode, parse, size_at

PLACE = Place(3, 77, 1000 - 128)
HEAD = msgpack.packb({"s": 1})


def raw(body: bytes = HEAD, **wrong: Any) -> bytes:
    """A record at offset 128 whose checksum fits, whatever else may be wrong with it."""
    fields = {
        "magic": fmt.RECORD_MAGIC,
        "type": 16,
        "flags": fmt.LAST_OF_GROUP,
        "zero": 0,
        "size": len(body),
        "head": len(body),
        "segment": PLACE.number,
        "zero2": 0,
        "lineage": PLACE.lineage,
        "lsn": PLACE.origin + 128,
        "durable": 5,
        "previous": 9,
        **wrong,
    }
    header = fmt.CHECKED_HEADER.pack(*fields.values())
    checksum = xxh3_64_intdigest(header + body).to_bytes(8, "little")
    return header + checksum + body + bytes(-len(body) % 8)


def scanned(buffer: bytes, *, previous: int = 9, chained: bool = True, stop: int = 0) -> list[Record]:
    """The records from offset 128 on, where the buffer begins."""

    def read(offset: int, length: int) -> bytes:
        return buffer[offset - 128 : offset - 128 + length]

    return list(Scan(read, PLACE, 128, stop or 128 + len(buffer), previous, chained=chained))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, 16 * fmt.KIB, 16 * fmt.KIB + 1, 300 * fmt.KIB])
def test_what_is_framed_comes_back(size: int) -> None:
    tail = bytes(range(256)) * (size // 256) + bytes(size % 256)
    data, checksum = encode(16, 3, HEAD, tail, 3, 77, 1000, 5, 9, b"after")
    assert data.endswith(b"after")
    data = data[:-5]
    assert size_at(data, 0) == len(data) == (64 + len(HEAD) + size + 7) // 8 * 8
    for record in (parse(data, 0, PLACE, 128), *scanned(data + bytes(64))):
        assert record is not None
        assert (record.lsn, record.end, record.offset) == (1000, 1000 + len(data), 128)
        assert (record.type, record.flags, record.segment, record.durable) == (16, 3, 3, 5)
        assert (record.checksum, record.previous) == (checksum, 9)
        assert record.head() == {"s": 1}
        assert record.head() is record.head()
        assert record.tail_bytes == tail
    assert len(scanned(data)) == 1
    assert scanned(data, stop=128 + len(data) - 1) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"magic": b"NBr2"},
        {"segment": 4},
        {"lineage": 78},
        {"lsn": 1008},
        {"zero": 1},
        {"zero2": 1},
        {"head": len(HEAD) + 1},
        {"size": len(HEAD) + 8},
        {"size": 2**31},
    ],
)
def test_a_checksum_alone_is_not_enough(wrong: dict[str, Any]) -> None:
    data = raw(**wrong)
    assert parse(data, 0, PLACE, 128) is None
    assert scanned(data + bytes(64)) == []
    assert parse(raw(), 0, PLACE, 128) is not None
    assert len(scanned(raw() + bytes(64))) == 1


@pytest.mark.parametrize("size", [len(HEAD), 20 * fmt.KIB])
def test_a_flip_anywhere_is_seen(size: int) -> None:
    data = encode(16, 1, HEAD, bytes(size - len(HEAD)), 3, 77, 1000, 5, 9)[0]
    end = fmt.RECORD_HEADER_SIZE + size
    for at in [*range(min(70, end)), *range(70, end, 4001), end - 1]:
        bad = bytearray(data)
        bad[at] ^= 4
        assert parse(bytes(bad), 0, PLACE, 128) is None, at
        assert scanned(bytes(bad)) == [], at


def test_a_piece_of_a_record_is_none() -> None:
    data = raw(bytes(50))
    for length in range(64 + 50):
        assert parse(data[:length], 0, PLACE, 128) is None
        assert scanned(data[:length]) == []
    assert size_at(data[:63], 0) == 0
    assert size_at(data[:64], 0) == 120
    assert size_at(raw(size=fmt.MAX_BODY_SIZE), 0) == 64 + fmt.MAX_BODY_SIZE
    assert size_at(raw(size=fmt.MAX_BODY_SIZE + 1), 0) == 0


def test_records_follow_each_other() -> None:
    first, checksum = encode(16, 1, HEAD, b"", 3, 77, 1000, 5, 9)
    gap, other = encode(fmt.GAP, 3, b"\x80", b"", 3, 77, 1000 + len(first), 0, 0)
    last, _ = encode(16, 1, HEAD, b"", 3, 77, 1000 + len(first) + len(gap), 5, 12345)
    strange, _ = encode(16, 1, HEAD, b"", 3, 77, 1000 + len(first), 5, other)
    assert [record.type for record in scanned(first + gap + last)] == [16, fmt.GAP, 16]
    assert [record.type for record in scanned(first + strange)] == [16]
    assert scanned(first, previous=8) == []
    assert len(scanned(first, previous=8, chained=False)) == 1
    assert len(scanned(first + strange, previous=8, chained=False)) == 1, "only the first one may follow all"
    assert checksum != other


@pytest.mark.parametrize(
    "body, why",
    [
        (b"\xc1", "does not decode"),
        (b"\x81", "does not decode"),
        (b"\xdf\xff\xff\xff\xff", "does not decode"),
        (b"\x91" * 5000, "does not decode"),
        (b"\xa1\xff", "does not decode"),
        (b"\x01\x02", "does not decode"),
        (b"\x93\x01\x02\x03", "not a map"),
        (b"\x05", "not a map"),
    ],
)
def test_a_head_that_is_none(body: bytes, why: str) -> None:
    record = parse(raw(body), 0, PLACE, 128)
    assert record is not None
    with pytest.raises(CorruptLogError, match=why) as caught:
        record.head()
    assert (caught.value.path, caught.value.offset) == ("segment 000003", 128)
