"""Recurring tasks in a YAML file. Each error names the file, the line, the task and the key.

One bad entry does not stop the others: where the file as a whole can't be parsed, its entries are parsed one
by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nobroker.app.base import BaseJob
from nobroker.app.definition import Definition
from nobroker.app.errors import MissingExtraError, RecurringError
from nobroker.app.schedules import schedule_of
from nobroker.app.tasks import Task, task_of
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

if TYPE_CHECKING:
    from nobroker.app.application import App

KEYS: Final = (
    "class",
    "function",
    "schedule",
    "args",
    "kwargs",
    "queue",
    "priority",
    "timezone",
    "missed",
    "grace",
)
NEEDS: Final = ("files of recurring tasks", "schedules")
_ENTRY = re.compile(r"^(?=[^\s#\-].*:)", re.MULTILINE)
_NAME = re.compile(r"""\s*["']?([^"':\n]{1,100})["']?\s*:""")


class Entry(NamedTuple):
    """One task, as it stands in the file.

    Attributes:
        name: of the task.
        line: of its name.
        values: by key.
        lines: of the keys.
    """

    name: str
    line: int
    values: dict[str, Any]
    lines: dict[str, int]


def read(app: App | None, path: str, tasks: dict[str, Task]) -> list[RecurringError]:
    """Add the tasks of a file; what is wrong with the others.

    Args:
        app: whose jobs they are; None: jobs are not looked at, and nothing is added.
    """
    errors: list[RecurringError] = []
    for entry in _entries(path, errors):
        errors += _wrong_keys(path, entry)
        try:
            task = _task(app, entry)
        except RecurringError as error:
            line = entry.lines.get(error.key or "", entry.line)
            errors.append(RecurringError(error.reason, file=path, line=line, task=entry.name, key=error.key))
            continue
        if entry.name in tasks:
            reason = "there is another task of this name"
            errors.append(RecurringError(reason, file=path, line=entry.line, task=entry.name))
        elif task is not None and not any(error.task == entry.name for error in errors):
            tasks[entry.name] = task
    return errors


def _wrong_keys(path: str, entry: Entry) -> Iterator[RecurringError]:
    for key in entry.values:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(KEYS)}"
            yield RecurringError(
                f"there is no such key; {hint}",
                file=path,
                line=entry.lines[key],
                task=entry.name,
                key=key[:60],
            )


def _task(app: App | None, entry: Entry) -> Task | None:
    """The task of an entry; None: its job is not looked at.

    Raises:
        RecurringError: with its key.
    """
    values = entry.values
    if "schedule" not in values:
        raise RecurringError("it says no schedule", key="schedule")
    args, kwargs = values.get("args"), values.get("kwargs")
    if args is not None and type(args) is not list:
        raise RecurringError(f"it is a list, not {args!r:.60}", key="args")
    if kwargs is not None and not (type(kwargs) is dict and all(type(key) is str for key in kwargs)):
        raise RecurringError(f"it has values by names, not {kwargs!r:.60}", key="kwargs")
    kind = [key for key in ("class", "function") if values.get(key) is not None]
    if len(kind) != 1:
        raise RecurringError("it says which job runs: either class or function", key="class")
    if type(values[kind[0]]) is not str:
        raise RecurringError(f"it is the name of a job, not {values[kind[0]]!r:.60}", key=kind[0])
    try:
        if app is None:
            schedule_of(values["schedule"], values.get("timezone"))
            return None
        return task_of(entry.name, _job(app, kind[0], values[kind[0]]), values)
    except RecurringError:
        raise
    except (MissingExtraError, ValueError) as error:
        raise RecurringError(str(error), key=getattr(error, "key", "schedule")) from error


def _job(app: App, kind: str, name: str) -> Definition:
    """The job of this name, or of this place: ``module.name``."""
    by_place = {f"{one.module}.{one.target.__qualname__}": one for one in app.jobs.values()}
    found = app.jobs.get(name) or by_place.get(name)
    if found is None:
        near = get_close_matches(name[:200], [*app.jobs, *by_place], 1, 0.5)
        some = ", ".join(sorted(app.jobs)[:8]) or "none; are the modules imported that define them?"
        hint = f"did you mean {near[0]}?" if near else f"there are: {some}"
        raise RecurringError(f"no job of this name is registered: {name[:60]!r}; {hint}", key=kind)
    is_class = isinstance(found.target, type) and issubclass(found.target, BaseJob)
    if is_class != (kind == "class"):
        right = "class" if is_class else "function"
        raise RecurringError(f"{name} is a {right}: write {right}: {name}", key=kind)
    return found


# -- the file


def _entries(path: str, errors: list[RecurringError]) -> Iterator[Entry]:
    try:
        need_yaml(*NEEDS)
        text = read_text(path)
    except (MissingExtraError, OSError, ValueError) as error:
        errors.append(RecurringError(f"can't be read: {error}", file=path))
        return
    lines: dict[str, int] = {}
    for part, above in _parts(text):
        try:
            node = composed(part)
        except ValueError as error:
            errors.append(_malformed(path, part, above, error))
            continue
        if node is None or is_empty(node):
            continue
        if node.id != "mapping":
            reason = "it has tasks by their names: 'name:', and below it, indented, 'schedule: ...'"
            errors.append(RecurringError(reason, file=path, line=line_of(node, above)))
            continue
        for key, value in node.value:
            entry = _entry(path, key, value, above, errors)
            if entry is None:
                continue
            if entry.name in lines:
                reason = f"there is a task of this name in line {lines[entry.name]} already"
                errors.append(RecurringError(reason, file=path, line=entry.line, task=entry.name))
                continue
            lines[entry.name] = entry.line
            yield entry


def _parts(text: str) -> list[tuple[str, int]]:
    """The text, if it can be parsed, else its entries; each with the number of lines above it."""
    try:
        composed(text)
    except ValueError:
        parts, above = [], 0
        for part in _ENTRY.split(text):
            parts.append((part, above))
            above += part.count("\n")
        return [(part, above) for part, above in parts if part.strip()]
    return [(text, 0)]


def _malformed(path: str, part: str, above: int, error: ValueError) -> RecurringError:
    said, line = malformed(part, error)
    named = _NAME.match(part)
    begin = part.splitlines()[line]
    return RecurringError(
        said,
        file=path,
        line=above + 1 + line,
        task=None if named is None else named[1].strip(),
        key=None if ":" not in begin or begin[:1].strip() else begin.partition(":")[0].strip()[:60],
    )


def _entry(path: str, key: Node, value: Node, above: int, errors: list[RecurringError]) -> Entry | None:
    name, line = key.value, line_of(key, above)
    if key.id != "scalar" or not 1 <= len(name) <= 100 or not name.isprintable():
        reason = f"the name of a task has 1 to 100 printable characters, not {name!r:.60}"
        errors.append(RecurringError(reason, file=path, line=line))
        return None

    def refused(reason: str, line: int, key: str | None = None) -> None:
        errors.append(RecurringError(reason, file=path, line=line, task=name, key=key))

    if value.id != "mapping":
        refused("below its name, indented, stands what it is: 'schedule: ...'", line)
        return None
    if is_too_large(value):
        refused(f"it has more than {MOST_VALUES:,} values, or an alias that contains itself", line)
        return None
    said: set[str] = set()
    for inner, _ in value.value:
        if str(inner.value) in said:
            refused("it is said twice", line_of(inner, above), str(inner.value)[:60])
            return None
        said.add(str(inner.value))
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    try:
        pairs = merged(value)
    except ValueError as error:
        refused(f"malformed: {error}", line, "<<")
        return None
    for inner, node in pairs:
        known = str(inner.value)
        lines[known] = line_of(inner, above)
        try:
            values[known] = value_of(node)
        except ValueError as error:
            values[known] = None
            refused(f"malformed: {error}", lines[known], known[:60])
    return Entry(name, line, values, lines)
