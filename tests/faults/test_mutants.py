"""The changes that mutation makes: all kinds, each alone, and each in the code that it says."""

from __future__ import annotations

import textwrap
from types import FunctionType

import pytest

from tests.faults.mutants import KINDS, Mutant, mutants_of, mutated

SOURCE = textwrap.dedent('''
    LIMIT = 5


    def grow(items, most=7):
        """At most so many."""
        if len(items) < most and items:
            items.append(items[-1] + 2)
        return items


    class Box:
        size: int = 3

        def fill(self, full=False):
            self.full = True
            if full:
                raise ValueError(f"{1 + 1} is too much")
            return False
''')


def changed(mutant: Mutant) -> FunctionType:
    return FunctionType(mutated(mutant, SOURCE), {"len": len, "ValueError": ValueError}, argdefs=(7,))


def named(what: str) -> Mutant:
    (found,) = [mutant for mutant in mutants_of("box.py", SOURCE) if mutant.what == what]
    return found


def test_what_is_changed_and_what_is_not() -> None:
    found = mutants_of("box.py", SOURCE)
    assert {mutant.kind for mutant in found} == set(KINDS)
    assert {mutant.function for mutant in found} == {"grow", "Box.fill"}
    assert [mutant.number for mutant in found] == list(range(len(found)))
    lines = {mutant.lines for mutant in found}
    assert lines == {(7, 7), (8, 8), (9, 9), (16, 16), (17, 17), (18, 18), (19, 19)}


@pytest.mark.parametrize(
    "what, given, expected",
    [
        ("len(items) < most -> len(items) <= most", [1] * 7, [1] * 7 + [3]),
        ("len(items) < most -> len(items) >= most", [1], [1]),
        ("2 -> 3", [1], [1, 4]),
        ("items[-1] + 2 -> items[-1] - 2", [1], [1, -1]),
        ("items.append(items[-1] + 2) -> pass", [1], [1]),
        ("return items -> return None", [1], None),
        ("len(items) < most and items -> len(items) < most or items", [1] * 8, [1] * 8 + [3]),
    ],
)
def test_one_change_at_a_time(what: str, given: list[int], expected: list[int] | None) -> None:
    assert changed(named(what))(given) == expected


def test_changes_in_methods() -> None:
    class Box:
        full = None

    box = Box()
    assert changed(named("self.full = True -> pass"))(box, False) is False
    assert box.full is None
    with pytest.raises(ValueError, match="2 is too much"):
        changed(named("full -> not full"))(box, False)
    raised = named("raise ValueError(f'{1 + 1} is too much') -> pass")
    assert changed(raised)(box, True) is False
