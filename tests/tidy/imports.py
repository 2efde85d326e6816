"""Who may import whom."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from tests.tidy.sources import Source, at, imports, product, references, within

# From the ground up. A module imports from its own layer and from those below it.
LAYERS = (
    "log", "values", "state", "stores", "verbs", "queue", "worker", "app", "running",
    "exports", "tools", "cli",
)  # fmt: skip
# Modules and folders of nobroker that are more than values (job, backoff, clock, errors and their like).
ABOVE_VALUES = {"state", "stores", "verbs", "queue", "worker", "app", "running", "cli"}
# Layers that are below, and still none of one's business.
NOT_FOR: dict[tuple[str, str], str] = {
    ("state", "log"): "the store turns log records into calls of the state machine",
    ("queue", "log"): "go through the store's verbs",
    ("verbs", "log"): "go through the store's verbs",
    ("worker", "log"): "use Queue's public verbs",
    ("worker", "state"): "use Queue's public verbs",
    ("worker", "stores"): "use Queue's public verbs",
    ("app", "log"): "use Queue's public verbs",
    ("app", "state"): "use Queue's public verbs",
    ("app", "stores"): "use Queue's public verbs",
    ("running", "state"): "use Queue's public verbs",
    ("running", "stores"): "use Queue's public verbs",
}
# `App.run` and its like are doors to what stands above them: opened when somebody goes through.
DOORS = {("app", "running")}
# Processes leave files beside the queue's, and hold locks on them.
RUNNING_MAY_USE = (
    "nobroker_mmap.files", "nobroker_mmap.directories", "nobroker_mmap.locking", "nobroker_mmap.format",
)  # fmt: skip
CORE_DEPENDENCIES = {"msgpack", "xxhash", "portalocker", "sortedcontainers"}
TERMINAL_DEPENDENCIES = {"click", "rich", "orjson"}
# The extras "schedules", "yaml" and "titles".
EXTRAS = {
    "nobroker.app.schedules": {"cronsim"},
    "nobroker.app.yaml_text": {"yaml"},
    "nobroker.running.titles": {"setproctitle"},
}
LOADERS = ("nobroker.cli", "nobroker.app.discovery", "nobroker.pytest_plugin")
PURE_IMPORTS = {
    "__future__", "abc", "array", "bisect", "collections", "copy", "dataclasses", "enum", "functools",
    "heapq", "itertools", "math", "operator", "sys", "types", "typing", "sortedcontainers",
    "msgpack", "xxhash",
}  # fmt: skip


def layer_of(module: str) -> str | None:
    top, _, rest = module.partition(".")
    if top in ("nobroker_mmap", "nobroker_tools"):
        return "log" if top == "nobroker_mmap" else "tools"
    if top != "nobroker":
        return None
    first = rest.partition(".")[0]
    if first in ("", "__main__"):
        return "cli" if first else "exports"
    return first if first in ABOVE_VALUES else "values"


def module_of(name: str, known: set[str]) -> str:
    """`nobroker.errors.NobrokerError` is of nobroker.errors, `nobroker.Queue` of nobroker."""
    while name not in known and "." in name:
        name = name.rpartition(".")[0]
    return name


def imports_run_downwards(sources: list[Source]) -> Iterator[str]:
    known = {s.module for s in product(sources)}
    for source in product(sources):
        mine = layer_of(source.module) or ""
        for item in imports(source):
            target = module_of(item.name, known)
            theirs = layer_of(target)
            if theirs is None or ((mine, theirs) in DOORS and (item.lazy or item.for_types_only)):
                continue
            if LAYERS.index(theirs) > LAYERS.index(mine):
                yield at(source, item.line, f"{mine} imports {target}, which is above it ({theirs})",
                         "let the caller above pass in what is needed, or move it down")  # fmt: skip
            elif (mine, theirs) in NOT_FOR:
                yield at(source, item.line, f"{mine} imports {target}", NOT_FOR[mine, theirs])
            elif (mine, theirs) == ("running", "log") and not within(item.name, RUNNING_MAY_USE):
                yield at(source, item.line, f"{mine} imports {target}", "use Queue's public verbs")


def no_hidden_imports(sources: list[Source]) -> Iterator[str]:
    for source in product(sources):
        for line, name in references(source):
            hidden = name == "builtins.__import__" or name == "importlib.import_module"
            if hidden and not within(source.module, LOADERS):
                yield at(
                    source,
                    line,
                    f"{name} hides an import",
                    f"an import statement; user code is loaded by {', '.join(LOADERS)}",
                )


SHARED = ("nobroker.clock", "nobroker.mailbox")
"""What the layers share that is no part of the queue."""


def job_layer_uses_public_names(sources: list[Source]) -> Iterator[str]:
    """What `nobroker.app` takes from the rest of the package is in `nobroker.__all__`, or shared."""
    exports = next((s for s in product(sources) if s.module == "nobroker"), None)
    public = set() if exports is None else all_of(exports)
    for source in product(sources):
        if not within(source.module, ("nobroker.app",)):
            continue
        for item in imports(source):
            if not within(item.name, ("nobroker",)) or within(item.name, ("nobroker.app", *SHARED)):
                continue
            if within(item.name, ("nobroker.running",)) and (item.lazy or item.for_types_only):
                continue
            name = item.name.rpartition(".")[2]
            if name not in public or name == item.name:
                yield at(source, item.line, f"imports {item.name}, which is not public",
                         "use what nobroker.__all__ has, or make it public")  # fmt: skip


def all_of(source: Source) -> set[str]:
    """The names in `__all__`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and any(ast.unparse(t) == "__all__" for t in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def imports_make_no_circle(sources: list[Source]) -> Iterator[str]:
    by_module = {s.module: s for s in product(sources)}
    edges: dict[str, dict[str, int]] = {m: {} for m in by_module}
    for module, source in by_module.items():
        for item in imports(source):
            target = module_of(item.name, set(by_module))
            door = item.lazy and (layer_of(module), layer_of(target)) in DOORS
            if target in by_module and target != module and not item.for_types_only and not door:
                edges[module].setdefault(target, item.line)
    reported: set[frozenset[str]] = set()
    for start in sorted(edges):
        circle = way_back(start, edges)
        if circle and frozenset(circle) not in reported:
            reported.add(frozenset(circle))
            yield at(by_module[start], edges[start][circle[1]], f"imports go round: {' -> '.join(circle)}",
                     "move what both need into a module below them")  # fmt: skip


def way_back(start: str, edges: dict[str, dict[str, int]]) -> list[str]:
    ways = [[start]]
    seen = set()
    for way in ways:
        for target in edges[way[-1]]:
            if target == start:
                return [*way, start]
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return []


def only_declared_dependencies(sources: list[Source]) -> Iterator[str]:
    own = {"nobroker", "nobroker_mmap", "nobroker_tools"}
    for source in product(sources):
        terminal = within(source.module, ("nobroker.cli", "nobroker_tools"))
        allowed = CORE_DEPENDENCIES | own | (TERMINAL_DEPENDENCIES if terminal else set())
        if source.module == "nobroker.pytest_plugin":  # loaded by pytest, and by nobody else
            allowed = {"pytest"}
        allowed = allowed | EXTRAS.get(source.module, set())
        for item in imports(source):
            top = item.name.partition(".")[0]
            if top not in allowed and top not in sys.stdlib_module_names:
                yield at(source, item.line, f"imports {top}",
                         f"the standard library, {', '.join(sorted(CORE_DEPENDENCIES))}; "
                         "click, rich and orjson only in nobroker/cli and tools")  # fmt: skip


def state_does_no_io(sources: list[Source]) -> Iterator[str]:
    calls = {f"builtins.{n}" for n in ("open", "print", "input")} | {
        f"sys.{n}" for n in ("stdin", "stdout", "stderr")
    }
    unsettled = ("nobroker.clock", "nobroker.backoff")
    for source in product(sources):
        if not within(source.module, ("nobroker.state",)):
            continue
        for item in imports(source):
            top = item.name.partition(".")[0]
            if top != "nobroker" and top not in PURE_IMPORTS:
                yield at(source, item.line, f"the state machine imports {top}",
                         "take values as arguments: no files, clock, locks or chance")  # fmt: skip
            elif within(item.name, unsettled):
                yield at(
                    source,
                    item.line,
                    f"the state machine imports {item.name}",
                    "take the decided value as argument",
                )
        for line, name in references(source):
            if name in calls:
                yield at(
                    source,
                    line,
                    f"the state machine calls {name}",
                    "return what happened; the store does the rest",
                )
