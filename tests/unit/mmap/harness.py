"""A tiny application on the log: keys with a text each; and the ways tests disturb its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack

from nobroker_mmap import format as fmt
from nobroker_mmap.errors import Restart
from nobroker_mmap.log import Log
from nobroker_mmap.offsets import Piece
from nobroker_mmap.record import Record

PUT, MOVE = 16, 17
SMALL = fmt.MIN_SEGMENT_SIZE


def rows(record: Record) -> list[tuple[int, int, int]]:
    head = record.head()
    return [(head["s"], 0, head["n"])]


def open_log(
    directory: Path, *, name: str = "q", boot_id: str = "boot-1", load: bool = True, **options: Any
) -> Log:
    options.setdefault("segment_size", SMALL)
    options.setdefault("fsync", False)
    log = Log(
        directory,
        name,
        boot_id=boot_id,
        rows=rows,
        indexed_types=frozenset({PUT, MOVE}),
        moved_types=frozenset({MOVE}),
        **options,
    )
    if load:
        log.load_snapshot()
    return log


def part(
    key: int, text: str = "", count: int = 1, kind: int = PUT
) -> tuple[int, int, bytes, bytes, list[Any]]:
    head = msgpack.packb({"s": key, "n": count})
    tail = msgpack.packb([f"{text}{key + i}" for i in range(count)])
    return kind, 0, head, tail, [(key, 0, count)]


def catch_up(log: Log) -> None:
    """Apply everything, from the start when that is asked for."""
    while True:
        try:
            for _ in log.records():
                pass
            return
        except Restart:
            log.load_snapshot()


@contextmanager
def locked(log: Log) -> Iterator[Log]:
    """The lock, with everything applied."""
    log.lock()
    try:
        catch_up(log)
        yield log
    finally:
        log.unlock()


def put(log: Log, *keys: int, text: str = "v", count: int = 1, kind: int = PUT, durable: bool = False) -> int:
    """Append one group with a record per key; returns its end."""
    with locked(log):
        _, end = log.append([part(key, text, count, kind) for key in keys])
    if durable:
        log.wait_durable(end, force=True)
    return end


def follow(log: Log) -> list[tuple[int, str]]:
    """(key, text) of every record after the cursor."""
    found = []
    for record in log.records():
        if record.type in (PUT, MOVE):
            head = record.head()
            texts = msgpack.unpackb(record.tail_bytes)
            found += [(head["s"] + i, texts[i]) for i in range(head["n"])]
    return found


def content(directory: Path, **options: Any) -> list[tuple[int, str]]:
    """Everything in a log, by a full replay in a read-only handle."""
    log = open_log(directory, read_only=True, load=False, **options)
    try:
        log.load_snapshot()
        return follow(log)
    finally:
        log.close()


def text_of(log: Log, key: int) -> str | None:
    """The text of a key, through the index."""
    pieces = log.find(key, key)
    if not pieces:
        return None
    return str(msgpack.unpackb(log.read(pieces[0]).tail_bytes)[pieces[0].index])


def keys_of(pieces: list[Piece]) -> list[int]:
    return [key for piece in pieces for key in range(piece.first, piece.last + 1)]


def segment(directory: Path, number: int = 1, name: str = "q") -> Path:
    return directory / f"{name}.{number:06d}.seg"


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Change bytes of a file in place, as a bad disk would."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        old = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([old ^ 1 << bit]))


def assert_clean(directory: Path, **options: Any) -> None:
    """The whole-store check has nothing to say, and a writer can go on."""
    log = open_log(directory, **options)
    try:
        follow(log)
        findings = [f for f in log.check() if f.severity != "note"]
        assert not findings, findings
    finally:
        log.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def small_log(directory: Path, groups: int = 6, *, durable: bool = False, close: bool = False) -> list[int]:
    """A log of a few groups of two records; returns the offset at which each group ends, 128 first."""
    log = open_log(directory)
    ends = [128]
    for group in range(groups):
        end = put(log, 2 * group, 2 * group + 1, durable=durable)
        ends.append(end + 128)
    if close:
        log.close()
    else:
        log._release_files()  # as if the process had been killed
    return ends


def expected(groups: int) -> list[tuple[int, str]]:
    return [(key, f"v{key}") for key in range(2 * groups)]


def copy_of(source: Path, target: Path) -> Path:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=lambda _, names: [n for n in names if n.endswith(".wake")])
    return target


def many_segments(directory: Path, count: int = 5) -> list[tuple[int, str]]:
    log = open_log(directory)
    for key in range(count):
        put(log, key, text="x" * 50_000)
    log.close()
    return [(key, "x" * 50_000 + str(key)) for key in range(count)]
