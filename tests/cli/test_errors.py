"""Whatever happens ends in an exit code and one line; never in a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nobroker import NobrokerError, Queue
from nobroker.cli.failures import one_line
from nobroker.cli.main import main

from .conftest import CommandLine, tree


def test_no_command_shows_the_help(nobroker: CommandLine) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([]) == 2
    assert "enqueue" in out.getvalue()
    assert nobroker().code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["enqueue"],
        ["enqueue", "1", "2"],
        ["lease", "--count", "x"],
        ["stats", "--nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(nobroker: CommandLine, words: list[str]) -> None:
    ran = nobroker(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "error: " in ran.err
    assert "--help" in ran.err
    assert not nobroker.dir.exists()


UNSAFE_NAMES = [
    "../evil", "/abs", "a/b", "..", ".", "", "x" * 300, "*", " a ", "a\nb", "é", "e\u0301", "-a", ".hidden",
    "a\x1b[31m",
]  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE_NAMES)
@pytest.mark.parametrize("words", [["enqueue", "1"], ["lease"], ["stats"], ["purge", "--yes"]], ids=" ".join)
def test_a_name_that_could_leave_the_directory(
    nobroker: CommandLine, name: str, words: list[str], tmp_path: Path
) -> None:
    ran = nobroker(f"--queue={name}", *words)
    assert ran.code == 1, ran
    ran.said_in_one_line()
    assert "\x1b" not in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "a/b", "*"])
def test_drop_of_such_a_name(nobroker: CommandLine, name: str, tmp_path: Path) -> None:
    nobroker("-q", "a", "enqueue", "1")
    (tmp_path / "evil.000001.seg").write_text("not ours")
    before = tree(tmp_path)
    assert nobroker("drop", name, "--yes").code == 1
    assert tree(tmp_path) == before


def test_names_that_differ_only_in_case_are_one_queue(nobroker: CommandLine) -> None:
    nobroker("-q", "Mails", "enqueue", "1")
    assert nobroker("-q", "mails", "enqueue", "2").code in (0, 1)
    assert len(nobroker.json("queues")) == 1
    for name in ("a.b", "a_b", "a"):
        nobroker("-q", name, "enqueue", f'"{name}"')
    for name in ("a.b", "a_b", "a"):
        assert [job["payload"] for job in nobroker.json("-q", name, "list")] == [name]
    nobroker("drop", "a", "--yes")
    assert nobroker.json("-q", "a.b", "stats")["total"] == 1


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error, line",
    [
        (NobrokerError("the lock\n is held \x1b[1m"), "the lock is held \\u001b[1m"),
        (ValueError("delay must be finite"), "delay must be finite"),
        (OSError(28, "No space left on device", "/x\n"), "No space left on device: '/x\\n'"),
        (KeyError("a"), "KeyError: 'a'"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (_Unspeakable(), "_Unspeakable: (its text could not be made: RuntimeError)"),
    ],
)
def test_one_line(error: Exception, line: str) -> None:
    assert one_line(error) == line


@pytest.mark.parametrize(
    "error, code",
    [
        (NobrokerError("x"), 1),
        (ValueError("x"), 1),
        (TypeError("x"), 1),
        (PermissionError(13, "Permission denied", "x"), 1),
        (KeyError("x"), 1),
        (RecursionError("x"), 1),
        (MemoryError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_of_the_queue_become_exit_codes(
    nobroker: CommandLine, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    nobroker("enqueue", "1")
    monkeypatch.setattr(Queue, "stats", fail)
    ran = nobroker("stats")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


@pytest.mark.processes
@pytest.mark.skipif(os.name != "posix", reason="pipes end differently elsewhere")
def test_a_reader_that_leaves_ends_the_command_quietly(nobroker: CommandLine) -> None:
    with nobroker.queue() as queue:
        queue.enqueue_many(["x" * 200] * 20_000)
    with nobroker.start("list") as listing:
        listing.stdout.readline()
        listing.stdout.close()
        assert listing.wait(30) == 141
        assert listing.stderr.read() == ""


@pytest.mark.processes
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_can_not_be_written_is_an_error(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1")
    with open("/dev/full", "w") as full:
        ran = nobroker.process("list", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ran.code == 1
    assert ran.err == "error: No space left on device\n"


@pytest.mark.processes
def test_ctrl_c_is_130(nobroker: CommandLine) -> None:
    nobroker("enqueue", "1")
    nobroker("lease")
    with nobroker.start("lease", "--wait", "60") as waiting:
        _until_it_waits(waiting)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(10) == 130
        assert waiting.stdout.read() == ""
        assert waiting.stderr.read() == "interrupted\n"


def _until_it_waits(process: subprocess.Popen[str]) -> None:
    """Wait until the process sleeps with its modules loaded: it has opened the queue's files by then."""
    import time

    fds = Path(f"/proc/{process.pid}/fd")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if fds.is_dir():
            with contextlib.suppress(OSError):
                if any(".lock" in os.readlink(fd) for fd in fds.iterdir()):
                    return
            time.sleep(0.02)
        else:
            time.sleep(1)
            return
    raise AssertionError("it never opened the queue")


@pytest.mark.processes
def test_python_m_nobroker_and_an_ascii_terminal(nobroker: CommandLine) -> None:
    nobroker("enqueue", "Grüße 日本")
    ran = nobroker.process("list", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert ran.code == 0
    assert "Gr\\xfc\\xdfe" in ran.out
    done = subprocess.run(
        [sys.executable, "-m", "nobroker.cli", "--version"], capture_output=True, check=True
    )
    assert done.stdout.startswith(b"nobroker ")
