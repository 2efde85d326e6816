"""Small changes of a module, one at a time: the mistakes that its tests should see.

Only the bodies of functions are changed. What runs when a module is imported (constants, defaults, layouts)
is left alone, and so are words for people.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType
from typing import Final, NamedTuple

_FLIPS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_SWAPS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Mod: ast.FloorDiv,
}
_DROPPED: Final = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
KINDS: Final = ("comparison", "number", "and/or", "condition", "operator", "return None", "dropped statement")


class Mutant(NamedTuple):
    """One change. `number` counts the changes of a module; `lines` are those of the code that is changed."""

    path: str
    number: int
    kind: str
    function: str
    begins: int
    """Line at which the function's code object begins, its decorators included."""
    lines: tuple[int, int]
    what: str


class _Walk(ast.NodeTransformer):
    """Meets every possible change in the same order each time, and makes the one that is `chosen`."""

    def __init__(self, path: str, chosen: int = -1) -> None:
        self.path = path
        self.chosen = chosen
        self.found: list[Mutant] = []
        self._names: list[str] = []
        self._begins = 0

    def _offer(self, kind: str, node: ast.stmt | ast.expr, changed: ast.AST) -> bool:
        if not self._begins:
            return False  # not in a function
        what = f"{_shown(node)} -> {_shown(changed)}"
        lines = node.lineno, node.end_lineno or node.lineno
        number, function = len(self.found), ".".join(self._names)
        self.found.append(Mutant(self.path, number, kind, function, self._begins, lines, what))
        return number == self.chosen

    # -- where there is something to change

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outermost = not self._begins
        if outermost:
            self._begins = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
        self._names.append(node.name)
        documented = ast.get_docstring(node) is not None
        node.body[documented:] = [self.visit(part) for part in node.body[documented:]]
        self._names.pop()
        if outermost:
            self._begins = 0
        return node

    def visit(self, node: ast.AST) -> ast.AST:
        changed: ast.AST = super().visit(node)
        if isinstance(node, _DROPPED) or _stores_outside(node):
            empty = ast.copy_location(ast.Pass(), node)
            return empty if self._offer("dropped statement", node, empty) else changed
        return changed

    # -- statements

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node  # its words are for people; that it is raised at all is looked at

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value in (None, False)):
            return node  # to whoever asks, no and nothing are the same
        empty = ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), node)), node)
        return empty if self._offer("return None", node, empty) else node

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.Constant):
            turned = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
            if self._offer("condition", node.test, turned):
                node.test = turned
        return node

    visit_While = visit_IfExp = visit_If

    # -- expressions

    def visit_Call(self, node: ast.Call) -> ast.AST:
        harmful = ast.unparse(node.func) == "os.kill"  # another signal, or another process
        return node if harmful else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for at, operation in enumerate(node.ops):
            for flip in _FLIPS[type(operation)]:
                ops = [*node.ops[:at], flip(), *node.ops[at + 1 :]]
                changed = ast.copy_location(ast.Compare(node.left, ops, node.comparators), node)
                if self._offer("comparison", node, changed):
                    return changed
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        changed = ast.copy_location(ast.BoolOp(other, node.values), node)
        return changed if self._offer("and/or", node, changed) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        swap = _SWAPS.get(type(node.op))
        if swap is None:
            return node
        changed = ast.copy_location(ast.BinOp(node.left, swap(), node.right), node)
        return changed if self._offer("operator", node, changed) else node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        others: list[int | float] = []
        if isinstance(node.value, bool):
            others = [not node.value]
        elif isinstance(node.value, int):
            others = [node.value + 1, node.value - 1]
        for other in others:
            changed = ast.copy_location(ast.Constant(other), node)
            if self._offer("number", node, changed):
                return changed
        return node


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else text[:67] + "..."


def _stores_outside(node: ast.AST) -> bool:
    """Does a statement set something that outlives the call? Dropping others leaves names unknown."""
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    )


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All changes of a module."""
    walk = _Walk(path)
    walk.visit(ast.parse(source))
    return walk.found


def mutated(mutant: Mutant, source: str) -> CodeType:
    """The code of the outermost function in which the change is, changed."""
    tree = ast.parse(source)
    _Walk(mutant.path, mutant.number).visit(tree)
    module = compile(ast.fix_missing_locations(tree), mutant.path, "exec")
    for code in _codes(module):
        if code.co_firstlineno == mutant.begins and not code.co_name.startswith("<"):
            return code
    raise LookupError(f"{mutant.path}: no function begins at line {mutant.begins}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
