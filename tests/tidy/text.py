"""How long things may be, and which words are not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.sources import Source, at

# Longer than the limit, each with the length it has now: entries may shrink and go, none may be added.
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}  # "path:Class.method": lines without its docstring


def over_the_limit(
    lengths: dict[str, int], limit: int, exceptions: dict[str, int], instead: str
) -> Iterator[str]:
    for what, length in lengths.items():
        if length > exceptions.get(what, limit):
            yield f"{what}: {length} lines, at most {exceptions.get(what, limit)}; instead: {instead}"
    for what, ceiling in exceptions.items():
        now = lengths.get(what, 0)
        if now <= limit:
            yield f"{what}: no longer needs its exception; instead: take it out of tests/tidy"
        elif now < ceiling:
            yield f"{what}: shrank from {ceiling} to {now} lines; instead: lower its number there"


def files_are_short(sources: list[Source]) -> Iterator[str]:
    lengths = {s.path: len(s.text.splitlines()) for s in sources if s.is_python}
    yield from over_the_limit(
        lengths, MAX_FILE_LINES, LONG_FILES, "give the parts rooms (modules) of their own"
    )


def functions_are_short(sources: list[Source]) -> Iterator[str]:
    lengths = {}
    for source in sources:
        if source.is_python:
            for name, node in functions(source.tree, ""):
                text = ast.get_docstring(node, clean=False)
                documented = len(text.splitlines()) if text else 0
                lengths[f"{source.path}:{name}"] = (
                    (node.end_lineno or node.lineno) - node.lineno + 1 - documented
                )
    yield from over_the_limit(
        lengths, MAX_FUNCTION_LINES, LONG_FUNCTIONS, "callers above the smaller functions they call"
    )


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from functions(child, f"{prefix}{child.name}." if named else prefix)  # type: ignore[attr-defined]


WORDS = {
    r"\b(TODO|FIXME|XXX)\b": "do it now, or leave it out",
    r"\bNotImplementedError\b": "write it, or make it a Protocol or an abstract method",
    r"\b[Ss]essions? (that )?(wrote|made|found|was|were|is|are)\b": "speak of the project, not of its making",
    r"\b(this|an|each|last|earlier|previous|another) sessions?\b": "speak of the project",
    r"\b[Hh]elpers?\b": "say what it does",
    r"\b(pypi\.org|pythonhosted\.org|npmjs\.(com|org)|crates\.io)\b": "name the package, not its host",
    r"(?<![\w./~$}])/(work|root|home|Users)/\w": "use /srv or a relative path",
    r"\bissues? (show|#?\d)": "give the reason in words",
}


def no_stray_words(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        if source.path in ("tests/tidy/text.py", "tests/test_tidy.py"):
            continue  # they have to name what they look for
        for number, line in enumerate(source.text.splitlines(), 1):
            for pattern, instead in WORDS.items():
                if found := re.search(pattern, line):
                    yield at(source, number, f"says {found.group().strip()!r}", instead)
