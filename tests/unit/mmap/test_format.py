"""Layouts, limits and names."""

from __future__ import annotations

from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from nobroker_mmap import format as fmt

HEADER = fmt.SegmentHeader(
    number=7,
    size=fmt.MIN_SEGMENT_SIZE,
    log_id=1,
    lineage=2,
    previous_lineage=3,
    base=8 * 1000,
    previous_end=128,
    previous_checksum=5,
    floor=3,
    created=6,
)
NAMES = fmt.Names("jobs", "q")


def sealed(raw: bytes) -> bytes:
    """A header whose checksum fits what it says."""
    return raw[:120] + xxh3_64_intdigest(raw[:120]).to_bytes(8, "little")


def test_the_structs_have_the_documented_sizes() -> None:
    assert fmt.SEGMENT_HEADER.size + fmt.U64.size == fmt.SEGMENT_HEADER_SIZE == 128
    assert fmt.RECORD_HEADER.size == fmt.RECORD_HEADER_SIZE == len(fmt.TERMINATOR) == 64
    assert fmt.CHECKED_HEADER.size == fmt.CHECKED_SIZE == 56
    assert fmt.SIDECAR_HEADER.size == fmt.SNAPSHOT_HEADER.size == fmt.CACHE_HEADER_SIZE == 64
    assert fmt.CONTROL_SIZE == 4096


def test_a_header_comes_back() -> None:
    raw = HEADER.pack()
    assert len(raw) == 128
    assert fmt.parse_segment_header(raw) == HEADER
    assert fmt.parse_segment_header(raw + b"more") == HEADER


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": fmt.SEGMENT_HEADER_SIZE - 1},
        {"size": fmt.MAX_FILE_SIZE + 1},
        {"floor": 0},
        {"floor": 8},
        {"number": 2**32},
        {"base": 8 * 1000 + 4},
    ],
)
def test_numbers_that_contradict_each_other(wrong: dict[str, int]) -> None:
    with pytest.raises(fmt.HeaderError, match="contradict"):
        fmt.parse_segment_header(HEADER._replace(**wrong).pack())


@pytest.mark.parametrize(
    "right",
    [{"size": fmt.SEGMENT_HEADER_SIZE}, {"size": fmt.MAX_FILE_SIZE}, {"floor": 1}, {"floor": 7}],
)
def test_numbers_at_their_limits(right: dict[str, int]) -> None:
    header = HEADER._replace(**right)
    assert fmt.parse_segment_header(header.pack()) == header


def test_versions() -> None:
    raw = bytearray(HEADER.pack())
    raw[8] = 2
    with pytest.raises(fmt.HeaderError, match="version number is damaged"):
        fmt.parse_segment_header(bytes(raw))
    with pytest.raises(fmt.NewerVersionError, match="format version 2"):
        fmt.parse_segment_header(sealed(bytes(raw)))
    raw[8] = 0
    with pytest.raises(fmt.HeaderError, match="version 0 with a header of 128 bytes does not exist"):
        fmt.parse_segment_header(sealed(bytes(raw)))
    raw = bytearray(HEADER.pack())
    raw[12] = 64
    with pytest.raises(fmt.HeaderError, match="header of 64 bytes does not exist"):
        fmt.parse_segment_header(sealed(bytes(raw)))


@pytest.mark.parametrize(
    "wanted, group, size",
    [
        (65536, 0, 65536),
        (65536, 65536 - 128 - 64, 65536),
        (65536, 65536 - 128 - 63, 131072),
        (131072, 1, 131072),
        (65536, 131072 - 128 - 64, 131072),
        (65536, fmt.MAX_SEGMENT_SIZE - 128 - 64, fmt.MAX_SEGMENT_SIZE),
        (65536, fmt.MAX_SEGMENT_SIZE - 128 - 63, fmt.MAX_SEGMENT_SIZE + fmt.OVERSIZE_STEP),
        (65536, fmt.MAX_GROUP_SIZE, fmt.MAX_SEGMENT_SIZE + fmt.OVERSIZE_STEP),
    ],
)
def test_a_segment_has_room_for_its_group(wanted: int, group: int, size: int) -> None:
    assert fmt.segment_size_for(wanted, group) == size
    assert size <= fmt.MAX_FILE_SIZE


@pytest.mark.parametrize("name", ["con", "NUL", "Com1.jobs", "lpt9", "aux.x.y"])
def test_names_of_devices_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="device"):
        fmt.validate_name(name)


@pytest.mark.parametrize("name", ["", "a" * 101, ".a", "-a", "a b", "a/b", "ä", "a\n", 5, None])
def test_other_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="use 1 to 100 letters"):
        fmt.validate_name(name)


@pytest.mark.parametrize("name", ["a", "a" * 100, "console", "com10", "A.b-c_9"])
def test_names(name: str) -> None:
    assert fmt.validate_name(name) == name


@pytest.mark.parametrize("size", [65536, 2**20, fmt.MAX_SEGMENT_SIZE])
def test_sizes_of_segments(size: int) -> None:
    assert fmt.check_segment_size(size) == size
    for wrong in (size - 1, size + 1, float(size), 32768, 2 * fmt.MAX_SEGMENT_SIZE):
        with pytest.raises(ValueError, match="power of two"):
            fmt.check_segment_size(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "file_name, expected",
    [
        ("q.000001.seg", ("q", 1)),
        ("a.b.000002.seg", ("a.b", 2)),
        ("q.1234567.seg", ("q", 1_234_567)),
        ("q.4294967295.seg", ("q", 2**32 - 1)),
        ("q.4294967296.seg", None),
        ("q.000000.seg", None),
        ("q.0000001.seg", None),
        ("q.00001.seg", None),
        ("q.000001.idx", None),
        ("q.000001.seg\n", None),
        (".q.000001.seg", None),
        ("000001.seg", None),
    ],
)
def test_files_of_segments(file_name: str, expected: tuple[str, int] | None) -> None:
    assert fmt.split_segment_name(file_name) == expected
    ours = expected is not None and expected[0] == "q"
    assert NAMES.numbered(file_name) == (("seg", expected[1]) if expected and ours else None) or (
        file_name == "q.000001.idx"
    )
    if ours and expected is not None:
        assert Path(NAMES.segment(expected[1])) == Path("jobs") / file_name


def test_which_files_are_ours() -> None:
    ours = [
        *("q.lock", "q.sync", "q.open", "q.wake", "q.snap", "q.manifest"),
        *("q.000001.seg", "q.000001.idx", "q.000001.new"),
        *("q.000001.128.torn", "q.000001.seg.salvaged", "q.000001.seg.salvaged2"),
        *("q.snap.12-3.tmp", "q.manifest.1-2-3.tmp", "q.000001.idx.7-7.tmp"),
    ]
    others = [
        *("q", "q.other", "r.lock", "q.r.lock", "q.lock.tmp", "xq.lock", "qxlock"),
        *("q.0000001.seg", "q.000001.seg.salvagedx", "q.000001.torn", "q.seg.tmp", "q.snap.x.tmp"),
    ]
    assert [name for name in ours if NAMES.belongs(name)] == ours
    assert [name for name in others if NAMES.belongs(name)] == []
    assert [name for name in ours if NAMES.is_kept(name)] == ours[9:12]
    assert [name for name in ours if NAMES.is_temporary(name)] == ours[12:]
