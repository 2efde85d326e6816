"""How many mistakes the fast tests see: a sample of small changes of the engine and the state machine.

    python -m tests.faults.mutation --count 400 --seed 1     a sample; prints the score and what survived
    python -m tests.faults.mutation nobroker_mmap/wake.py:7  one change again, by its file and number

The tests are collected once. A first run notes which tests come by which line; then, for each change, a child
process swaps the code of one function and runs the tests that come by it, the quickest first, until one
fails. A test that takes five times the processor time that it took (and five seconds more) counts as one that
fails, and one that seems to wait for ever, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import coverage
import pytest

from tests.faults.mutants import KINDS, Mutant, mutants_of, mutated

ROOT: Final = Path(__file__).resolve().parents[2]
CHANGED: Final = ("nobroker_mmap", "nobroker/state")
TESTS: Final = ("tests/unit", "tests/contract", "tests/cases")
KILLED, SURVIVED, IMPOSSIBLE, BROKEN = "killed", "survived", "impossible", "broken"
_CODES: Final = {0: SURVIVED, 1: KILLED, 70: BROKEN, 71: IMPOSSIBLE}
_MEMORY: Final = 6 << 30
_FILE: Final = 1 << 30


class Survey:
    """Which tests come by which lines, and how long each takes: its own work, and by the clock."""

    def __init__(self, parts: Iterable[dict[str, Any]]) -> None:
        self.seconds: dict[int, tuple[float, float]] = {}
        self.tests: dict[str, dict[int, set[int]]] = {}
        for part in parts:
            self.seconds.update({int(test): tuple(seconds) for test, seconds in part["seconds"].items()})
            for path, lines in part["lines"].items():
                known = self.tests.setdefault(path, {})
                for line, tests in lines.items():
                    known.setdefault(int(line), set()).update(tests)

    def tests_for(self, mutant: Mutant, budget: float) -> list[int]:
        """The tests that come by a change, the quickest first, as many as `budget` seconds of work allow."""
        lines = self.tests.get(mutant.path, {})
        first, last = mutant.lines
        found = set().union(*(lines.get(line, set()) for line in range(first, last + 1)))
        chosen: list[int] = []
        for test in sorted(found, key=self.seconds.__getitem__):
            budget -= self.seconds[test][0]
            if budget < 0 and chosen:
                break
            chosen.append(test)
        return chosen


class Children:
    """Child processes that have all tests collected; at most `jobs` at once."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._running: dict[int, tuple[str, Callable[[int], None]]] = {}

    def start(self, work: Callable[[], int], done: Callable[[int], None]) -> None:
        """Have `work` give an exit code in a child, and call `done` with it (or -signal) some time later."""
        while len(self._running) >= self.jobs:
            self.wait()
        place = tempfile.mkdtemp(prefix="nobroker-mutants-")
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            code = 70
            try:
                os.setsid()
                os.environ["PYTEST_DEBUG_TEMPROOT"] = place  # where pytest makes its temporary directories
                null = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1):
                    os.dup2(null, fd)
                code = work()
            finally:
                os._exit(code)
        self._running[pid] = place, done

    def wait(self) -> None:
        """Wait for one child, and end what it left."""
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if ended is None:
            raise ChildProcessError("there is no child to wait for")
        os.killpg(ended.si_pid, signal.SIGKILL)
        pid, status = os.waitpid(ended.si_pid, 0)
        place, done = self._running.pop(pid)
        shutil.rmtree(place, ignore_errors=True)
        done(os.waitstatus_to_exitcode(status))

    def finish(self) -> None:
        """Wait for all."""
        while self._running:
            self.wait()


class Runner:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.children = Children(options.jobs)
        self.results: list[tuple[Mutant, str, int]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sources = {
            str(path): path.read_text() for where in CHANGED for path in sorted((ROOT / where).glob("*.py"))
        }
        survey = self._survey(session, list(sources))
        functions = _functions(set(sources))
        for mutant in self._sample(sources):
            tests = survey.tests_for(mutant, self.options.budget)
            if not tests:
                self._note(mutant, 0, 0)
                continue
            self.children.start(
                partial(_try, session, mutant, sources[mutant.path], functions, survey, tests),
                partial(self._note, mutant, len(tests)),
            )
        self.children.finish()
        return True

    def _survey(self, session: pytest.Session, paths: list[str]) -> Survey:
        jobs = self.options.jobs
        with tempfile.TemporaryDirectory() as place:
            targets = [Path(place, str(number)) for number in range(jobs)]
            for number, target in enumerate(targets):
                tests = range(number, len(session.items), jobs)
                self.children.start(partial(_look, session, tests, paths, target), lambda code: None)
            self.children.finish()
            parts = [json.loads(target.read_text()) for target in targets]
        survey = Survey(parts)
        failed = [test for part in parts for test in part["failed"]]
        for test in failed:
            print(f"left out, fails without any change: {session.items[test].nodeid}", flush=True)
        for lines in survey.tests.values():
            for tests in lines.values():
                tests.difference_update(failed)
        return survey

    def _sample(self, sources: dict[str, str]) -> list[Mutant]:
        every = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
        if self.options.only:
            wanted = {(str(ROOT / path), int(number)) for path, _, number in self.options.only}
            return [mutant for mutant in every if (mutant.path, mutant.number) in wanted]
        print(f"{len(every)} changes are possible", flush=True)
        return random.Random(self.options.seed).sample(every, min(self.options.count, len(every)))

    def _note(self, mutant: Mutant, tests: int, code: int) -> None:
        result = _CODES.get(code, KILLED)
        if result == BROKEN:
            raise RuntimeError(f"the runner itself failed with {mutant}")
        self.results.append((mutant, result, tests))
        if result == SURVIVED:
            print(_line(mutant, tests), flush=True)
        if len(self.results) % 25 == 0:
            print(f"{len(self.results)} changes were tried", flush=True)


def _look(session: pytest.Session, tests: Iterable[int], paths: list[str], target: Path) -> int:
    """In a child: run tests, and write which lines each comes by."""
    measure = coverage.Coverage(data_file=None, config_file=False, include=paths)
    seconds: dict[int, tuple[float, float]] = {}
    failed: list[int] = []
    measure.start()
    for test in tests:
        measure.switch_context(str(test))
        work, begun, before = time.process_time(), time.monotonic(), session.testsfailed
        _run(session, test)
        seconds[test] = time.process_time() - work, time.monotonic() - begun
        if session.testsfailed > before:
            failed.append(test)
    measure.stop()
    data = measure.get_data()
    lines = {
        path: {
            line: [int(test) for test in tests if test]
            for line, tests in data.contexts_by_lineno(path).items()
        }
        for path in paths
    }
    target.write_text(json.dumps({"seconds": seconds, "lines": lines, "failed": failed}))
    return 0


def _try(
    session: pytest.Session,
    mutant: Mutant,
    source: str,
    functions: dict[tuple[str, int], list[FunctionType]],
    survey: Survey,
    tests: list[int],
) -> int:
    """In a child: make a change, and run tests until one fails."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE, _FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        code = mutated(mutant, source)
        for function in functions[mutant.path, mutant.begins]:
            function.__code__ = code
    except (SyntaxError, ValueError):  # what the change leaves is no function of the same kind
        return 71
    for test in tests:
        work, waited = survey.seconds[test]
        signal.setitimer(signal.ITIMER_PROF, 5 + 5 * work)
        signal.setitimer(signal.ITIMER_REAL, 20 + 10 * work + min(waited, 20))
        _run(session, test)
        if session.testsfailed:
            return 1
    return 0


def _run(session: pytest.Session, test: int) -> None:
    item = session.items[test]
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _functions(paths: set[str]) -> dict[tuple[str, int], list[FunctionType]]:
    """All functions there are of some files, by file and the line at which their code begins."""
    found: dict[tuple[str, int], list[FunctionType]] = {}
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and value.__code__.co_filename in paths:
            code = value.__code__
            if not code.co_name.startswith("<"):
                found.setdefault((code.co_filename, code.co_firstlineno), []).append(value)
    return found


def _line(mutant: Mutant, tests: int) -> str:
    path = os.path.relpath(mutant.path, ROOT)
    where = f"{path}:{mutant.lines[0]} {mutant.function}"
    return f"{where}: {mutant.what} [{mutant.kind}; {path}:{mutant.number}; {tests} tests]"


def summary(results: list[tuple[Mutant, str, int]]) -> str:
    """Figures by kind of change."""
    counted = [(mutant.kind, result) for mutant, result, _ in results if result != IMPOSSIBLE]
    tally = Counter(counted)
    lines = ["| change | made | seen |", "|---|---:|---:|"]
    for kind in KINDS:
        seen = tally[kind, KILLED]
        lines.append(f"| {kind} | {seen + tally[kind, SURVIVED]} | {seen} |")
    seen = sum(result == KILLED for _, result in counted)
    share = 100 * seen / max(1, len(counted))
    lines.append(f"| all | {len(counted)} | {seen} ({share:.1f} %) |")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mutation", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="FILE:NUMBER", type=lambda text: text.rpartition(":"))
    parser.add_argument("--count", type=int, default=400, help="how many changes (400)")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (2)")
    parser.add_argument("--budget", type=float, default=30, help="seconds of work for one change (30)")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="folders or files of tests")
    options = parser.parse_args(argv)
    runner = Runner(options)
    os.chdir(ROOT)
    plugins = ("xdist", "cacheprovider", "terminalreporter")
    off = [argument for plugin in plugins for argument in ("-p", f"no:{plugin}")]
    code = pytest.main(["-q", "-s", *off, *options.tests], plugins=[runner])
    print(summary(runner.results))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
