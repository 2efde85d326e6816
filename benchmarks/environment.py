"""The packages that the project is measured beside, in an environment of their own, made when needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
VENV = HERE / ".venv"
OLD = "nobroker==0.1.2"
FAST_JSON = "orjson>=3.9"
QUEBEC = "quebec==0.4.2"  # not for every platform, and the others are to be had all the same
FOLDERS = {
    "old": ("nobroker-0.1.2", OLD),
    "this+json": ("orjson", FAST_JSON),
    "quebec": ("quebec", QUEBEC),
}
DEBIAN_PACKAGES = ("redis-server", "postgresql", "strace")


@dataclass(frozen=True)
class Environment:
    """Where interpreters and packages are; and why what is not there is missing."""

    peers_python: Path | None
    folders: dict[str, Path]
    reasons: dict[str, str]

    def interpreter(self, who: str) -> tuple[Path, tuple[Path, ...]]:
        """Interpreter and additional import path of "this", "old", "peers", "quebec", or "this+json"."""
        own = Path(sys.executable)
        if who == "peers" and self.peers_python:
            return self.peers_python, ()
        if who in self.folders:
            return own, (self.folders[who],)
        if who == "this":
            return own, ()
        raise LookupError(f"{who}: {self.reasons.get(who, 'not installed')}")

    def why_missing(self, who: str) -> str | None:
        """Why nobody of that name can run here; None when it can."""
        return self.reasons.get(who)


def nothing() -> Environment:
    """This project alone."""
    why = "left out on request"
    return Environment(None, {}, dict.fromkeys(("peers", *FOLDERS), why))


def ensure() -> Environment:
    """Make the environment unless it is there and of these requirements; what fails becomes a reason."""
    wanted = hashlib.sha256(
        f"{sys.version}\n{VENV}\n{FOLDERS}\n".encode() + REQUIREMENTS.read_bytes()
    ).hexdigest()
    stamp = VENV / "made-of"
    if not (stamp.is_file() and stamp.read_text() == wanted):
        shutil.rmtree(VENV, ignore_errors=True)
        print(
            f"making an environment for what is compared with, in {VENV} (once)", file=sys.stderr, flush=True
        )
    reasons = {}
    python = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if why := step("peers", [[sys.executable, "-m", "venv", VENV], [*pip(python), "-r", REQUIREMENTS]]):
        reasons["peers"] = why
    folders = {}
    for who, (name, requirement) in FOLDERS.items():
        command = [*pip(Path(sys.executable)), "--no-deps", "--target", VENV / name, requirement]
        if why := step(who, [command]):
            reasons[who] = why
        else:
            folders[who] = VENV / name
    if not reasons:
        stamp.write_text(wanted)
    return Environment(None if "peers" in reasons else python, folders, reasons)


def pip(python: Path) -> list[str | Path]:
    return [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]


def step(name: str, commands: list[list[str | Path]]) -> str | None:
    """Run the commands of one part, once; the reason why it could not be had, or None."""
    done = VENV / f"{name}-done"
    if done.exists():
        return None
    for command in commands:
        ran = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if ran.returncode != 0:
            said = (ran.stderr or ran.stdout).strip().splitlines() or ["it said nothing"]
            return f"could not be installed: {said[-1]}"
    done.touch()
    return None


def install_servers() -> None:
    """Install the servers and strace with apt-get; needs to be root on Debian or a relative of it."""
    if not shutil.which("apt-get"):
        sys.exit("no apt-get here; install these some other way: " + " ".join(DEBIAN_PACKAGES))
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-y", "-q", *DEBIAN_PACKAGES]):
        subprocess.run(["apt-get", *command], check=True, env=env, stdout=sys.stderr)
