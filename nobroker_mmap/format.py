"""The bytes: magics, versions, structs, limits and file names. Nothing else in the project spells any of
them.

Invariants
- Every number on the disk is little-endian; the layouts here and docs/format.md say the same thing.
- A header that does not verify is never half believed: parsing gives a whole header or a reason.
- A file name maps to at most one (log, number) pair, so one log's files are never taken for another's.
"""

import os
import re
import struct
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

# -- limits -----------------------------------------------------------------------------------------

KIB: Final = 1024
MIB: Final = 1024 * 1024
MIN_SEGMENT_SIZE: Final = 64 * KIB
MAX_SEGMENT_SIZE: Final = 256 * MIB
FIRST_SEGMENT_SIZE: Final = 1 * MIB
MAX_BODY_SIZE: Final = 256 * MIB
MAX_GROUP_SIZE: Final = 256 * MIB
OVERSIZE_STEP: Final = 64 * KIB
"""A segment above the largest power of two grows in these steps."""
MAX_FILE_SIZE: Final = MAX_GROUP_SIZE + 2 * OVERSIZE_STEP
MAX_MAPPED_SEGMENTS: Final = 128
MIN_SNAPSHOT_GROWTH: Final = 4 * MIB
MAX_SNAPSHOT_SIZE: Final = 2**32

# -- segments ---------------------------------------------------------------------------------------

SEGMENT_MAGIC: Final = b"NBSEG\r\n\x1a"
MAJOR: Final = 1
MINOR: Final = 0
SEGMENT_HEADER: Final = struct.Struct("<8sHHIQQQQQQQQQQ24s")
SEGMENT_HEADER_SIZE: Final = 128
U64: Final = struct.Struct("<Q")

# -- records ----------------------------------------------------------------------------------------

RECORD_MAGIC: Final = b"NBr1"
RECORD_HEADER: Final = struct.Struct("<4sBBHIIIIQQQQQ")
RECORD_HEADER_SIZE: Final = 64
CHECKED_SIZE: Final = 56
CHECKED_HEADER: Final = struct.Struct("<4sBBHIIIIQQQQ")
"""The part of a record's header that its checksum covers."""
TERMINATOR: Final = bytes(64)
PADDING: Final = tuple(bytes(-n % 8) for n in range(8))
"""By the length of a record modulo 8: the zeros that align the next."""

LAST_OF_GROUP: Final = 1
SKIPPABLE: Final = 2

CLOSE: Final = 1
RETIRE: Final = 2
GAP: Final = 3
"""Stands, after a salvage, where a record was that did not verify; the record after it follows anything."""
FIRST_APPLICATION_TYPE: Final = 16

# -- caches -----------------------------------------------------------------------------------------

SIDECAR_MAGIC: Final = b"NBIDX\r\n\x1a"
SIDECAR_HEADER: Final = struct.Struct("<8sQQQQQQQ")
SIDECAR_VERSION: Final = 1
SNAPSHOT_MAGIC: Final = b"NBSNP\r\n\x1a"
SNAPSHOT_HEADER: Final = struct.Struct("<8sQQQQQQQ")
SNAPSHOT_VERSION: Final = 1
CACHE_HEADER_SIZE: Final = 64
CONTROL_MAGIC: Final = 0x324C_5254_434B_424E
CONTROL_SIZE: Final = 4096
CONTROL_IDENTITY: Final = struct.Struct("=QQQQ")
CONTROL_TIP: Final = struct.Struct("=QQQQQ")


class HeaderError(ValueError):
    """Bytes that are not the header they should be; the text says why."""


class NewerVersionError(HeaderError):
    """A sound header of a major version that this release does not know."""


class SegmentHeader(NamedTuple):
    """The fixed facts of a segment; docs/format.md explains each."""

    number: int
    size: int
    log_id: int
    lineage: int
    previous_lineage: int
    base: int
    previous_end: int
    previous_checksum: int
    floor: int
    created: int

    def pack(self) -> bytes:
        """The 128 bytes of the header, checksum included."""
        fields = SEGMENT_HEADER.pack(
            SEGMENT_MAGIC,
            MAJOR,
            MINOR,
            SEGMENT_HEADER_SIZE,
            self.number,
            self.size,
            self.log_id,
            self.lineage,
            self.previous_lineage,
            self.base,
            self.previous_end,
            self.previous_checksum,
            self.floor,
            self.created,
            bytes(24),
        )
        return fields + U64.pack(xxh3_64_intdigest(fields))


def parse_segment_header(raw: bytes) -> SegmentHeader:
    """Read a segment's header.

    Raises:
        NewerVersionError: the header is sound, but of a later major version.
        HeaderError: these are not the bytes of a header.
    """
    if len(raw) < SEGMENT_HEADER_SIZE:
        raise HeaderError(f"the file has {len(raw)} bytes where a header of {SEGMENT_HEADER_SIZE} belongs")
    fields = raw[: SEGMENT_HEADER.size]
    magic, major, _, header_size, number, size, log_id, *rest = SEGMENT_HEADER.unpack(fields)
    if magic != SEGMENT_MAGIC:
        raise HeaderError("the magic of a segment is missing")
    (check,) = U64.unpack_from(raw, SEGMENT_HEADER.size)
    if major > MAJOR:
        # A flipped bit must not pass for a new version: with the known one the checksum would fit.
        if xxh3_64_intdigest(fields[:8] + MAJOR.to_bytes(2, "little") + fields[10:]) == check:
            raise HeaderError("the version number is damaged")
        raise NewerVersionError(f"format version {major}; this release reads versions up to {MAJOR}")
    if xxh3_64_intdigest(fields) != check:
        raise HeaderError("the checksum of the header does not fit")
    if major != MAJOR or header_size != SEGMENT_HEADER_SIZE:
        raise HeaderError(f"version {major} with a header of {header_size} bytes does not exist")
    lineage, previous_lineage, base, previous_end, previous_checksum, floor, created, _ = rest
    header = SegmentHeader(
        number, size, log_id, lineage, previous_lineage, base, previous_end, previous_checksum, floor, created
    )
    if not (SEGMENT_HEADER_SIZE <= size <= MAX_FILE_SIZE) or not (1 <= floor <= number < 2**32) or base % 8:
        raise HeaderError("the header's numbers contradict each other")
    return header


# -- names ------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{d}{i}" for d in ("com", "lpt") for i in range(10))])
_SEGMENT_FILE = re.compile(r"(?P<name>.+)\.(?P<number>\d{6,10})\.seg\Z")


def validate_name(name: str) -> str:
    """Give the name of a log back when it can be one on every system.

    Raises:
        ValueError: says what is wrong with it.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(
            f"queue name {name!r}: use 1 to 100 letters, digits, '.', '_' or '-', and begin with a"
            " letter or digit"
        )
    if name.split(".", 1)[0].lower() in _DEVICES:
        raise ValueError(f"queue name {name!r}: {name.split('.', 1)[0]!r} is the name of a device on Windows")
    return name


def canonical_number(digits: str) -> int | None:
    """The segment number that a file name spells, or None when no segment is spelt that way."""
    number = int(digits)
    return number if 0 < number < 2**32 and f"{number:06d}" == digits else None


def split_segment_name(file_name: str) -> tuple[str, int] | None:
    """(log name, number) of a segment's file name, or None."""
    match = _SEGMENT_FILE.match(file_name)
    if match is None or not _NAME.match(match["name"]):
        return None
    number = canonical_number(match["number"])
    return None if number is None else (match["name"], number)


class Names:
    """Where the files of one log are."""

    __slots__ = (
        "_numbered",
        "directory",
        "lock",
        "manifest",
        "name",
        "openers",
        "prefix",
        "processes",
        "snapshot",
        "sync",
        "wake",
    )

    def __init__(self, directory: str | os.PathLike[str], name: str) -> None:
        self.directory = os.fspath(directory)
        self.name = name
        self.prefix = os.path.join(self.directory, name) + "."
        self.lock = self.prefix + "lock"
        self.sync = self.prefix + "sync"
        self.openers = self.prefix + "open"
        self.wake = self.prefix + "wake"
        self.snapshot = self.prefix + "snap"
        self.manifest = self.prefix + "manifest"
        self.processes = self.prefix + "processes"
        """A directory, in which whoever works on the log says so. The log itself never looks into it."""
        self._numbered = re.compile(re.escape(name) + r"\.(?P<number>\d{6,10})\.(?P<kind>seg|idx|new)\Z")

    def segment(self, number: int) -> str:
        return f"{self.prefix}{number:06d}.seg"

    def sidecar(self, number: int) -> str:
        return f"{self.prefix}{number:06d}.idx"

    def new(self, number: int) -> str:
        return f"{self.prefix}{number:06d}.new"

    def torn(self, number: int, offset: int) -> str:
        return f"{self.prefix}{number:06d}.{offset}.torn"

    def salvaged(self, number: int) -> str:
        return f"{self.prefix}{number:06d}.seg.salvaged"

    def temporary(self, path: str, tag: str) -> str:
        """A name beside `path` for a cache that is being written; `tag` tells writers apart."""
        return f"{path}.{tag}.tmp"

    def is_temporary(self, file_name: str) -> bool:
        """Is it what a writer of a cache of this log may have left behind?"""
        return bool(
            re.match(re.escape(self.name) + r"\.(snap|manifest|\d{6,10}\.idx)\.[0-9-]+\.tmp\Z", file_name)
        )

    def numbered(self, file_name: str) -> tuple[str, int] | None:
        """("seg" | "idx" | "new", number) when it is such a file of this log, else None."""
        match = self._numbered.match(file_name)
        if match is None:
            return None
        number = canonical_number(match["number"])
        return None if number is None else (match["kind"], number)

    def belongs(self, file_name: str) -> bool:
        """Is it any file of this log?"""
        tails = ("lock", "sync", "open", "wake", "snap", "manifest")
        if file_name in {f"{self.name}.{tail}" for tail in tails} or self.is_temporary(file_name):
            return True
        return bool(self.numbered(file_name)) or self.is_kept(file_name)

    def is_kept(self, file_name: str) -> bool:
        """Is it something that was put aside for people?"""
        return bool(re.match(re.escape(self.name) + r"\.\d{6,10}\.(\d+\.torn|seg\.salvaged\d*)\Z", file_name))


def segment_size_for(wanted: int, group: int) -> int:
    """Size of a segment file that should have `wanted` bytes and must take a group of `group` bytes."""
    need = SEGMENT_HEADER_SIZE + group + len(TERMINATOR)
    if need <= wanted:
        return wanted
    if need <= MAX_SEGMENT_SIZE:
        return int(1 << (need - 1).bit_length())
    return -(-need // OVERSIZE_STEP) * OVERSIZE_STEP


def check_segment_size(size: int) -> int:
    """Give a usable segment size back.

    Raises:
        ValueError: it is not a power of two from 64 KiB to 256 MiB.
    """
    if not isinstance(size, int) or not MIN_SEGMENT_SIZE <= size <= MAX_SEGMENT_SIZE or size & (size - 1):
        raise ValueError(
            f"segment_size {size!r}: must be a power of two from {MIN_SEGMENT_SIZE} to {MAX_SEGMENT_SIZE}"
        )
    return size
