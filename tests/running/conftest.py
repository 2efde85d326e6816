"""Programs in processes of their own, a listener in systemd's place, waiting, and configurations."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nobroker import Queue
from nobroker.app.errors import ConfigError
from nobroker.running.sources import Loaded, load
from tests.running.trial import Trial, trial_in

T = TypeVar("T")
Load = Callable[..., Loaded]


def until(look: Callable[[], T], seconds: float = 30.0) -> T:
    """What `look` finds, as soon as that is something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {found!r}"
        time.sleep(0.01)
    return found


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A queue, whole at the end."""
    with Queue(tmp_path / "jobs", fsync=False) as made:
        yield made
        assert made.check() == []


class Programs:
    """Starts Python programs; none outlives the test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *lines: str, **env: str) -> subprocess.Popen[str]:
        """Run these lines, with standard output and errors in pipes."""
        process = subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)],
            cwd=self.home,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    made.end()


class Listener:
    """Stands where systemd listens.

    Attributes:
        heard: all that was taken up to now.
        senders: the processes that said it, where the system tells.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(30)
        if hasattr(socket, "SO_PASSCRED"):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.heard: list[str] = []
        self.senders: set[int] = set()

    def wait_for(self, beginning: str) -> str:
        """The next thing said that begins so."""
        while True:
            if (said := self._take()).startswith(beginning):
                return said

    def all(self) -> list[str]:
        """All that was said up to now."""
        self._socket.setblocking(False)
        try:
            while True:
                self._take()
        except BlockingIOError:
            return self.heard
        finally:
            self._socket.settimeout(30)

    def _take(self) -> str:
        said, about, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(struct.calcsize("3i")))
        for _, _, credentials in about:
            self.senders.add(struct.unpack("3i", credentials)[0])
        self.heard.append(said.decode())
        return self.heard[-1]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    if not hasattr(socket, "AF_UNIX"):
        pytest.skip("needs sockets of the file system")
    made = Listener(f"/tmp/nobroker-{os.getpid()}-{os.urandom(4).hex()}")
    monkeypatch.setenv("NOTIFY_SOCKET", made.address)
    yield made
    made.close()
    os.unlink(made.address)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    """A directory with jobs, and what runs there; nothing of it outlives the test."""
    with trial_in(tmp_path) as made:
        yield made


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """`load` in a directory with this ``queue.yml``; None: with none."""

    def make(text: str | None = None, variables: dict[str, str] | None = None, **arguments: Any) -> Loaded:
        if text is not None:
            (tmp_path / "queue.yml").write_text(text, encoding="utf-8")
        return load(tmp_path, environment=variables or {}, arguments=arguments)

    return make


@pytest.fixture
def problems(loaded: Load, tmp_path: Path) -> Callable[..., list[str]]:
    """What is wrong, a line each; the name of the directory left out."""

    def make(*words: Any, **arguments: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            loaded(*words, **arguments)
        lines = str(caught.value).splitlines()
        assert lines == [str(one) for one in caught.value.problems]
        return [line.replace(f"{tmp_path}/", "") for line in lines]

    return make
