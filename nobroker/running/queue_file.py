"""The file ``queue.yml``: what it says, with lines, and all that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from nobroker.app.errors import ConfigError, ConfigProblem
from nobroker.app.yaml_text import (
    MOST_VALUES,
    Node,
    composed,
    is_empty,
    is_too_large,
    line_of,
    malformed,
    merged,
    need_yaml,
    read_text,
    value_of,
)
from nobroker.running.kinds import Text
from nobroker.running.settings import SCHEDULER, TOP, TOP_KEYS, WORKER, Setting

DEFAULT: Final = "default"
"""Of a file that is keyed by environment: what the others are laid over."""
_MOST_BYTES: Final = 2**20
_EMPTY: Final = f"it is empty; it may say {', '.join(TOP_KEYS)}"
_VARIABLE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)(?::-([^}]*))?\}|)", re.ASCII)
_PLAIN_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)")


class Found(NamedTuple):
    """A value, and the line that says it."""

    value: Any
    line: int


Says = dict[str, Found]


class Contents(NamedTuple):
    """What a file says, by key; None where it does not."""

    workers: Sequence[Says] | None
    scheduler: Says
    top: Says


class _Unset(Exception):
    """A variable without a value."""


class _Unknown(Exception):
    """What a value is depends on an environment that is not this one."""


def read(path: str, environment: str, chosen: bool, variables: Mapping[str, str]) -> Contents:
    """What a file says.

    Args:
        environment: which part counts, in a file that is keyed by environment.
        chosen: somebody has said so, so it must be there.
        variables: what ``$NAME`` stands for.

    Raises:
        ConfigError: with all that is wrong.
        MissingExtraError: what reads it is not installed.
    """
    need_yaml(f"files such as {path}", "yaml")
    reader = _Reader(path, variables)
    contents = reader.contents(environment, chosen)
    if reader.problems:
        raise ConfigError(sorted(reader.problems, key=lambda problem: problem.line or 0))
    return contents


class _Reader:
    def __init__(self, path: str, variables: Mapping[str, str]) -> None:
        self.problems: list[ConfigProblem] = []
        self._path = path
        self._variables = variables
        self._foreign = False  # the part being read is of another environment
        self._known: dict[int, dict[str, tuple[int, Node]]] = {}  # mappings that several aliases stand for

    def _refuse(self, reason: str, line: int | None = None, key: str | None = None) -> None:
        problem = ConfigProblem(reason, self._path, line, key)
        if problem not in self.problems:  # an anchor may be read by several aliases
            self.problems.append(problem)

    def contents(self, environment: str, chosen: bool) -> Contents:
        root = self._root()
        if root is None:
            return Contents(None, {}, {})
        pairs = self._pairs(root, "")
        if not pairs:
            if not self.problems:
                self._refuse(_EMPTY)
            return Contents(None, {}, {})
        if self._is_flat(pairs):
            return self._part(root, "")
        parts: dict[str, Contents] = {}
        for name, (_, node) in pairs.items():
            self._foreign = name not in (environment, DEFAULT)
            parts[name] = Contents(None, {}, {}) if is_empty(node) else self._part(node, f"{name}.")
        if environment not in parts and (chosen or DEFAULT not in parts):
            self._refuse(_no_environment(environment, list(parts)))
        below, above = (parts.get(name, Contents(None, {}, {})) for name in (DEFAULT, environment))
        workers = below.workers if above.workers is None else above.workers
        return Contents(workers, below.scheduler | above.scheduler, below.top | above.top)

    def _root(self) -> Node | None:
        """The mapping that the file is; None, refused, when it is none."""
        try:
            text = read_text(self._path, _MOST_BYTES)
        except (OSError, ValueError) as error:
            self._refuse(f"can't be read: {getattr(error, 'strerror', None) or error}")
            return None
        try:
            root = composed(text)
        except ValueError as error:
            reason, line = malformed(text, error)
            self._refuse(reason, line + 1)
            return None
        if root is None or is_empty(root):
            self._refuse(_EMPTY)
        elif root.id != "mapping":
            self._refuse(f"it has keys with values: {', '.join(TOP_KEYS)}", line_of(root))
        elif is_too_large(root):
            self._refuse(f"it has more than {MOST_VALUES:,} values, or an alias that contains itself")
        else:
            return root
        return None

    def _is_flat(self, pairs: Mapping[str, tuple[int, Node]]) -> bool:
        """Whether the file has its keys at its top, and no environments."""
        return any(
            key in TOP_KEYS or not (node.id == "mapping" or is_empty(node))
            for key, (_, node) in pairs.items()
        )

    def _pairs(self, mapping: Node, where: str) -> dict[str, tuple[int, Node]]:
        """Keys with their lines and values; each once."""
        if id(mapping) in self._known:
            return self._known[id(mapping)]
        found = self._known[id(mapping)] = self._pairs_anew(mapping, where)
        return found

    def _pairs_anew(self, mapping: Node, where: str) -> dict[str, tuple[int, Node]]:
        seen: dict[str, int] = {}
        for key, _ in mapping.value:
            if key.id != "scalar":
                self._refuse("a key is a word", line_of(key), where.rstrip(".") or None)
                return {}
            name, line = key.value[:60], line_of(key)
            if name in seen and name != "<<":
                self._refuse(f"it is there twice; first in line {seen[name]}", line, where + name)
            seen.setdefault(name, line)
        try:
            pairs = merged(mapping)
        except ValueError as error:
            self._refuse(f"malformed: {error}", line_of(mapping), where + "<<")
            return {}
        return {key.value: (line_of(key), value) for key, value in pairs}

    def _part(self, mapping: Node, where: str) -> Contents:
        """What stands in the whole file, or below one environment."""
        top: Says = {}
        scheduler: Says = {}
        workers: Sequence[Says] | None = None
        by_key = {setting.key: setting for setting in TOP}
        for key, (line, node) in self._pairs(mapping, where).items():
            if key == "workers":
                workers = self._workers(node, line, where)
            elif key == "scheduler":
                if node.id == "mapping":
                    scheduler = self._section(node, SCHEDULER, f"{where}scheduler.")
                else:
                    keys = ", ".join(setting.key for setting in SCHEDULER)
                    self._refuse(f"it has keys with values: {keys}", line, where + key)
            elif key in by_key:
                self._setting(by_key[key], node, line, where, top)
            else:
                self._refuse(_no_key(key, TOP_KEYS), line, where + key[:60])
        return Contents(workers, scheduler, top)

    def _workers(self, node: Node, line: int, where: str) -> list[Says]:
        if node.id != "sequence" or not node.value:
            self._refuse("it is a list of workers, at least one: '- queues: ...'", line, f"{where}workers")
            return []
        found = []
        for number, item in enumerate(node.value):
            place = f"{where}workers[{number}]"
            if item.id == "mapping":
                found.append(self._section(item, WORKER, f"{place}."))
            else:
                keys = ", ".join(setting.key for setting in WORKER)
                self._refuse(f"a worker has keys with values: {keys}", line_of(item), place)
        return found

    def _section(self, mapping: Node, settings: Sequence[Setting], where: str) -> Says:
        by_key = {setting.key: setting for setting in settings}
        found: Says = {}
        for key, (line, node) in self._pairs(mapping, where).items():
            if key in by_key:
                self._setting(by_key[key], node, line, where, found)
            else:
                self._refuse(_no_key(key, list(by_key)), line, where + key[:60])
        return found

    def _setting(self, setting: Setting, node: Node, line: int, where: str, found: Says) -> None:
        try:
            found[setting.key] = Found(setting.kind(self._value(node)), line)
        except _Unknown:
            return
        except (ValueError, _Unset) as error:
            self._refuse(str(error), line, where + setting.key)
        except RecursionError:
            self._refuse("it is nested too deeply", line, where + setting.key)

    def _value(self, node: Node) -> Any:
        """Raises:
        ValueError: it is of a type that there is not, or is written so that YAML takes it for something else.
        """
        if node.id == "sequence":
            return [self._value(item) for item in node.value]
        if node.id == "mapping":
            return {}
        if "$" in node.value:
            return self._expanded(node.value)
        value = value_of(node)
        if type(value) is int and not _PLAIN_NUMBER.fullmatch(node.value):
            raise ValueError(f"YAML takes {node.value} for {value:,}; write that, or put it in quotes")
        return value

    def _expanded(self, text: str) -> Text:
        if self._foreign:
            raise _Unknown
        return Text(_VARIABLE.sub(self._instead, text))

    def _instead(self, match: re.Match[str]) -> str:
        name, default = match[1] or match[2], match[3]
        if match[0] == "$$":
            return "$"
        if name is None:
            raise ValueError("a $ stands before the name of a variable, $NAME or ${NAME}; one dollar is $$")
        said = self._variables.get(name)
        if said is None or (said == "" and default is not None):
            if default is None:
                raise _Unset(f"the variable {name} is not set; ${{{name}:-...}} says what it is then")
            return default
        return said


def _no_key(key: str, keys: Sequence[str]) -> str:
    near = get_close_matches(key[:60], keys, 1, 0.6)
    if not near and keys is TOP_KEYS:
        below: Iterator[str] = (
            f"it belongs to {section}"
            for section, settings in (("one of workers", WORKER), ("scheduler", SCHEDULER))
            if key in [setting.key for setting in settings]
        )
        hint = next(below, None)
        if hint is not None:
            return f"there is no such key here; {hint}"
    return f"there is no such key; {f'did you mean {near[0]}?' if near else 'there are: ' + ', '.join(keys)}"


def _no_environment(environment: str, names: Sequence[str]) -> str:
    near = get_close_matches(environment, names, 1, 0.6)
    misspelt = [(name, like[0]) for name in names if (like := get_close_matches(name, TOP_KEYS, 1, 0.75))]
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
    if misspelt:
        hint += f"; or is {misspelt[0][0]} meant to be the key {misspelt[0][1]}?"
    return f"it is keyed by environment, and has no {environment!r:.60} (NOBROKER_ENV); {hint[:300]}"
