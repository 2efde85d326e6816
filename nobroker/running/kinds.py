"""Kinds of settings: what a value may be, and what it is taken for. Each is called with a value as it was
said, and raises `ValueError` with the reason when that can't be.

Files and programs say values of their own types. The environment and the command line say `Text`, which is
read as what it says; so is what a file says by means of a variable.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol

LONGEST_S: Final = 366 * 86400.0
SHORTEST_S: Final = 0.001
SMALLEST_BYTES: Final = 2**20
_LARGEST_BYTES: Final = 2**60
_DURATION = re.compile(
    r"(?=.)(?:{}d\s*)?(?:{}h\s*)?(?:{}m(?!s)\s*)?(?:{}s\s*)?(?:{}ms)?".format(
        *[r"(\d{1,9}(?:\.\d{1,6})?)\s*"] * 5
    )
)
_UNITS_S: Final = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_SIZE = re.compile(r"(\d{1,19}(?:\.\d{1,6})?)\s*(?:([KMGT])(?:iB)?|B)?", re.IGNORECASE)
_WORDS: Final = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Text(str):
    """A value of whatever kind, as text."""

    __slots__ = ()


class Kind(Protocol):
    """What a setting may be.

    Attributes:
        metavar: a word for a value, in the help of the command line.
    """

    @property
    def metavar(self) -> str: ...

    def __call__(self, value: Any) -> Any: ...


class Whole(NamedTuple):
    """A whole number."""

    low: int
    high: int
    metavar: str = "N"

    def __call__(self, value: Any) -> int:
        number = value
        if type(value) is Text:
            stripped = value.strip()
            number = int(stripped) if re.fullmatch(r"\d{1,18}", stripped, re.ASCII) else None
        if type(number) is not int or not self.low <= number <= self.high:
            raise ValueError(f"it is a whole number from {self.low:,} to {self.high:,}, not {shown(value)}")
        return number


class Flag(NamedTuple):
    """True or false."""

    metavar: str = "true|false"

    def __call__(self, value: Any) -> bool:
        found = _WORDS.get(value.strip().lower()) if type(value) is Text else value
        if type(found) is not bool:
            raise ValueError(f"it is true or false, not {shown(value)}")
        return found


class Choice(NamedTuple):
    """One of some words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        return "|".join(self.words)

    def __call__(self, value: Any) -> str:
        word = value.strip() if type(value) is Text else value
        if type(word) is not str or word not in self.words:
            raise ValueError(f"it is one of {', '.join(self.words)}, not {shown(value)}")
        return word


class Seconds(NamedTuple):
    """A length of time: seconds, or such as ``5s``, ``2m``, ``1h30m``, ``250ms``."""

    zero: bool = False
    metavar: str = "TIME"

    def __call__(self, value: Any) -> float:
        seconds = self._seconds(value)
        if seconds is None:
            raise ValueError(f"it is seconds, or such as 5s, 2m, 1h30m, 250ms, not {shown(value)}")
        if not (SHORTEST_S <= seconds <= LONGEST_S or (self.zero and seconds == 0)):
            least = "0, or " if self.zero else ""
            raise ValueError(f"it is {least}1ms to 366d, not {shown(value)}")
        return seconds

    def _seconds(self, value: Any) -> float | None:
        if isinstance(value, timedelta):
            return value.total_seconds()
        if type(value) in (int, float):
            return float(value) if abs(value) < 1e18 else math.inf
        if not isinstance(value, str):
            return None
        text = value.strip()
        if type(value) is Text and re.fullmatch(r"\d{1,18}(\.\d{1,9})?", text, re.ASCII):
            return float(text)
        found = _DURATION.fullmatch(text)
        if found is None:
            return None
        return sum(
            float(number) * unit for number, unit in zip(found.groups(), _UNITS_S, strict=True) if number
        )


class Bytes(NamedTuple):
    """A size: bytes, or such as ``512M``, ``2G``, ``64K``; each of 1,024 of the one before."""

    metavar: str = "SIZE"

    def __call__(self, value: Any) -> int:
        size = value
        if isinstance(value, str):
            found = _SIZE.fullmatch(value.strip())
            size = None
            if found is not None:
                factor = 1024 ** (" KMGT".index(found[2].upper()) if found[2] else 0)
                size = int(found[1]) * factor if found[1].isdigit() else round(float(found[1]) * factor)
        if type(size) is not int:
            raise ValueError(f"it is bytes, or such as 512M, 2G, 512MiB (1,024 each), not {shown(value)}")
        if not SMALLEST_BYTES <= size <= _LARGEST_BYTES:
            raise ValueError(f"it is 1M at least, not {shown(value)}, which is {size:,} bytes")
        return size


class Never(NamedTuple):
    """Something, or nothing: null, and a word for that as text."""

    kind: Any
    word: str | None = "none"

    @property
    def metavar(self) -> str:
        return self.kind.metavar if self.word is None else f"{self.kind.metavar}|{self.word}"

    def __call__(self, value: Any) -> Any:
        if value is None or (type(value) is Text and value.strip().lower() == self.word):
            return None
        return self.kind(value)


class Queues(NamedTuple):
    """A list of queues and patterns, or a text of them with commas between."""

    metavar: str = "A,B*"

    def __call__(self, value: Any) -> tuple[str, ...]:
        from nobroker.app.queue_lists import pattern  # with it comes the whole job layer, which no help needs

        if isinstance(value, str):
            parts = value.split(",")
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, dict)):
            parts = [part for item in value for part in (item.split(",") if type(item) is Text else [item])]
        else:
            raise ValueError(f"it is a list of queues, not {shown(value)}")
        names = [part.strip() if isinstance(part, str) else part for part in parts]
        if not names or "" in names:
            raise ValueError(f"names with commas between them, or a list of names, not {shown(value)}")
        for name in names:
            pattern(name)
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is there twice")
        return tuple(names)


class FileName(NamedTuple):
    """The name of a file."""

    metavar: str = "FILE"

    def __call__(self, value: Any) -> str:
        name = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"it is the name of a file, not {shown(value)}")
        return str(name)


def shown(value: Any) -> str:
    """A value as it was said, in short."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, bool):
        return str(value).lower()
    said = repr(str(value) if isinstance(value, str) else value)
    return said if len(said) <= 60 else f"{said[:57]}..."
