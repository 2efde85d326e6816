"""Streams of CSV rows and of msgpack objects as values with their places, in constant memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import IO, Any

import msgpack

from . import readers
from .failures import BadInputError
from .readers import Batch

# -- CSV ----------------------------------------------------------------------------------------------------


def read_csv(stream: IO[bytes], size: int) -> Iterator[Batch]:
    """Each row after the header as a dict of strings, up to `size` in a batch.

    Raises:
        BadInputError: with the line number; also for a row that has not as many fields as the header.
    """
    counted = _Counted(stream)
    text = io.TextIOWrapper(io.BufferedReader(counted, readers.CHUNK_BYTES), encoding="utf-8-sig", newline="")
    rows = csv.reader(text, strict=True)
    limit = csv.field_size_limit(readers.MAX_ITEM_BYTES)
    try:
        header = next(rows, [])
        if len(set(header)) != len(header):
            raise BadInputError("two columns have the same name; give each its own", line=1)
        values: list[Any] = []
        places: list[int] = []
        begun = 0
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise BadInputError(
                    f"{len(row)} fields where the header has {len(header)}", line=rows.line_num
                )
            values.append(dict(zip(header, row, strict=True)))
            places.append(rows.line_num)
            if len(values) == size or counted.bytes_read - begun > readers.BATCH_BYTES:
                yield Batch(values, places, counted.bytes_read)
                values, places, begun = [], [], counted.bytes_read
        yield Batch(values, places, counted.bytes_read)
    except csv.Error as error:
        raise BadInputError(f"not CSV: {error}", line=rows.line_num) from error
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"not UTF-8 ({error.reason}); convert the file first", line=rows.line_num + 1
        ) from error
    finally:
        csv.field_size_limit(limit)


class _Counted(io.RawIOBase):
    """A stream that knows how much was read from it and leaves the one it reads open."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream = stream
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(len(buffer))
        buffer[: len(found)] = found
        self.bytes_read += len(found)
        return len(found)


# -- msgpack ------------------------------------------------------------------------------------------------


def read_msgpack(stream: IO[bytes], size: int) -> Iterator[Batch]:
    """Each object of a stream of msgpack objects, up to `size` in a batch; timestamps become datetimes.

    Raises:
        BadInputError: with the number of the object.
    """
    unpacker = msgpack.Unpacker(
        strict_map_key=False, timestamp=3, max_buffer_size=readers.MAX_ITEM_BYTES, ext_hook=_refuse_extension
    )
    count = total = begun = 0
    values: list[Any] = []
    while True:
        chunk = stream.read(readers.CHUNK_BYTES)
        try:
            if chunk:
                unpacker.feed(chunk)
            total += len(chunk)
            for value in unpacker:
                count += 1
                values.append(value)
                if len(values) == size or total - begun > readers.BATCH_BYTES:
                    yield Batch(values, range(count - len(values) + 1, count + 1), total, False)
                    values, begun = [], total
        except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
            raise BadInputError(f"not msgpack: {error or type(error).__name__}", item=count + 1) from error
        if not chunk:
            break
    if unpacker.tell() != total:
        raise BadInputError("the file ends in the middle of it", item=count + 1)
    yield Batch(values, range(count - len(values) + 1, count + 1), total, False)


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} has no meaning here")
