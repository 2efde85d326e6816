"""The project's sources, and what each of them imports and refers to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Source:
    path: str  # relative to the root, with forward slashes
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def imported(self) -> list[Import]:
        return list(_imports(self))

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def is_product(self) -> bool:
        return self.is_python and self.path.startswith(("nobroker/", "nobroker_mmap/", "tools/"))

    @property
    def module(self) -> str:
        parts = self.path.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(["nobroker_tools" if parts[0] == "tools" else parts[0], *parts[1:]])

    @property
    def package(self) -> str:
        return self.module if self.path.endswith("/__init__.py") else self.module.rpartition(".")[0]


@dataclass(frozen=True)
class Import:
    line: int
    name: str  # absolute and dotted, down to the imported name
    for_types_only: bool
    lazy: bool  # inside a function


def read_tree(root: Path = ROOT) -> list[Source]:
    """Every source and text of the project, whether or not it is under version control."""
    folders = ("nobroker", "nobroker_mmap", "tools", "tests", "benchmarks", "docs", ".ci")
    paths = [p for folder in folders for p in (root / folder).rglob("*")] + list(root.iterdir())
    kinds = {".py", ".md", ".toml", ".txt", ".sh", ".yml", ".yaml", ".cfg", ".service"}
    wanted = (p for p in paths if p.is_file() and (p.suffix in kinds or p.parent.name == ".ci"))
    return [
        Source(p.relative_to(root).as_posix(), p.read_text(encoding="utf-8"))
        for p in sorted(wanted)
        if not any(part.startswith(".") and part != ".ci" for part in p.relative_to(root).parts)
    ]


def product(sources: list[Source]) -> list[Source]:
    return [s for s in sources if s.is_product]


def imports(source: Source) -> list[Import]:
    return source.imported


def _imports(source: Source) -> Iterator[Import]:
    typing_blocks = [
        n for n in ast.walk(source.tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
    ]
    for_types = {id(inner) for block in typing_blocks for top in block.body for inner in ast.walk(top)}
    functions = [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lazy = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(source.tree):
        where = (id(node) in for_types, id(node) in lazy)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, *where)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(node.lineno, f"{origin(source, node)}.{alias.name}", *where)


def origin(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    base = source.package.split(".")
    return ".".join([*base[: len(base) - node.level + 1], *([node.module] if node.module else [])])


def references(source: Source) -> Iterator[tuple[int, str]]:
    """Each name and attribute that is read, imports resolved: `from os import open as o` makes o os.open."""
    names: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{origin(source, node)}.{alias.name}"
    own = {n.name for n in source.tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}

    def dotted(node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return names.get(node.id, f"own.{node.id}" if node.id in own else f"builtins.{node.id}")
        return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "builtins.?"

    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.lineno, dotted(node)


def at(source: Source, line: int, problem: str, instead: str) -> str:
    return f"{source.path}:{line}: {problem}; instead: {instead}"


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(place + ".") for place in places)
