"""Running the command line in this process, and what must hold after every test of it."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nobroker import Queue, list_queues
from nobroker.cli.main import main


@dataclass(frozen=True)
class Ran:
    """One run of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one strict JSON document."""
        return json.loads(self.out, parse_constant=_no_constant)

    def said_in_one_line(self) -> str:
        assert self.out == ""
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("error: ")
        assert "Traceback" not in self.err
        return self.err


def _no_constant(token: str) -> Any:
    raise ValueError(f"{token} is not strict JSON")


class CommandLine:
    """The command `nobroker --dir DIR`, run here or as a process."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dir = directory
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str, stdin: bytes = b"") -> Ran:
        out, err = io.StringIO(), io.StringIO()
        self._monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8", "surrogateescape")
        )
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["--dir", str(self.dir), *words])
        return Ran(code, out.getvalue(), err.getvalue())

    def json(self, *words: str, stdin: bytes = b"", code: int = 0) -> Any:
        """Run with `--json`, require the exit code, return the document."""
        ran = self("--json", *words, stdin=stdin)
        assert ran.code == code, ran
        return ran.json

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "nobroker", "--dir", str(self.dir), *words]

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start it as a process of its own."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(self.words(*words), **options)

    def process(self, *words: str, **options: Any) -> Ran:
        """Run it as a process of its own, to the end."""
        options = {"capture_output": True, "text": True, "timeout": 60, **options}
        done = subprocess.run(self.words(*words), check=False, **options)
        return Ran(done.returncode, done.stdout, done.stderr)

    def queue(self, name: str = "default", **options: Any) -> Queue:
        return Queue(self.dir, name, **options)


@pytest.fixture
def nobroker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """The command line on a directory that does not exist yet. In the end every queue in it checks out."""
    line = CommandLine(tmp_path / "jobs", monkeypatch)
    yield line
    if line.dir.is_dir():
        for name in list_queues(line.dir):
            with Queue(line.dir, name, read_only=True) as queue:
                assert list(queue.check()) == [], name


def tree(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Contents and times of change of all files below."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def next_json(process: subprocess.Popen[str]) -> Any:
    """The next line that a running command prints, as JSON; what it said last when there is none."""
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)
