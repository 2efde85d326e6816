"""Redis and PostgreSQL, started for the measurement on a free port and stopped after it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 30.0


class ServerMissing(Exception):
    """The server is not installed, or does not start."""


@dataclass(frozen=True)
class Server:
    address: str
    pid: int


@contextmanager
def running(kind: str, work: Path) -> Iterator[Server]:
    """A server of that kind with its data on the measured file system.

    Raises:
        ServerMissing: with what to do about it.
    """
    with {"redis": redis, "postgres": postgres}[kind](work) as server:
        yield server


@contextmanager
def redis(work: Path) -> Iterator[Server]:
    """Redis that answers a command when the append-only file is synced."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServerMissing("no redis-server here (Debian: apt-get install redis-server)")
    data = Path(tempfile.mkdtemp(prefix="redis-", dir=work))
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data), "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"]
    with (data / "log").open("wb") as log:
        process = subprocess.Popen([program, *options], stdout=log, stderr=log)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data)
        stack.callback(stop, process)
        wait_for(port, process, data / "log")
        yield Server(f"redis://127.0.0.1:{port}/0", process.pid)


@contextmanager
def postgres(work: Path) -> Iterator[Server]:
    """PostgreSQL as it comes: fsync and synchronous_commit on."""
    programs = postgres_programs()
    if programs is None:
        raise ServerMissing("no postgres here (Debian: apt-get install postgresql)")
    user = unprivileged()
    # Its data must be in reach of the user that it runs as, who may not see into the measured directory.
    data = Path(tempfile.mkdtemp(prefix="postgres-", dir="/var/tmp" if user else work))
    port = free_port()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data)
        if user:
            shutil.chown(data, user)
        made = subprocess.run(
            [programs / "initdb", "-D", data / "data", "-A", "trust", "-U", "postgres", "-E", "UTF8"],
            capture_output=True,
            text=True,
            user=user,
            cwd=data,
        )
        if made.returncode != 0:
            raise ServerMissing(f"initdb failed: {made.stderr.strip().splitlines()[-1:]}")
        options = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", str(data)]
        with (data / "log").open("wb") as log:
            process = subprocess.Popen(
                [programs / "postgres", "-D", data / "data", *options],
                stdout=log,
                stderr=log,
                user=user,
                cwd=data,
            )
        stack.callback(stop, process)
        wait_for(port, process, data / "log")
        yield Server(f"host=127.0.0.1 port={port} user=postgres dbname=postgres", process.pid)


def postgres_programs() -> Path | None:
    """The folder with initdb and postgres: on the path, or where Debian hides it."""
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return folders[-1].parent if folders else None


def unprivileged() -> str | None:
    """PostgreSQL refuses to run as root; then as whom."""
    return "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    said = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise ServerMissing(f"{process.args!r} did not start: {said}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(2)  # Interrupt: PostgreSQL ends at once without waiting for its clients
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
