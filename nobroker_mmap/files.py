"""The only place that opens, preallocates, writes, syncs, renames and unlinks files.

Invariants
- No symbolic link is followed and nothing but a regular file is opened, so a foreign file under one of our
  names is never written to and a FIFO never blocks an opening.
- A write is whole or raises. A failed `sync_data` is final for the file: callers poison the log, never sync
  again.
- A file appears under its final name only when its bytes are synced (`publish`), and the directory is
  synced after.
- Where the system lacks a call (Windows: pwrite, fallocate, directory sync; macOS: fdatasync) a slower one
  stands in.
"""

import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

_BASE_FLAGS = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)
_CHUNK = 1 << 20
WRITE_SIZE = 8 << 20
"""The largest single write; more is written in pieces, so one call never needs a second buffer of its size.
"""


def _open(path: str, flags: int, mode: int = 0o666) -> int:
    try:
        fd = os.open(path, flags | _BASE_FLAGS, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _not_regular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_regular(path)
    return fd


def _not_regular(path: str) -> OSError:
    return OSError(errno.EINVAL, "not a regular file, and left as it is; move it away", path)


def open_read(path: str) -> int:
    """A descriptor for reading an existing regular file."""
    return _open(path, os.O_RDONLY)


def open_write(path: str) -> int:
    """A descriptor for reading and writing an existing regular file."""
    return _open(path, os.O_RDWR)


def create(path: str) -> int:
    """A descriptor of a new file; FileExistsError when there is something of that name."""
    return _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def open_or_create(path: str) -> int:
    """A descriptor for reading and writing, of a regular file that is made when missing."""
    return _open(path, os.O_RDWR | os.O_CREAT)


def close(fd: int) -> None:
    """Close a descriptor."""
    os.close(fd)


def _seek_and_write(fd: int, data: Any, offset: int, /) -> int:
    """For systems without positioned calls. Writers hold the lock; the mutex of the handle keeps its threads
    apart.
    """
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, data)


def _seek_and_read(fd: int, length: int, offset: int, /) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, length)


_pwrite: Callable[[int, Any, int], int] = getattr(os, "pwrite", _seek_and_write)
_pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)


def write_at(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`.

    Raises:
        OSError: not all of it was written; a part may have been.
    """
    size = len(data)
    if size <= WRITE_SIZE:
        done = _pwrite(fd, data, offset)
        if done == size:
            return
    else:
        done = 0
    view = memoryview(data)
    while done < size:
        written = _pwrite(fd, view[done : done + WRITE_SIZE], offset + done)
        if written <= 0:
            raise OSError(errno.EIO, "the system wrote nothing")
        done += written


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Up to `length` bytes from `offset`; fewer only at the end of the file."""
    data = _pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    got = len(data)
    while got < length:
        more = _pread(fd, min(length - got, 1 << 30), offset + got)
        if not more:
            break
        parts.append(more)
        got += len(more)
    return b"".join(parts)


def size_of(fd: int) -> int:
    """Size of an open file in bytes."""
    return os.fstat(fd).st_size


def inode_of(fd: int) -> int:
    """Number that tells an open file from all others of its file system."""
    return os.fstat(fd).st_ino & 0xFFFF_FFFF_FFFF_FFFF


def preallocate(fd: int, size: int) -> None:
    """Give a file `size` bytes of zeros that later writes need no new space for.

    Raises:
        OSError: no space.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    zeros = bytes(_CHUNK)
    for offset in range(0, size, _CHUNK):
        write_at(fd, zeros[: min(_CHUNK, size - offset)], offset)


def resize(fd: int, size: int) -> None:
    """Set the size of a file; what is new reads as zeros and takes no space."""
    os.ftruncate(fd, size)


def _full_sync(fd: int) -> None:
    """For macOS, where a sync does not reach the platter."""
    import fcntl

    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, command)


_sync_data = _full_sync if sys.platform == "darwin" else getattr(os, "fdatasync", os.fsync)


def sync_data(fd: int) -> None:
    """Make the content of a preallocated file durable."""
    _sync_data(fd)


def sync_file(fd: int) -> None:
    """Make content and size of a file durable."""
    if sys.platform == "darwin":
        _full_sync(fd)
    else:
        os.fsync(fd)


def sync_directory(path: str) -> None:
    """Make creations, renames and removals in a directory durable."""
    if os.name == "nt":  # there is no such call; the file system's journal orders these by itself
        return
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def publish(source: str, target: str, directory: str) -> None:
    """Give a synced file its final name, durably, in place of what has it."""
    os.replace(source, target)
    sync_directory(directory)


def move(source: str, target: str) -> None:
    """Rename a file; not yet durable."""
    os.rename(source, target)


def keep_copy(path: str, kept: str) -> None:
    """Give the content of a file a second name that stays when the first one is replaced."""
    try:
        os.link(path, kept)
        return
    except OSError:  # a file system without hard links
        source = open_read(path)
    try:
        copy = create(kept)
        try:
            copy_range(source, copy, 0, size_of(source), 0)
            sync_file(copy)
        finally:
            os.close(copy)
    finally:
        os.close(source)


def changed_at_us(fd: int) -> int:
    """When an open file was last written, by the file system's clock, in microseconds since the epoch."""
    return os.fstat(fd).st_mtime_ns // 1000


def unlink(path: str) -> bool:
    """Remove a name. False when it cannot be now (Windows: still open); the next compaction tries again."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except PermissionError:
        if os.name != "nt":
            raise
        return False
    return True


def write_cache(path: str, temporary: str, parts: list[bytes]) -> None:
    """Replace a small file at once: readers see the old or the new one, whole. It is not synced."""
    unlink(temporary)
    fd = create(temporary)
    try:
        offset = 0
        for part in parts:
            write_at(fd, part, offset)
            offset += len(part)
    except OSError:
        os.close(fd)
        unlink(temporary)
        raise
    os.close(fd)
    os.replace(temporary, path)


def read_file(path: str, limit: int) -> bytes:
    """Content of a regular file of at most `limit` bytes."""
    fd = open_read(path)
    try:
        size = size_of(fd)
        if size > limit:
            raise OSError(errno.EFBIG, f"more than {limit} bytes", path)
        return read_at(fd, size, 0)
    finally:
        os.close(fd)


def read_stream(path: str, limit: int) -> bytes:
    """Content of a file whose size the system does not tell; at most `limit` bytes of it."""
    fd = open_read(path)
    parts: list[bytes] = []
    try:
        # Piece by piece: a large buffer, once freed, makes the C library's allocator keep memory ever after.
        while limit > 0 and (part := os.read(fd, min(limit, 1 << 16))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def map_read(fd: int, size: int) -> mmap.mmap:
    """A read-only map; it keeps a descriptor of its own."""
    return mmap.mmap(fd, size, access=mmap.ACCESS_READ)


def map_shared(fd: int, size: int) -> mmap.mmap:
    """A map through which stores reach every process."""
    return mmap.mmap(fd, size, access=mmap.ACCESS_WRITE)


def data_ranges(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Ranges from `start` to `stop` that may hold something other than zeros."""
    if not hasattr(os, "SEEK_DATA"):
        yield start, stop
        return
    while start < stop:
        try:
            first = os.lseek(fd, start, os.SEEK_DATA)
            last = os.lseek(fd, first, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            yield start, stop
            return
        if first >= stop:
            return
        yield first, min(last, stop)
        start = last


def last_nonzero(fd: int, start: int, stop: int) -> int:
    """Offset just past the last byte from `start` to `stop` that is not zero; `start` when there is none."""
    end = start
    for first, last in data_ranges(fd, start, stop):
        for at in range(first, last, _CHUNK):
            kept = read_at(fd, min(_CHUNK, last - at), at).rstrip(b"\0")
            if kept:
                end = max(end, at + len(kept))
    return end


def copy_range(source: int, target: int, start: int, stop: int, at: int) -> None:
    """Copy bytes from one file to another."""
    for offset in range(start, stop, _CHUNK):
        data = read_at(source, min(_CHUNK, stop - offset), offset)
        write_at(target, data, at + offset - start)


def zero_range(fd: int, start: int, stop: int) -> None:
    """Overwrite with zeros."""
    zeros = bytes(min(_CHUNK, max(0, stop - start)))
    for offset in range(start, stop, _CHUNK):
        write_at(fd, zeros[: min(_CHUNK, stop - offset)], offset)


def entries(directory: str) -> list[os.DirEntry[str]]:
    """What is in a directory, sorted by name."""
    with os.scandir(directory) as found:
        return sorted(found, key=lambda entry: entry.name)


def is_regular(path: str) -> bool | None:
    """True for a regular file, False for anything else, None when there is nothing."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return None


def is_fifo(path: str) -> bool:
    """Is there a FIFO?"""
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def make_fifo(path: str) -> bool:
    """See to it that there is a FIFO; False where the system or the file system has none."""
    if not hasattr(os, "mkfifo"):
        return False
    try:
        os.mkfifo(path)
    except FileExistsError:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:
        return False
    return True


def open_fifo(path: str, *, write_only: bool) -> int | None:
    """A non-blocking descriptor of a FIFO, or None when it cannot be had (no FIFO, or no reader)."""
    flags = os.O_WRONLY if write_only else os.O_RDWR
    try:
        fd = os.open(path, flags | _BASE_FLAGS)
    except OSError:
        return None
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return fd
