"""Streams of JSON Lines and JSON arrays as values with their line numbers, in constant memory.

Each reader yields `Batch`es: values, the place of each, and how much of the file has been read. Values come
exactly as the standard
library's `json` reads them, whether or not a faster parser is installed.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import IO, Any

from . import jsontext
from .failures import BadInputError

CHUNK_BYTES = 2**20
BATCH_BYTES = 16 * 2**20
"""A batch ends when so much was read for it, however few values it has."""
MAX_ITEM_BYTES = 512 * 2**20
"""More than the longest line that the dump of the largest job can have."""

_BLANK = re.compile(r"[ \t\n\r]*")
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _find_fast_loads() -> Callable[[str], Any] | None:
    try:
        import orjson
    except ImportError:
        return None
    fast: Callable[[str], Any] = orjson.loads
    return fast


@dataclass(slots=True)
class Batch:
    """Values read together.

    Attributes:
        values: what was read.
        places: line (or object) number of each.
        bytes_read: size of the input up to here, in bytes.
        has_lines: whether places are lines.
    """

    values: list[Any]
    places: Sequence[int]
    bytes_read: int
    has_lines: bool = True


# -- JSON Lines ---------------------------------------------------------------------------------------------


def read_lines(stream: IO[bytes], size: int) -> Iterator[tuple[list[str], int, int]]:
    """Lines of a UTF-8 stream, up to `size` at a time: `(lines, number of the first, bytes read)`.

    Raises:
        BadInputError: a line is not UTF-8, or is longer than any record can be.
    """
    number, total = 1, 0
    for block in _blocks(stream):
        total += len(block)
        if number == 1:
            block = block.removeprefix(codecs.BOM_UTF8)
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            line = number + block.count(b"\n", 0, error.start)
            raise BadInputError(f"not UTF-8 ({error.reason}); convert the file first", line=line) from error
        lines = text.replace("\r\n", "\n").split("\n") if "\r\n" in text else text.split("\n")
        if not lines[-1]:
            lines.pop()
        for start in range(0, len(lines), size):
            part = lines[start : start + size]
            left = len(lines) - start - len(part)
            yield part, number + start, total if not left else total - len(block) * left // len(lines)
        number += len(lines)


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The stream in pieces that end with a line end (but for the last)."""
    kept: list[bytes] = []
    held = 0
    while chunk := stream.read(CHUNK_BYTES):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join((*kept, chunk[:cut]))
            kept, held = [], 0
        if cut < len(chunk):
            kept.append(chunk[cut:])
            held += len(chunk) - cut
        if held > MAX_ITEM_BYTES:
            raise BadInputError(f"a line is longer than {MAX_ITEM_BYTES} bytes: this is not JSON Lines")
    if held:
        yield b"".join(kept)


def read_jsonl(stream: IO[bytes], size: int) -> Iterator[Batch]:
    """The value of each line that is not blank, up to `size` in a batch.

    Raises:
        BadInputError: with the line number.
    """
    parse = Parser()
    for lines, number, total in read_lines(stream, size):
        yield parse.batch(lines, number, total)


class Parser:
    """Turns many lines into values in as few steps of Python as can be."""

    def __init__(self) -> None:
        self._fast = _find_fast_loads()

    def batch(self, lines: list[str], number: int, bytes_read: int) -> Batch:
        """The values of lines; `number` is that of the first."""
        values = self._all_at_once(lines)
        if values is not None:
            return Batch(values, range(number, number + len(lines)), bytes_read)
        values = []
        places = []
        for place, line in enumerate(lines, number):
            if line and not line.isspace():
                values.append(one_line(line, place))
                places.append(place)
        return Batch(values, places, bytes_read)

    def _all_at_once(self, lines: list[str]) -> list[Any] | None:
        """All values when every line is one plain JSON value and nothing else; else None and no reason."""
        try:
            if self._fast is not None and not _has_long_number(lines):
                return list(map(self._fast, lines))
            found = list(map(_scan, lines, repeat(0)))
        except (ValueError, RecursionError):
            return None
        # The scanner ends quietly on a line that holds no value, and `map` with it: both lengths tell.
        if [end for _, end in found] != list(map(len, lines)):
            return None
        return [value for value, _ in found]


def one_line(line: str, number: int) -> Any:
    """The value of one line, with an error that says where."""
    try:
        return jsontext.decode(line)
    except ValueError as error:
        # JSON's own errors, and the interpreter's limit on the digits of an integer.
        raise BadInputError(_reason(error), line=number) from error


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return f"not JSON that can be read: {error}"


def _has_long_number(lines: list[str]) -> bool:
    """Whether nineteen digits stand together: the faster parser would make a float of such an integer."""
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    return b"0000000000000000000" in text.translate(_DIGITS_TO_ZERO)


# -- one JSON document --------------------------------------------------------------------------------------


def read_json(stream: IO[bytes], size: int) -> Iterator[Batch]:
    """The elements of a JSON array, or the single value that the document is, up to `size` in a batch.

    Raises:
        BadInputError: with the line number.
    """
    source = _Text(stream)
    values: list[Any] = []
    places: list[int] = []
    begun = 0
    for line, value in _elements(source):
        values.append(value)
        places.append(line)
        if len(values) == size or source.bytes_read - begun > BATCH_BYTES:
            yield Batch(values, places, source.bytes_read)
            values, places, begun = [], [], source.bytes_read
    yield Batch(values, places, source.bytes_read)


def _elements(source: _Text) -> Iterator[tuple[int, Any]]:
    mark = source.mark()
    if mark != "[":
        if not mark:
            return
        yield source.line, source.value()
    else:
        source.at += 1
        if source.mark() == "]":
            source.at += 1
        else:
            while True:
                source.mark()
                yield source.line, source.value()
                mark = source.mark()
                source.at += 1
                if mark == "]":
                    break
                if mark != ",":
                    raise BadInputError(
                        "the array does not end" if not mark else f"{mark!r} where ',' or ']' belongs",
                        line=source.line,
                    )
    if source.mark():
        raise BadInputError(
            "there is more after the end of the document; for JSON Lines use that format", line=source.line
        )


class _Text:
    """A window on a long JSON text."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._ended = False
        self.text = ""
        self.at = 0
        self.bytes_read = 0
        self._line = 1
        self._counted = 0

    @property
    def line(self) -> int:
        """Number of the line at the present place."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def mark(self) -> str:
        """Go to the next character that is not blank and give it; empty at the end of the stream."""
        while True:
            match = _BLANK.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more(CHUNK_BYTES):
                return ""

    def value(self) -> Any:
        """Read the value that begins here."""
        while True:
            start = self.at
            try:
                value, end = _scan(self.text, start)
            except StopIteration as nothing:
                where, reason = nothing.value, "Expecting value"
                short = where >= len(self.text) - 16
            except json.JSONDecodeError as error:
                where, reason = error.pos, error.msg
                short = where >= len(self.text) - 16 or reason.startswith("Unterminated string")
            except RecursionError:
                raise BadInputError(
                    "nested too deeply for a JSON array; use JSON Lines", line=self.line
                ) from None
            except ValueError as error:
                raise BadInputError(_reason(error), line=self.line) from error
            else:
                # A number at the edge of the window may go on behind it, with up to three characters before
                # the next digit.
                if end + 3 <= len(self.text) or not self._more(CHUNK_BYTES):
                    self.at += end - start
                    return value
                continue
            if not short or not self._more(max(CHUNK_BYTES, len(self.text) - self.at)):
                line = self.line + self.text.count("\n", self.at, self.at + where - start)
                raise BadInputError(f"not JSON: {reason}", line=line)

    def _more(self, size: int) -> bool:
        """Read on; False at the end of the stream."""
        if self._ended:
            return False
        if len(self.text) - self.at > MAX_ITEM_BYTES:
            raise BadInputError(f"a value is longer than {MAX_ITEM_BYTES} bytes", line=self.line)
        chunk = self._stream.read(size)
        self.bytes_read += len(chunk)
        line = self.line
        try:
            text = self._decode.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line += self.text.count("\n", self.at) + chunk.count(b"\n", 0, error.start)
            raise BadInputError(f"not UTF-8 ({error.reason}); convert the file first", line=line) from error
        self.text = self.text[self.at :] + text
        self.at = self._counted = 0
        self._ended = not chunk
        return bool(chunk)
