"""On a terminal there are tables, and still nothing that was stored can steer the terminal."""

from __future__ import annotations

import os
import sys

import pytest

from .conftest import CommandLine

HOSTILE = 'a\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202egnp.exe\u2066\u200f\x00\x7f"[bold]x[/bold]'
FORBIDDEN = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u202e", "\u2066", "\u200f"]


@pytest.fixture
def hostile(nobroker: CommandLine) -> CommandLine:
    with nobroker.queue() as queue:
        queue.enqueue({HOSTILE: HOSTILE}, job_id="a", lane="odd", metadata=HOSTILE)
        [job] = queue.lease()
        queue.nack(job, error=f"Traceback\n{HOSTILE}", dead=True)
        queue.enqueue(HOSTILE, job_id="b\u202e\u2066c", priority=-1)
        queue.enqueue(HOSTILE, job_id="done", priority=1)
        [job] = queue.lease()
        queue.ack(job, result=HOSTILE)
    return nobroker


COMMANDS = [
    ["list"],
    ["dlq"],
    ["show", "a"],
    ["show", "done"],
    ["show", "b\u202e\u2066c"],
    ["show", HOSTILE.replace("\x00", "")],
    ["queues", "--long"],
    ["inspect"],
    ["dump"],
    ["dump", "--jobs"],
    ["stats"],
    ["check"],
    ["recover"],
    ["lease"],
    ["nack", "b\u202e\u2066c"],
    ["cancel", "b\u202e\u2066c"],
    ["ack", "b\u202e\u2066c"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: ascii(" ".join(words))[:40])
def test_stored_text_in_a_pipe(hostile: CommandLine, words: list[str]) -> None:
    ran = hostile(*words)
    for text in (ran.out, ran.err):
        assert not [char for char in FORBIDDEN if char in text.replace("\n", "").replace("\t", "")]
    ran = hostile("--json", *words)
    assert ran.out.isascii()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.processes
@pytest.mark.parametrize(
    "words", [["list"], ["dlq"], ["show", "a"], ["queues", "-l"], ["inspect"]], ids=" ".join
)
def test_stored_text_on_a_terminal(hostile: CommandLine, words: list[str]) -> None:
    seen = on_terminal(hostile, *words)
    assert seen.strip()
    for char in FORBIDDEN:
        assert char not in seen.replace("\r\n", "").replace("\n", ""), (char, seen)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.processes
def test_tables_on_a_terminal(nobroker: CommandLine) -> None:
    nobroker("enqueue", "[red]markup[/red]", "--id", "a")
    seen = on_terminal(nobroker, "list")
    assert "─" in seen
    assert "[red]markup[/red]" in seen
    nobroker("enqueue", "x", "--count", "150")
    seen = on_terminal(nobroker, "list")
    assert "the first 100" in seen


def on_terminal(nobroker: CommandLine, *words: str) -> str:
    """Run on a terminal that has no colours; return what it would show."""
    import pty
    import subprocess

    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200", "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        nobroker.words(*words), stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    assert process.wait(30) == 0, seen
    return seen.decode("utf-8")
