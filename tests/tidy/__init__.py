"""The rules of the house, as functions from sources to findings; test_tidy.py applies them to this tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.tidy import imports, places, text
from tests.tidy.sources import Source

Rule = Callable[[list[Source]], Iterator[str]]
RULES: dict[str, Rule] = {
    "imports run downwards": imports.imports_run_downwards,
    "no hidden imports": imports.no_hidden_imports,
    "the job layer uses public names": imports.job_layer_uses_public_names,
    "imports make no circle": imports.imports_make_no_circle,
    "only declared dependencies": imports.only_declared_dependencies,
    "the state machine does no I/O": imports.state_does_no_io,
    "only files.py opens, syncs, renames, unlinks": places.files_only,
    "only files.py changes files by path": places.files_by_path_only,
    "only locking.py locks": places.locks_only,
    "only format.py has structs": places.struct_only,
    "only format.py has magics": places.magics_only,
    "only clock.py reads the wall clock": places.wall_clock_only,
    "stopwatches only where one waits": places.stopwatch_only,
    "nothing unpickles": places.nothing_unpickles,
    "nothing runs data": places.nothing_runs_data,
    "files are short": text.files_are_short,
    "functions are short": text.functions_are_short,
    "no stray words": text.no_stray_words,
}
