"""C3: text that is not valid UTF-8, in payloads and in error texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nobroker import Job, Queue, Worker

from .words import B0, cli, drain

TEXTS = [
    "\ud83d",
    os.fsdecode(b"f\xff") if os.name != "nt" else "f\udcff",
    "\udfff\ud800",
    "a\0b",
    "\ud83d\ude00x",
]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_in_payloads(tmp_path: Path, text: str) -> None:
    payloads: list[Any] = [text, {text: text}, [{"k": [text]}], {"n": text, "b": 2**70}]
    with Queue(tmp_path, fsync=False) as queue:
        for payload in payloads:
            queue.enqueue(payload, metadata=text)
        queue.enqueue_many(payloads)
    with Queue(tmp_path, fsync=False) as queue:
        assert drain(queue) == payloads * 2


class Sulky(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Odd(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad \udcff \x00"),
        Sulky(),
        Odd(),
        ValueError("\x1b[2J\u202e"),
        KeyError("\ud800"),
        ValueError("x" * 10**6),
    ],
    ids=lambda error: type(error).__name__,
)
def test_in_error_texts(tmp_path: Path, error: Exception) -> None:
    runs = []

    def handler(job: Job) -> None:
        runs.append(job.attempts)
        raise error

    queue = Queue(tmp_path, "default", backoff=B0, max_attempts=2, visibility_timeout=1)
    queue.enqueue(1)
    stats = Worker(queue, handler, idle_timeout=0.3, handle_signals=False, poll_interval=0.02).run()
    assert runs == [1, 2]
    assert (stats.failed, stats.dead) in ((1, 1), (2, 1))
    queue.close()
    with Queue(tmp_path) as queue:
        (dead,) = queue.dlq()
        assert dead.last_error
        dead.last_error.encode()
        assert "\0" not in dead.last_error
    ran = cli(tmp_path, "dlq")
    assert ran.code == 0, ran
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
