"""Starting the processes that measure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environment import Environment

TASK = Path(__file__).resolve().parent / "task.py"
PATIENCE_S = 600.0


class TaskError(Exception):
    """A measuring process failed; the text is the end of what it said."""


@dataclass
class Bench:
    """What all measurements share: how large, how often, where, with which interpreters.

    Attributes:
        quick: small sizes, to show that everything runs; its figures judge nothing.
        runs: how often each figure is measured.
        work: directory on the file system that is measured.
        environment: the others' packages.
        deadline: moment of the monotonic clock from which on everything is measured once only.
    """

    quick: bool
    runs: int
    work: Path
    environment: Environment
    deadline: float = float("inf")
    progress: bool = True
    missing: dict[str, str] = field(default_factory=dict)

    def pick(self, quick: Any, full: Any) -> Any:
        return quick if self.quick else full

    def rounds(self) -> Iterator[int]:
        """Numbers of the rounds of a row."""
        for number in range(self.runs):
            if number and time.monotonic() > self.deadline:
                return
            yield number

    def say(self, text: str) -> None:
        if self.progress:
            print(f"  {text}", file=sys.stderr, flush=True)

    def fresh(self) -> Path:
        """A new empty directory on the measured file system."""
        return Path(tempfile.mkdtemp(dir=self.work))

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A new empty directory that is gone afterwards."""
        path = self.fresh()
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def start(
        self, function: str, who: str, wrap: Sequence[str | Path], args: dict[str, Any]
    ) -> subprocess.Popen[str]:
        python, path = self.environment.interpreter(who)
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NOBROKER_DIR")}
        if path:
            env["PYTHONPATH"] = os.pathsep.join(str(p) for p in path)
        plain = {k: str(v) if isinstance(v, Path) else v for k, v in args.items()}
        return subprocess.Popen(
            [*(str(w) for w in wrap), str(python), str(TASK), f"benchmarks.{function}", json.dumps(plain)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=self.work,
        )

    def task(self, function: str, *, who: str = "this", wrap: Sequence[str | Path] = (), **args: Any) -> Any:
        """Run `MODULE:FUNCTION` in a process of its own and return its result.

        Args:
            function: below the package `benchmarks`.
            who: whose interpreter and packages: "this" project, the "old" one, the "peers".
            wrap: words before the command, such as those of strace.
            args: for the function; paths and what JSON has.

        Raises:
            TaskError: the process failed.
        """
        return finish(self.start(function, who, wrap, args))

    def together(self, members: Sequence[tuple[str, str, dict[str, Any]]]) -> list[Any]:
        """Run several (function, who, arguments) at the same time: all begin when all are prepared."""
        processes = [self.start(function, who, (), args) for function, who, args in members]
        try:
            for process in processes:
                assert_ready(process)
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            return [finish(process) for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def assert_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line or "ready" not in json.loads(line):
        finish(process)
        raise TaskError(f"did not wait to be started: {line!r}")


def finish(process: subprocess.Popen[str]) -> Any:
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise TaskError(f"no answer within {PATIENCE_S:.0f} s") from None
    lines = out.splitlines()
    if process.returncode != 0 or not lines:
        raise TaskError(f"exit code {process.returncode}: {' / '.join(err.strip().splitlines()[-3:])}")
    return json.loads(lines[-1])["result"]


def settle(seconds: float = 0.2) -> None:
    """Let writes that others left behind reach the disk: the next measurement is not to pay for them."""
    if hasattr(os, "sync"):
        os.sync()
    time.sleep(seconds)
