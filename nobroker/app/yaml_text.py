"""YAML as nodes that know their lines, and not more of it than a person writes. The only place that imports
PyYAML, when it is needed.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, Final

from nobroker.app.errors import MissingExtraError

Node = Any
"""A node of PyYAML: its stubs do not know all that a node has."""

MOST_BYTES: Final = 16 * 2**20
MOST_VALUES: Final = 100_000
"""With what aliases stand for: a few lines of them may stand for more than fits in memory."""
_NEEDS_QUOTES = re.compile(r"(?:[:\[,]\s*|(?:^|\s)-\s+)[*@%&!]")


def need_yaml(what: str, extra: str) -> None:
    """Raises:
    MissingExtraError: PyYAML is not installed.
    """
    try:
        import yaml  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{what} need PyYAML: pip install 'nobroker[{extra}]'") from error


def read_text(path: str, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file, of so many bytes at most.

    Raises:
        OSError: it can't be read.
        ValueError: it is no file, too large, or no text.
    """
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise ValueError("it is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no file")
    if found.st_size > most_bytes:
        raise ValueError(f"it has {found.st_size:,} bytes; {most_bytes:,} are enough")
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text in UTF-8: {error.reason}, {error.start:,} bytes in") from None


def composed(text: str) -> Node | None:
    """The root of a text; None where it says nothing.

    Raises:
        ValueError: it is no YAML; as a second argument the number of the line, from 0, where that is known.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.compose(text, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(said, None if mark is None else mark.line) from None
    except RecursionError:
        raise ValueError("it is nested too deeply", None) from None


def malformed(text: str, error: ValueError) -> tuple[str, int]:
    """What `composed` said, in words, and the number of the line, from 0."""
    said, line = error.args
    lines = text.splitlines() or [""]
    line = min(line or 0, len(lines) - 1)  # what is not ended is seen behind the last one
    quotes = "; a value that begins with one of * @ % & ! stands in quotes"
    return f"malformed: {said}{quotes if _NEEDS_QUOTES.search(lines[line]) else ''}", line


def is_empty(node: Node | None) -> bool:
    return node is None or node.tag == "tag:yaml.org,2002:null"


def merged(mapping: Node) -> list[tuple[Node, Node]]:
    """The pairs of a mapping: first those of ``<<``, which its own overrule.

    Raises:
        ValueError: what is to be merged is no mapping.
    """
    import yaml

    try:
        yaml.SafeLoader("").flatten_mapping(mapping)
    except yaml.YAMLError as error:
        raise ValueError(getattr(error, "problem", None) or str(error)) from None
    pairs: list[tuple[Node, Node]] = mapping.value
    return pairs


def value_of(node: Node) -> Any:
    """Raises:
    ValueError: of a type that is not allowed here, or a date that there is not.
    """
    import yaml

    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(getattr(error, "problem", None) or str(error)) from None
    except (TypeError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


def is_too_large(node: Node) -> bool:
    """Whether a node has more values than `MOST_VALUES`, aliases written out, or contains itself."""
    try:
        return _size(node, {}) > MOST_VALUES
    except RecursionError:
        return True


def _size(node: Node, known: dict[int, int]) -> int:
    """How many values stand in a node. One that contains itself counts as too many."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = MOST_VALUES + 1  # as long as it is not known: who meets it now is inside it
    if node.id == "mapping":
        size = 1 + sum(_size(key, known) + _size(value, known) for key, value in node.value)
    elif node.id == "sequence":
        size = 1 + sum(_size(item, known) for item in node.value)
    else:
        size = 1
    known[id(node)] = size
    return size


def line_of(node: Node, above: int = 0) -> int:
    """The number of a node's line, from 1, with so many lines above the text."""
    return int(node.start_mark.line) + 1 + above
